"""The book of what guests said: what counts as acknowledged, what goes on, and what is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog_chaos.history import Op
from raftlog_chaos.power_cut.book import Book
from raftlog_chaos.power_cut.words import (
    Committed,
    Found,
    Listener,
    Logged,
    Mark,
    Reached,
    Said,
    Word,
    encode,
)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path, file_system="ext4", seed=1)
    yield made
    made.close()


class Guest:
    """Says operations of one load, one process after the other."""

    def __init__(self, book: Book, load: str = "plain") -> None:
        self.book = book
        self.load = load
        self.index = 0

    def says(self, process: int, kind: str, f: str, value: list[Any]) -> None:
        op = Op(index=self.index, time_ns=self.index, process=process, type=kind, f=f, value=value)  # type: ignore[arg-type]
        self.index += 1
        self.book.take(Said(self.load, op))

    def sends(self, process: int, key: str, value: int, offset: int) -> None:
        self.says(process, "invoke", "send", [["send", key, value]])
        self.says(process, "ok", "send", [["send", key, [offset, value]]])

    def reads(self, process: int, key: str, *pairs: tuple[int, int]) -> None:
        self.says(process, "invoke", "poll", [["poll"]])
        self.says(process, "ok", "poll", [["poll", {key: [list(each) for each in pairs]}]])


def test_what_is_said_arrives_as_it_was_but_for_a_line_that_the_cut_tore() -> None:
    """A torn line was never said: its operation has not ended for anybody."""
    words: list[Word] = [
        Said("plain", Op(index=0, time_ns=1, process=1, type="invoke", f="send", value=[["send", "a-0", 1]])),
        Committed("group", {"a-0": 3}),
        Reached("ready", 1.5),
        Mark("segment-rolled"),
        Found("node 1 ended"),
        Logged(2, '{"level": "warning"}'),
    ]
    lines = b"".join(map(encode, words))
    listener = Listener()
    heard = [each for cut in range(len(lines) - 1) for each in listener.take(lines[cut : cut + 1])]
    assert heard == words[:-1]
    assert list(listener.take(lines[-1:])) == words[-1:]


def test_the_next_boot_goes_on_where_the_last_one_was_cut(book: Book) -> None:
    """No value is sent twice, also where its send was never answered; what was answered must be read."""
    guest = Guest(book)
    guest.sends(1, "plain0-0", 1, 10)
    guest.says(2, "invoke", "send", [["send", "plain0-0", 2], ["send", "plain0-1", 1]])
    guest.says(3, "invoke", "send", [["send", "plain0-1", 2], ["send", "plain0-0", 3]])
    guest.says(3, "info", "send", [["send", "plain0-1", [4, 2]], ["send", "plain0-0", [None, 3]]])
    state = book.loads["plain"]
    assert state.written == {"plain0-0": 3, "plain0-1": 2}
    assert state.acked == {"plain0-0": 10, "plain0-1": 4}
    assert (state.processes, state.lines, book.last_ns, book.acked) == (3, 5, 4, 2)


def test_only_a_transaction_that_was_committed_counts(book: Book) -> None:
    """The offsets returned by its sends are worthless before that."""
    guest = Guest(book, "transactions")
    for outcome in ("fail", "info"):
        guest.says(1, "invoke", "txn", [["send", "transactions0-0", 1 + (outcome == "info")]])
        guest.says(1, outcome, "txn", [["send", "transactions0-0", [5, 1 + (outcome == "info")]]])
    assert book.loads["transactions"].acked == {}
    guest.says(1, "invoke", "txn", [["send", "transactions0-0", 3]])
    guest.says(1, "ok", "txn", [["send", "transactions0-0", [7, 3]]])
    assert book.loads["transactions"].acked == {"transactions0-0": 7}


def test_a_record_that_the_next_boot_does_not_read_is_found(book: Book) -> None:
    """By the shipped checkers, whatever the guest itself thinks of it."""
    guest = Guest(book)
    for value in (1, 2, 3):
        guest.sends(1, "plain0-0", value, value - 1)
    guest.reads(9, "plain0-0", (0, 1), (1, 2), (2, 3))
    assert not book.judge()["plain"].faults()
    guest.sends(1, "plain0-0", 4, 3)
    guest.says(10, "invoke", "assign", ["plain0-0"])
    guest.says(10, "ok", "assign", ["plain0-0"])
    guest.reads(10, "plain0-0", (0, 1), (1, 3))
    faults = " ".join(book.judge()["plain"].faults())
    assert "unseen" in faults and "inconsistent-offsets" in faults and "int-poll-skip" in faults


def test_errors_in_a_nodes_log_are_found_and_warnings_are_kept(book: Book, tmp_path: Path) -> None:
    """A recovery may warn; it must not fail."""
    book.take(Logged(1, '{"event": "torn_tail", "level": "warning", "timestamp": "2026-01-01T00:00:00Z"}'))
    assert not book.take_found()
    book.take(Logged(2, '{"event": "node_failed", "level": "error", "timestamp": "2026-01-01T00:00:00Z"}'))
    book.take(Found("group g: the commit of a-0 at 3 was acknowledged, and is gone"))
    found = book.take_found()
    assert "node 2" in found[0] and "is gone" in found[1] and not book.take_found()
    book.close()
    assert (tmp_path / "nodes.log").read_text().count("\n") == 2


def test_commits_are_kept_by_group_and_key(book: Book) -> None:
    """The last acknowledged commit counts."""
    book.take(Committed("one", {"a-0": 1, "a-1": 5}))
    book.take(Committed("one", {"a-0": 3}))
    book.take(Committed("two", {"a-0": 2}))
    assert book.committed == {"one": {"a-0": 3, "a-1": 5}, "two": {"a-0": 2}} and book.commits == 3
