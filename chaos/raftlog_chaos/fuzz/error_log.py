"""Errors that simulated nodes log: a world without faults should have none."""

from __future__ import annotations

import io
import json
from typing import Final

from raftlog.base.log import configure_log


class ErrorLog(io.TextIOBase):
    """A stream for the log's JSON lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        if text.strip():
            self.lines.append(text.strip())
        return len(text)

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        found, self.lines = self.lines, []
        return found


LOG: Final = ErrorLog()


def hear_errors() -> None:
    """Make all nodes of this process log only errors, to `LOG`. Call it once, before the first world."""
    configure_log(level="error", format="json", stream=LOG)


def last_of(line: str) -> str:
    """Return a log line's event, the last line of its exception, and the exception's place."""
    event = json.loads(line)
    trace = str(event.get("exception", "")).strip()
    location = trace.rpartition('  File "')[2].partition("\n")[0].replace('"', "").rpartition("/")[2]
    return f"{event.get('event')}: {trace.rpartition(chr(10))[2] or event} ({location})"
