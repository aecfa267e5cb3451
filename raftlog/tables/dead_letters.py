"""The table of dead letters of a topic: records with values that do not fit, as bytes, with the reason.

Dead letters are appended before the rows of the same offsets. After a crash between both, the rows are appended again
and dead letters of offsets that the table has are left out. The table follows the epoch of the topic's table, so an
older writer cannot take it over.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.tables.columns import DEAD, Rows
from raftlog.tables.progress import Head, Offsets, Source
from raftlog.tables.table import Table
from raftlog.tables.writer import TableWriter


class DeadLetters:
    """The dead letters of one topic. The table is made with the first of them. All methods raise TableError."""

    def __init__(self, table: Table, source: Source, wait: Callable[[float], None]) -> None:
        self._writer = TableWriter(table, source, wait)
        self._begun = False

    def append(self, rows: Rows, main: Head, end: Offsets) -> int:
        """Append the dead letters of some rows; return how many. `main`: the head of the topic's table."""
        count = rows.dead_count
        if not count:
            return 0
        if not self._begun:
            self._writer.take_over(main.offsets, DEAD.empty_table(), epoch=main.epoch)
            self._begun = True
        there = self._writer.head.offsets
        letters = rows.take_dead(there)
        moved = {partition: max(offset, there.get(partition, 0)) for partition, offset in end.items()}
        self._writer.append(letters, moved)
        return count
