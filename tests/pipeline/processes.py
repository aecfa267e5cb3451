"""Jobs as processes of their own: started from the command line, waited for, killed with all they started."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.kit import waits
from tests.pipeline.conftest import ROOT
from tests.pipeline.topics import Topics


def given(topics: Topics, topic: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Return the options that every job with a checkpoint must have, and others."""
    return {"topics": [topic], "bootstrap": topics.servers, "checkpoint": str(folder / "checkpoint"), **more}


def started(job: str, options: dict[str, Any], *more: str) -> subprocess.Popen[str]:
    """Start a job as a process of its own; `more` are flags without a value."""
    flags = [
        f"--{name.replace('_', '-')}={each}"
        for name, value in options.items()
        for each in (value if isinstance(value, list) else [value])
    ]
    command = [sys.executable, "-m", "raftlog", "pipeline", job, *flags, *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for a job that ends well, and return what it printed."""
    output, errors = waits.finished(process)
    assert process.returncode == 0, errors[-3_000:]
    return output


def wait_for(holds: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    """Wait until `holds()` while a process runs."""

    def look() -> Any:
        assert process.poll() is None, process.communicate()[1][-3_000:]
        return holds()

    waits.until(look, "the job does its work")


def crash(process: subprocess.Popen[str]) -> None:
    """Kill -9 a job, its Java and its workers, as a failing machine does: none of it goes on."""
    _signal_all(process, signal.SIGKILL)
    waits.finished(process)


def stand_still(process: subprocess.Popen[str]) -> None:
    """Pause a job, its Java and its workers until they are killed or resumed."""
    _signal_all(process, signal.SIGSTOP)


def go_on(process: subprocess.Popen[str]) -> None:
    _signal_all(process, signal.SIGCONT)


def _signal_all(process: subprocess.Popen[str], number: int) -> None:
    job = psutil.Process(process.pid)
    for each in (*job.children(recursive=True), job):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)
