"""raftlog.tables.writer: a fault at every call of a table, and two planted bugs that the same scenario finds."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.tables.progress import Attempt, Fenced, Head, TableError
from raftlog.tables.table import Conflict, NoLogin, StoreFailed
from raftlog.tables.writer import ATTEMPTS, TableWriter, Unsettled
from tests.tables.exactly_once import check_every_fault
from tests.tables.in_memory import SOURCE, MemoryStore, MemoryTable, append_all, expected, no_wait


def _scenario(kind: type[MemoryTable] = MemoryTable) -> int:
    def new() -> Any:
        store = MemoryStore()
        return (lambda: kind(store)), (lambda: store.rows)

    return check_every_fault(new)


def test_each_row_is_in_the_table_once_whatever_happens_at_any_call():
    """A kill, a failure, a lost response, a rival and merged files, before and after each call."""
    assert _scenario() > 50


class Retrying(MemoryTable):
    """A planted bug: a commit that meets a conflict is tried again on the newest version, as libraries do."""

    def append(self, head: Head, attempt: Attempt, rows: Any) -> None:
        newest = self.load()
        assert newest is not None
        super().append(newest, attempt, rows)


class Apart(MemoryTable):
    """A planted bug: offsets are committed after the rows, as to a consumer group."""

    def append(self, head: Head, attempt: Attempt, rows: Any) -> None:
        middle = Attempt(attempt.epoch, attempt.start, head.offsets)
        super().append(head, middle, rows)
        if rows:
            self.was_killed_between()
        newest = self.load()
        assert newest is not None
        super().append(newest, attempt, [])

    def was_killed_between(self) -> None:
        if len(self.store.versions) == 6:  # the table, twice the epoch, twice the first rows, and these
            raise StoreFailed("the process ended here")


@pytest.mark.parametrize("bug", [Retrying, Apart])
def test_planted_bugs_are_found(bug: type[MemoryTable]):
    """Commits that are retried by the library, and offsets apart from the rows."""
    with pytest.raises((AssertionError, TableError)):
        _scenario(bug)


def test_the_older_of_two_writers_stops():
    """It names both epochs; the younger writer goes on."""
    store = MemoryStore()
    older = TableWriter(MemoryTable(store), SOURCE, no_wait)
    older.take_over({0: 0}, [])
    younger = TableWriter(MemoryTable(store), SOURCE, no_wait)
    younger.take_over({0: 0}, [])
    with pytest.raises(Fenced, match="epoch 2, this writer has 1"):
        older.append([(0, 0)], {0: 1})
    younger.append([(0, 0)], {0: 1})
    assert store.rows == [(0, 0)]


def test_the_start_of_a_partition_is_written_down_before_its_first_record():
    """A writer that began at the end and died must not begin at a later end."""
    store = MemoryStore()
    TableWriter(MemoryTable(store), SOURCE, no_wait).take_over({0: 7}, [])
    second = TableWriter(MemoryTable(store), SOURCE, no_wait)
    second.take_over({0: 9}, [])
    assert second.head.offsets == {0: 7}


class Down(MemoryTable):
    """A store that fails."""

    def append(self, head: Head, attempt: Attempt, rows: Any) -> None:
        raise StoreFailed("403 Forbidden")


def test_a_store_that_stays_down_ends_the_writer_with_its_words():
    """After pauses of some 13 seconds, in which the store may come back."""
    pauses: list[float] = []
    with pytest.raises(Unsettled, match="memory: 403 Forbidden"):
        TableWriter(Down(MemoryStore()), SOURCE, pauses.append).take_over({0: 0}, [])
    assert len(pauses) == ATTEMPTS  # of the attempts, and another after the table was made
    assert 10 < sum(pauses) < 15


class Forgetful(MemoryTable):
    """A store that acknowledges rows and keeps none."""

    def append(self, head: Head, attempt: Attempt, rows: Any) -> None:
        if not rows:
            super().append(head, attempt, rows)


def test_an_acknowledged_commit_that_is_not_there_is_an_error():
    """It is never tried again as if it had failed."""
    with pytest.raises(TableError, match="memory: an acknowledged"):
        append_all(Forgetful(MemoryStore()), {0: 1, 1: 0})


def test_two_creators_end_up_with_one_table():
    """The second finds the table of the first."""
    store = MemoryStore()
    table = MemoryTable(store)
    first = TableWriter(table, SOURCE, no_wait)

    class Late(MemoryTable):
        def create(self, source: Any) -> None:
            first.take_over({0: 0, 1: 0}, [])
            raise Conflict("there is a table")

    append_all(Late(store), {0: 1, 1: 1})
    assert sorted(store.rows) == expected({0: 1, 1: 1})


def test_a_login_that_never_was_is_not_tried_again_and_one_that_is_away_is():
    """Credentials of a machine may be away for a moment; without any, eight attempts are eight times the same."""
    asked = []

    class Locked(MemoryTable):
        is_locked = True

        def load(self) -> Head | None:
            asked.append(self.is_locked)
            if self.is_locked:
                raise NoLogin("set AWS_ACCESS_KEY_ID")
            return super().load()

    said: list[str] = []
    table = Locked(MemoryStore())
    writer = TableWriter(table, SOURCE, no_wait, said.append)
    with pytest.raises(Unsettled, match=r"^memory: set AWS_ACCESS_KEY_ID$"):
        writer.read_head()
    assert (len(asked), said) == (1, [])
    table.is_locked = False
    writer.take_over({0: 0}, [])  # type: ignore[arg-type] # no rows of Arrow
    table.is_locked = True
    with pytest.raises(Unsettled):
        writer.read_head()
    assert asked.count(True) == 1 + ATTEMPTS and len(said) == ATTEMPTS - 1
