"""Rules for the scripts of the repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT


def files() -> list[Path]:
    """Return the files that git keeps; outside a clone there are none, and the test is not run."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_every_file_that_names_an_interpreter_can_be_run() -> None:
    """The scripts of `.ci/run` call each other by path: one without the right to be executed ends the run."""
    kept = files()
    if not kept:
        pytest.skip("not a git clone")
    scripts = [path for path in kept if path.is_file() and path.read_bytes()[:2] == b"#!"]
    assert scripts
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []
