"""`raftlog check`: read a history and print the verdict. Its help loads no checker, so that it answers at once.

`raftlog_chaos.history` says what each field means.
"""

from __future__ import annotations

import json as json_module
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftlog.cli import exits
from raftlog.cli.demo.screen import Screen

if TYPE_CHECKING:
    from raftlog_chaos.checkers import Verdict
    from raftlog_chaos.history import StoredHistory

LONG_BYTES = 20_000_000
"""From this size on progress is shown."""
TELL_BYTES = 1_000_000


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a history; - reads standard input")],
    *,
    json: Annotated[bool, typer.Option("--json", "-J", help="print JSON")] = False,
) -> int:
    """Judge a history of clients' operations: lost, duplicated, reordered, and all of Jepsen's Kafka anomalies.

    Exit code 0: valid. 1: anomalies that are not allowed. 2: the file can't be understood.

    A history is JSON lines in the order of real time. An operation has a line when it begins (type invoke), and a line
    when it ends (ok, fail, or info if unknown). A key is a topic-partition; a value is sent to a key only once.

    \b
    {"raftlog_history": 1, "allowed": []}
    {"index": 0, "time_ns": 1000, "process": 1, "type": "invoke",
     "f": "send", "value": [["send", "t0-0", 7]]}
    {..., "type": "ok", "f": "send", "value": [["send", "t0-0", [12, 7]]]}
    {..., "type": "invoke", "f": "poll", "value": [["poll"]]}
    {..., "type": "ok", "f": "poll", "value": [["poll", {"t0-0": [[12, 7]]}]]}

    \b
    send       to a key: a value; when it ended, its offset (or null) and value
    poll       when it ended, by key: offsets and values
    txn        several of both
    assign     keys; also subscribe; "seek_to_beginning": true rewinds them
    crash      nothing: the process is gone for good (info)

    \b
    Members of a share group join keys, acquire records and acknowledge them:
    {..., "type": "ok", "f": "acquire", "group": "g",
     "value": [["acquire", {"t0-0": [[12, 7, 1]]}]]}
    {..., "type": "ok", "f": "acknowledge", "group": "g",
     "value": [["accept", "t0-0", [12], "ok"]]}
    """
    from raftlog_chaos.history import HistoryError

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
    from raftlog_chaos.checkers import judge
    from raftlog_chaos.history import StoredHistory

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
        self._reported = 0
        screen.phase("MB checked", 2 * length // 1_000_000)

    def read(self, length: int) -> None:
        self._read += length
        if self._read - self._reported > TELL_BYTES:
            self._reported = self._read
            self._screen.progress(self._read // 1_000_000)
