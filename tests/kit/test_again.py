"""Claims about tests that are run once more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.kit import waits
from tests.kit.again import starts_nodes

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.kit.again import Again

def pytest_configure(config):
    config.pluginmanager.register(Again())
"""
TESTS = """
import subprocess, sys
from pathlib import Path
import pytest

HERE = Path(__file__).parent
NODE = [sys.executable, "-c", "pass", "raftlog", "server"]

def count(name):
    path = HERE / name
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())

@pytest.fixture(scope="module")
def cluster():
    subprocess.run(NODE)
    return count("clusters")

def test_with_a_cluster_that_is_new_the_second_time(cluster):
    assert count("shaky") == 2 == cluster, "the first time it fails"

def test_that_starts_a_node_itself():
    subprocess.run(NODE)
    assert count("own") == 2

def test_that_always_fails(cluster):
    assert count("broken") == 7

def test_of_a_unit():
    assert count("unit") == 2

def test_of_a_simulation_in_a_process():
    subprocess.run([sys.executable, "-c", "pass", "raftlog", "sim"])
    assert count("simulated") == 2

def test_sound(cluster):
    assert count("sound") == 1
"""


@pytest.mark.parametrize(
    "workers",
    [pytest.param([], marks=pytest.mark.nightly, id="alone"), pytest.param(["-n", "1"], id="xdist")],
)
def test_only_tests_of_nodes_are_run_again_and_flaky_tests_are_reported(
    tmp_path: Path, workers: list[str]
) -> None:
    """A test of nodes that fails twice fails, and is FLAKY if the second run passes. Other tests run once."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    plain = [f"-p no:{each}" for each in ("cacheprovider", "schemathesis", "anyio", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", *plain, "-c", "/dev/null", f"--rootdir={tmp_path}"]
    ran = waits.run([*command, *workers, str(tmp_path)], cwd=ROOT, text=True)
    files = [each for each in tmp_path.iterdir() if each.is_file() and not each.suffix]
    counted = {each.name: len(each.read_text()) for each in files}
    assert counted == {
        "shaky": 2,
        "own": 2,
        "broken": 2,
        "unit": 1,
        "simulated": 1,
        "sound": 1,
        "clusters": 4,
    }
    lines = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert lines[-1].strip("= ").startswith("3 failed, 1 passed, 2 flaky in")
    flaky = [each.partition("::")[2] for each in lines if each.startswith("FLAKY ")]
    assert flaky == ["test_with_a_cluster_that_is_new_the_second_time", "test_that_starts_a_node_itself"]
    assert "AssertionError: the first time it fails" in ran.stdout


def test_what_failed_at_first_is_printed_if_the_second_run_is_interrupted(tmp_path: Path) -> None:
    """A test of an hour would have to be run once more to learn what it failed with."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(
        "import os, signal, subprocess, sys\n"
        "def test_long():\n"
        "    subprocess.run([sys.executable, '-c', 'pass', 'raftlog', 'server'])\n"
        "    if os.path.exists('second'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    open('second', 'w').close()\n"
        "    assert not 'the first time'\n"
    )
    options = [f"-p no:{each}" for each in ("cacheprovider", "schemathesis", "anyio", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", *options, "-c", "/dev/null", f"--rootdir={tmp_path}"]
    ran = waits.run(
        [*command, str(tmp_path)], cwd=tmp_path, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "test_it.py::test_long failed at first:" in ran.stderr
    assert "the first time" in ran.stderr


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([sys.executable, "-m", "raftlog", "server", "--config", "x"], True),
        (["/somewhere/bin/raftlog", "demo"], True),
        ([b"/somewhere/raftlog", Path("dev")], True),
        ("python -m raftlog chaos calm", True),
        (["docker", "compose", "up"], True),
        ([sys.executable, "-m", "raftlog", "sim", "--seeds", "1"], False),
        ([sys.executable, "-m", "raftlog", "topic", "list"], False),
        (["git", "ls-files", "raftlog"], False),
        ("true", False),
        (Path("/bin/true"), False),
    ],
)
def test_nodes_are_known_by_their_command(command: object, expected: bool) -> None:
    """A test that asks a cluster by a process uses a fixture that started it."""
    assert starts_nodes(command) is expected
