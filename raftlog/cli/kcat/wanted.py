"""The form of what `raftlog consume` prints, and when it stops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from raftlog.cli.exits import Failure
from raftlog.cli.kcat.format import Print, Record


@dataclass(frozen=True, slots=True)
class Wanted:
    """The format of the output, and when to stop: `count` 0 and `idle_s` 0 are without end."""

    show: Print
    count: int
    exit_at_end: bool
    stop_ms: int | None
    idle_s: float
    unbuffered: bool
    carry_on: bool
    verbose: bool
    quiet: bool
    decode: Callable[[Record], Record] | None = None
    """Decodes keys and values before they are printed."""

    def print_record(self, record: Record) -> None:
        """Write one record to standard output. Raise Failure, which names the record, if the format does not fit."""
        try:
            sys.stdout.buffer.write(self.show(record if self.decode is None else self.decode(record)))
        except Failure as failure:
            where = f"{record.topic.decode()} {record.partition} at offset {record.offset}"
            raise Failure(f"{where}: {failure}") from None
        if self.unbuffered:
            sys.stdout.buffer.flush()
