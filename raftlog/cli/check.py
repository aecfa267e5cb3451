"""`raftlog check`: read a history and print the verdict. Exit code 0: valid, 1: anomalies, 2: not readable.

A history is JSON lines: what clients did and saw, one line when an operation begins and one when it ends, in the order
of real time. Anybody may write one.

    {"raftlog_history": 1, "workload": "mine", "allowed": ["lost-write"]}
    {"index": 0, "time_ns": 1000, "process": 1, "type": "invoke", "f": "send", "value": [["send", "t0-0", 7]]}
    {"index": 1, "time_ns": 9000, "process": 1, "type": "ok", "f": "send", "value": [["send", "t0-0", [12, 7]]]}
    {"index": 2, "time_ns": 9500, "process": 2, "type": "invoke", "f": "poll", "value": [["poll"]]}
    {"index": 3, "time_ns": 9900, "process": 2, "type": "ok", "f": "poll", "value": [["poll", {"t0-0": [[12, 7]]}]]}

`raftlog_chaos.history` says what each field means.
"""

from __future__ import annotations

import json as json_module
import shutil
import sys
import tempfile
from pathlib import Path

from raftlog.cli import exits
from raftlog.cli.demo_screen import Screen
from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import HistoryError, StoredHistory

LONG_BYTES = 20_000_000
"""From this size on progress is shown."""
TELL_BYTES = 1_000_000


def run(file: str, *, json: bool) -> int:
    """Judge a file ("-": standard input) and print the verdict; returns the exit code."""
    try:
        if file != "-":
            return _report(Path(file), json=json)
        with tempfile.TemporaryDirectory(prefix="raftlog-check-") as folder:
            copy = Path(folder) / "history"
            with copy.open("wb") as target:
                shutil.copyfileobj(sys.stdin.buffer, target)
            return _report(copy, json=json)
    except (HistoryError, OSError) as error:
        name = "standard input" if file == "-" else file
        reason = error.strerror or error if isinstance(error, OSError) else error
        print(f"raftlog: {name}: {reason}", file=sys.stderr)
        return exits.USAGE


def _report(path: Path, *, json: bool) -> int:
    length = path.stat().st_size
    with Screen(quiet=length < LONG_BYTES) as screen:
        progress = _Progress(screen, length)
        history = StoredHistory(path, on_read=progress.read)
        verdict = judge(history.header, history)
    if json:
        print(json_module.dumps({**verdict.as_json(), "cut_short": history.cut_short}, indent=2))
    else:
        _print_page(verdict, history)
    return 0 if verdict.valid else exits.FAILED


def _print_page(verdict: Verdict, history: StoredHistory) -> None:
    if history.cut_short:
        print("note      the last line is cut short, as of a run that was killed; it was left out")
    print(verdict.text())


class _Progress:
    """Shows how much was read, in megabytes of the passes that are always made."""

    def __init__(self, screen: Screen, length: int) -> None:
        self._screen = screen
        self._read = 0
        self._told = 0
        screen.phase("MB checked", 2 * length // 1_000_000)

    def read(self, length: int) -> None:
        self._read += length
        if self._read - self._told > TELL_BYTES:
            self._told = self._read
            self._screen.progress(self._read // 1_000_000)
