"""The table of dead letters of a topic: records with values that do not fit, as bytes, with the reason.

Dead letters are appended before the rows of the same offsets. After a crash between both, this table says which records
are dead letters, whatever the registry says by then. So each record is in one of the two tables. This table follows the
epoch of the topic's table, so an older writer cannot take it over.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.tables.columns import DEAD, Rows
from raftlog.tables.misfits import Decided
from raftlog.tables.progress import Head, Offsets, Source, TableError
from raftlog.tables.table import Table
from raftlog.tables.writer import TableWriter


class DeadLetters:
    """The dead letters of one topic. The table is made with the first of them. All methods raise TableError."""

    def __init__(
        self, table: Table, source: Source, wait: Callable[[float], None], say: Callable[[str], None]
    ) -> None:
        self._table = table
        self._writer = TableWriter(table, source, wait, say)
        self._begun = False

    @property
    def where(self) -> str:
        """The place of the table."""
        return self._table.where

    def begin(self, main: Head) -> Decided:
        """Take the table over if there is one, and return what it has beyond the topic's table."""
        if not self._writer.exists():
            return Decided()
        ahead = self._take_over(main)
        if not ahead:
            return Decided()
        found = self._writer.read(("partition", "offset"), min(main.offsets.get(each, 0) for each in ahead))
        places = zip(*(found.column(each).to_pylist() for each in ("partition", "offset")), strict=True)
        return Decided(ahead, frozenset(places))

    def _take_over(self, main: Head) -> Offsets:
        """Take the table over, and return its offsets where they are beyond those of the topic's table."""
        self._writer.take_over(main.offsets, DEAD.empty_table(), epoch=main.epoch)
        self._begun = True
        there = self._writer.head.offsets
        return {
            partition: offset
            for partition, offset in there.items()
            if offset > main.offsets.get(partition, 0)
        }

    def append(self, rows: Rows, main: Head, end: Offsets) -> int:
        """Append the dead letters of some rows; return how many. `main`: the head of the topic's table."""
        count = rows.dead_count
        if not count:
            return 0
        if not self._begun and self._take_over(main):
            raise TableError(
                f"{self._table.where}: an earlier writer appended dead letters meanwhile; start again"
            )
        there = self._writer.head.offsets
        letters = rows.take_dead()
        moved = {partition: max(offset, there.get(partition, 0)) for partition, offset in end.items()}
        self._writer.append(letters, moved)
        return count
