"""Claims about what a worker of pytest-xdist sends."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit import waits

ROOT = Path(__file__).parents[2]
CONFTEST = """
from pathlib import Path
from tests.kit.again import Again
from tests.kit.light_reports import LightReports

def pytest_configure(config):
    config.pluginmanager.register(Again())
    config.pluginmanager.register(LightReports())

def pytest_runtest_logreport(report):
    if hasattr(report, "node"):  # it came from a worker
        with open(Path(__file__).parent / "log", "a") as log:
            log.write(f"{report.nodeid.partition('::')[2]} {report.when} {report.capstdout!r}\\n")
"""
TESTS = """
def test_that_passes():
    print("plenty")

def test_that_fails():
    print("the reason")
    assert False
"""


def test_a_worker_sends_one_report_of_a_test_that_passes_and_all_of_a_failure(tmp_path: Path) -> None:
    """Without its output, which is not printed; the output of a failure is."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    plain = [f"-p no:{each}" for each in ("cacheprovider", "schemathesis", "anyio", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", *plain, "-c", "/dev/null", f"--rootdir={tmp_path}"]
    ran = waits.run([*command, "-n", "1", str(tmp_path)], cwd=ROOT, text=True)
    assert (tmp_path / "log").read_text().splitlines() == [
        "test_that_passes call ''",
        "test_that_fails call 'the reason\\n'",
    ], ran.stdout
    assert "1 failed, 1 passed" in ran.stdout and "the reason" in ran.stdout
