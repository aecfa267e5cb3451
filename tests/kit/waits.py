"""Waits of tests: they last as long as anything progresses. Fixed limits remain where a client library needs them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, AnyStr, Final

from raftlog.testing.node_process import NodeProcess
from raftlog.testing.progress import Wait, patient, signs_of_descendants

PATIENCE_S = patient(60.0)
"""For one call of a client library, or one process that does one thing: it is to end, a slow machine or not."""
PATIENCE_MS = int(PATIENCE_S * 1000)

SHARE_OF_WAIT: Final = 0.1
MAX_PAUSE_S: Final = 0.25
"""A pause is this share of the time waited so far, at most so long."""


def until(holds: Callable[[], object], what: str, *, seen: Callable[[], object] = lambda: None) -> None:
    """Check the condition until it holds; fail once progress stops. `seen` returns the state for the error message.

    The pauses grow with the time waited, because each check costs the nodes of a cluster time, too.
    """
    wait, pause = waiting(what, seen=seen), Event()
    while not holds():
        pause.wait(max(wait.pause(), min(SHARE_OF_WAIT * wait.waited_s, MAX_PAUSE_S)))


def log_lines(node: NodeProcess, part: str) -> list[str]:
    """Return the lines of a node's log that contain `part`. Wait for the first, because a thread writes after the
    response.
    """
    found: list[str] = []

    def is_written() -> bool:
        whole = node.log_path.read_text().rpartition("\n")[0]
        found[:] = [line for line in whole.splitlines() if part in line]
        return bool(found)

    until(is_written, f"the log says {part!r}", seen=node.log_tail)
    return found


def poll_until(holds: Callable[[], object], what: str, *, seen: Callable[[], object] = lambda: None) -> None:
    """Do the same where the condition itself waits, as a client's poll does: it is asked again at once."""
    wait = waiting(what, seen=seen)
    while not holds():
        wait.pause()


def waiting(what: str, *, seen: Callable[[], object] = lambda: None) -> Wait:
    """Return a wait for a custom loop: its `pause` fails once progress stops."""
    return Wait(what, seen=lambda: _text(seen()), signs=signs_of_descendants)


def _text(found: object) -> str | None:
    """An object that changes is compared by how it looks."""
    return None if found is None else str(found)


def ended(process: subprocess.Popen[Any]) -> int:
    """Wait for a process to end; returns its exit code."""
    until(lambda: process.poll() is not None, f"{_name(process.args)} ends")
    return int(process.returncode)


def finished(process: subprocess.Popen[AnyStr], given: AnyStr | None = None) -> tuple[AnyStr, AnyStr]:
    """Write to a process and wait for it to end; return its output. A process that stalls is killed."""
    with ThreadPoolExecutor(1) as thread:
        printed = thread.submit(process.communicate, given)
        try:
            until(printed.done, f"{_name(process.args)} ends")
        except BaseException:
            process.kill()
            raise
        return printed.result()


def run(
    command: Sequence[str] | str, *, stdin: Any = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Do what subprocess.run does with captured output, for as long as the process does anything."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else pipe,
        stdout=pipe,
        stderr=pipe,
        shell=isinstance(command, str),
        **options,
    )
    out, err = finished(process, stdin)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _name(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else " ".join(map(str, arguments))
