"""Earlier releases of raftlog, built from the commits in the changelog, to run beside this version."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.waits import PATIENCE_S

ROOT = Path(__file__).parents[2]
_RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\][^\n]*\n+Commit ([0-9a-f]{7,40})\.", re.MULTILINE)


class Release(NamedTuple):
    """A release, and the interpreter of an environment that has it."""

    version: str
    python: Path


def previous_release(folder: Path) -> Release:
    """Build the previous release in a folder. Skips the test if its commit is missing.

    It is the newest release in the changelog, or its predecessor if the code is unchanged since the newest. Its
    environment uses this environment's dependencies.
    """
    changes = (ROOT / "CHANGELOG.md").read_text()
    is_released = re.search(r"^## \[Unreleased\]\s+## ", changes, re.MULTILINE) is not None
    version, commit = _RELEASE.findall(changes)[is_released]
    _extract(commit, folder / "source")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    _run(*build, "--wheel-dir", str(folder), str(folder / "source"))
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
    python = folder / "environment" / "bin" / "python"
    (packages,) = (folder / "environment" / "lib").glob("python*/site-packages")
    (wheel,) = folder.glob("raftlog-*.whl")
    assert wheel.name.startswith(f"raftlog-{version}-"), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # named in this way, and not by a path of its own, its own .pth files are not read: a .pth file names this raftlog
    (packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    found_at = _run(str(python), "-P", "-c", "import raftlog; print(raftlog.__file__)")
    assert found_at.startswith(str(packages)), found_at
    return Release(version, python)


def _extract(commit: str, folder: Path) -> None:
    has_commit = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    if has_commit.returncode:
        pytest.skip(f"this clone has no commit {commit}, of which the previous release was made")
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    _run("git", "-C", str(ROOT), "archive", "--output", str(archive), commit)
    _run("tar", "-x", "-f", str(archive), "-C", str(folder))


def _run(*command: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    return done.stdout
