"""A table in memory, with the contract of the backends, and faults at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

from raftlog.tables.progress import Attempt, Head, Source
from raftlog.tables.table import Conflict, StoreFailed, Table
from raftlog.tables.writer import TableWriter

SOURCE = Source("cluster", "orders", "8d4c3e1e-0000-4000-8000-000000000001")
PARTITIONS = (0, 1)

Row = tuple[int, int]
"""Partition and offset."""


class MemoryStore:
    """The versions of one table: a head and all rows of each."""

    def __init__(self) -> None:
        self.versions: list[tuple[Head, list[Row]]] = []

    @property
    def rows(self) -> list[Row]:
        return self.versions[-1][1] if self.versions else []


class MemoryTable:
    """A writer's view of a store."""

    where = asked = "memory"

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def load(self) -> Head | None:
        return self.store.versions[-1][0] if self.store.versions else None

    def create(self, source: Source) -> None:
        if self.store.versions:
            raise Conflict("there is a table")
        self._add(Head("0", source), [])

    def append(self, head: Head, attempt: Attempt, rows: Any) -> None:
        if head != self.load():
            raise Conflict("there is a newer version")
        self._add(
            Head(self._next(), head.source, attempt.epoch, attempt.end, attempt.leader_epochs),
            self.store.rows + list(rows),
        )

    def tidy(self) -> dict[str, Any]:
        newest, rows = self.store.versions[-1]
        self._add(replace(newest, version=self._next()), rows)
        return {}

    def _next(self) -> str:
        return str(len(self.store.versions))

    def _add(self, head: Head, rows: list[Row]) -> None:
        self.store.versions.append((head, rows))


class Killed(BaseException):
    """The writer's process ended here."""


class Fault(Enum):
    """What happens at a call of a table, before or after it has taken effect."""

    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    FAILED_BEFORE = "failed before"
    FAILED_AFTER = "its response was lost"
    RIVAL_BEFORE = "a rival took over before"
    RIVAL_AFTER = "a rival took over after"
    TIDIED_BEFORE = "files were merged before"


class Faulty:
    """A table with a fault at its nth call, counted from 0 over all methods. `rival` runs a second writer."""

    def __init__(self, table: Table, at: int, fault: Fault, rival: Callable[[], None]) -> None:
        self._table, self._at, self._fault, self._rival = table, at, fault, rival
        self.calls = 0

    @property
    def where(self) -> str:
        return self._table.where

    def load(self) -> Head | None:
        return self._call(self._table.load)

    def create(self, source: Source) -> None:
        self._call(self._table.create, source)

    def append(self, head: Head, attempt: Attempt, rows: Any) -> None:
        self._call(self._table.append, head, attempt, rows)

    def tidy(self) -> Any:
        return self._table.tidy()

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.calls - 1 != self._at:
            return method(*arguments)
        match self._fault:
            case Fault.KILLED_BEFORE:
                raise Killed
            case Fault.FAILED_BEFORE:
                raise StoreFailed("the store is down")
            case Fault.RIVAL_BEFORE:
                self._rival()
            case Fault.TIDIED_BEFORE if method.__name__ == "append":
                self._table.tidy()
        found = method(*arguments)
        match self._fault:
            case Fault.KILLED_AFTER:
                raise Killed
            case Fault.FAILED_AFTER:
                raise StoreFailed("timeout")
            case Fault.RIVAL_AFTER:
                self._rival()
        return found


def no_wait(_seconds: float) -> None:
    """Pause for no time."""


def append_all(table: Table, ends: dict[int, int], rows: Callable[[list[Row]], Any] = list) -> None:
    """Take a table over and append what it lacks of a topic with these ends, two offsets of a partition per commit."""
    writer = TableWriter(table, SOURCE, no_wait)
    writer.take_over(dict.fromkeys(PARTITIONS, 0), rows([]))
    while writer.head.offsets != ends:
        chunk = list(_next_chunk(writer.head.offsets, ends))
        end = {partition: offset + 1 for partition, offset in chunk}
        writer.append(rows(chunk), end)


def _next_chunk(offsets: Any, ends: dict[int, int]) -> Iterator[Row]:
    for partition, offset in offsets.items():
        yield from ((partition, each) for each in range(offset, min(offset + 2, ends[partition])))


def expected(ends: dict[int, int]) -> list[Row]:
    """Return each row once, in order."""
    return [(partition, offset) for partition, end in sorted(ends.items()) for offset in range(end)]
