"""`deploy/examples/celery`: tasks of Celery in a share group, with tests that kill a worker and a leader."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.house.source import ROOT


@pytest.mark.nightly
def test_the_celery_example_passes_as_users_run_it(tmp_path) -> None:
    """Its own tests, in a copy of its folder. `make celery-test` installs what it needs."""
    pytest.importorskip("celery", reason="make celery-test")
    shutil.copytree(ROOT / "deploy" / "examples" / "celery", tmp_path / "celery")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "celery",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "5 passed" in ended.stdout, ended.stdout[-8000:] + ended.stderr[-2000:]
