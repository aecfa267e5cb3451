"""Claims about the order of modules and the life of a shared cluster."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit import waits

ROOT = Path(__file__).parents[2]
CONFTEST = """
from pathlib import Path
import pytest
from tests.kit.order import LongestFirst, add_option

LOG = Path(__file__).parent / "log"

def pytest_addoption(parser):
    add_option(parser)

def pytest_configure(config):
    config.pluginmanager.register(LongestFirst())

@pytest.fixture(scope="session")
def shared_cluster():
    LOG.open("a").write("start ")
    yield
    LOG.open("a").write("end ")

@pytest.fixture(scope="module")
def cluster(shared_cluster):
    return LOG

@pytest.fixture(autouse=True)
def noted(request):
    yield
    LOG.open("a").write(request.node.name + " ")
"""
MODULES = {
    "test_a.py": "def test_a1(): pass",
    "test_b.py": "def test_b1(cluster): pass\ndef test_b2(): pass\ndef test_b3(cluster): pass",
    "test_c.py": "def test_c1(cluster): pass",
}


def log_of(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    plain = [f"-p no:{each}" for each in ("cacheprovider", "schemathesis", "anyio", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", *plain, "-c", "/dev/null", f"--rootdir={folder}", *options]
    ran = waits.run([*command, str(folder)], cwd=ROOT, text=True)
    assert ran.returncode == 0, ran.stdout
    return (folder / "log").read_text().strip()


def test_modules_that_share_a_cluster_come_first_and_it_ends_with_the_last_of_them(tmp_path: Path) -> None:
    """A test between that does not use it leaves it alone."""
    told = log_of(tmp_path, "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
    assert told == "start test_b1 test_b2 test_b3 test_c1 end test_a1"


def test_the_tests_of_each_module_can_be_reversed_and_the_modules_keep_their_order(tmp_path: Path) -> None:
    """No test may need what an earlier test of its module left."""
    told = log_of(tmp_path, "-n", "0", "--reversed")
    assert told == "test_a1 start test_b3 test_b2 test_b1 test_c1 end"
