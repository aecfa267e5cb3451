"""A process with a wall clock that is wrong from its first reading on, for tests of real nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raftlog.testing import fake_clock
from raftlog.testing.fake_clock import clock_environment, find_libfaketime

DAY_S = 86_400
LOOK = "import os, sys, time; print(time.time(), time.monotonic(), os.stat(sys.argv[1]).st_mtime)"


@pytest.mark.skipif(find_libfaketime() is None, reason="libfaketime is not installed")
@pytest.mark.parametrize("days", [40, -40])
def test_only_the_wall_clock_of_the_process_is_wrong(tmp_path: Path, days: int) -> None:
    """Its uptime and the times of files are right."""
    file = tmp_path / "file"
    file.write_text("")
    shown = subprocess.run(
        [sys.executable, "-c", LOOK, str(file)],
        env=os.environ | clock_environment(days * DAY_S * 1000),
        capture_output=True,
        check=True,
        text=True,
    )
    wall_s, uptime_s, written_s = map(float, shown.stdout.split())
    assert wall_s - time.time() == pytest.approx(days * DAY_S, abs=600)
    assert 0 <= time.monotonic() - uptime_s < 600
    assert written_s == pytest.approx(file.stat().st_mtime)


def test_a_machine_without_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right clock needs no library."""
    monkeypatch.setattr(fake_clock, "PLACES", ())
    assert clock_environment(0) == {}
    with pytest.raises(FileNotFoundError, match=r"Debian: .* libfaketime"):
        clock_environment(1)
