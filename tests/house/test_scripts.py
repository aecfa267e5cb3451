"""Rules for the scripts of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from raftlog.testing.fake_clock import PLACES
from raftlog.testing.network import TOOLS
from tests.house.source import ROOT


def files() -> list[Path]:
    """Return the files that git keeps; outside a clone there are none, and the test is not run."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_every_file_that_names_an_interpreter_can_be_run() -> None:
    """The scripts of `.ci/run` call each other by path: a script that is not executable ends the run."""
    kept = files()
    if not kept:
        pytest.skip("not a git clone")
    scripts = [path for path in kept if path.is_file() and path.read_bytes()[:2] == b"#!"]
    assert scripts
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []


PACKAGES = ROOT / "deploy" / "ci" / "packages.sh"


def test_continuous_integration_installs_what_clusters_under_test_need() -> None:
    """A missing package skips its tests in silence: the network of chaos, and libfaketime for wrong clocks."""
    script = PACKAGES.read_text()
    assert all(f"[{package}]=" in script for package in TOOLS.values())
    assert f"[libfaketime]='{PLACES[0]}'" in script
    gate = (ROOT / ".ci" / "run").read_text()
    assert all(package in gate for package in ("libfaketime", "user-mode-linux", *TOOLS.values()))


def test_packages_that_cannot_be_installed_are_named(tmp_path: Path) -> None:
    """Without apt-get, or without root, the run goes on."""
    for program in ("bash", "id"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    ran = subprocess.run(
        [str(tmp_path / "bash"), str(PACKAGES), "kcat", "xfsprogs"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "not here, and not installed: kcat xfsprogs\n"
