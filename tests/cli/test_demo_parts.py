"""Claims about the demo's parts: its text, its gaps, its verdict. The whole runs against a real cluster elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import pytest

from raftlog.cli.demo.command import Report
from raftlog.cli.demo.faults import FaultScript
from raftlog.cli.demo.stream import Stream
from raftlog.cli.demo.text import Text, find_text
from raftlog.cli.demo.verdict import Checker
from raftlog.testing.cluster import Cluster

TEXT = Text("t", [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", b"4")])
"""Records 0 and 2 have key a, 1 and 3 key b; record 4 is line 0 again."""


def verdict_of(*seen: tuple[int, int], sent: int = 4, failed: tuple[int, ...] = ()) -> dict[str, int]:
    """Return what is not zero in the verdict on records read back as (partition, number)."""
    checker = Checker(TEXT, sent)
    for partition, number in seen:
        checker.saw(partition, number, *TEXT.record(number))
    found = checker.conclude(failed).as_json()
    assert found.pop("read") == len(seen)
    return {name: count for name, count in found.items() if count}


def test_all_records_once_in_order_are_clean():
    """Order is per key, so partitions may come in any order."""
    checker = Checker(TEXT, 4)
    for partition, number in ((1, 1), (1, 3), (0, 0), (0, 2)):
        checker.saw(partition, number, *TEXT.record(number))
    assert checker.conclude(()).clean


def test_a_missing_record_is_lost_if_it_was_acknowledged():
    """acks=all promises exactly that."""
    assert verdict_of((0, 0), (1, 1), (0, 2)) == {"lost": 1}
    assert verdict_of((0, 0), (1, 1), (0, 2), failed=(3,)) == {"unacknowledged": 1}


def test_a_record_seen_twice_is_duplicated_and_nothing_else():
    """Idempotence promises once."""
    assert verdict_of((0, 0), (0, 0), (1, 1), (0, 2), (1, 3)) == {"duplicated": 1}


def test_an_older_record_of_the_same_key_after_a_newer_one_is_out_of_order():
    """Order holds within a key."""
    assert verdict_of((0, 2), (0, 0), (1, 1), (1, 3)) == {"out_of_order": 1}


def test_one_key_in_two_partitions_is_out_of_order():
    """Across partitions there is no order at all."""
    assert verdict_of((0, 0), (1, 2), (1, 1), (1, 3)) == {"out_of_order": 1}


@pytest.mark.parametrize(
    ("number", "key", "value"),
    [
        (0, b"a", b"1 "),
        (0, b"b", b"1"),
        (0, None, b"1"),
        (0, b"a", None),
        (9, b"b", b"2"),
        (-1, b"a", b"1"),
    ],
)
def test_a_changed_byte_a_changed_key_or_a_strange_number_is_different(number, key, value):
    """Every byte as in the file."""
    checker = Checker(TEXT, 4)
    checker.saw(0, number, key, value)
    assert checker.verdict.different == 1


def test_the_text_is_the_files_lines_and_repeats(tmp_path):
    """A short file serves a long run."""
    path = tmp_path / "f"
    path.write_bytes(b"one\r\ntwo\n\nlast")
    text = find_text(path)
    assert [value for _, value in text.records] == [b"one", b"two", b"", b"last"]
    assert text.record(5)[1] == b"two"


def test_an_empty_file_is_refused(tmp_path):
    """It has no records to send."""
    path = tmp_path / "f"
    path.write_bytes(b"")
    with pytest.raises(OSError, match=str(path)):
        find_text(path)


def test_there_is_real_text_on_every_machine():
    """Debian's package log, or the standard library's sources."""
    assert len(find_text(None).records) > 100


@pytest.mark.parametrize(("acks", "passed"), [("all", False), ("1", True), ("0", True)])
def test_only_acks_all_promises_that_nothing_is_lost(acks: str, passed: bool):
    """A lost record fails the run with acks=all; with 0 and 1 it is reported, and within their terms."""
    checker = Checker(TEXT, 4)
    for number in (0, 2, 3):
        checker.saw(number % 2, number, *TEXT.record(number))
    report = Report(
        nodes=3,
        text="t",
        ready_s=1.0,
        records=4,
        bytes=8,
        records_per_s=1.0,
        mb_per_s=1.0,
        outages=(),
        verdict=checker.conclude(()),
        acks=acks,
    )
    assert report.passed is passed
    assert "1 lost" in "\n".join(report.as_text())
    assert ("FAILED" in report.conclusion) is not passed


class Gaps:
    """A stream with these gaps, in seconds, by partition."""

    def __init__(self, *gaps_s: float) -> None:
        self._gaps_s = gaps_s

    def longest_gap_s(self, _began: float, _ended: float, partitions: Iterable[int] | None = None) -> float:
        return max(self._gaps_s[each] for each in partitions or range(len(self._gaps_s)))


class Described:
    """A cluster that describes three partitions."""

    def partitions(self, _topic: str) -> dict[int, None]:
        return dict.fromkeys(range(3))

    def wait_until(self, holds: Callable[[], bool], _what: str, **_more: object) -> None:
        assert holds()


def test_the_gap_of_what_a_paused_node_led_is_told_from_the_others():
    """The client's timeout, not the cluster's failover: five times longer than the ISR took to shrink."""
    said: list[str] = []
    script = FaultScript(
        cast(Cluster, Described()), cast(Stream, Gaps(1.0, 5.6, 0.9)), topic="demo", say=said.append
    )
    script._note("pause of node 2", 0.0, led=[1])
    assert [line.rpartition(": ")[2] for line in said] == ["1000 ms", "5600 ms"]
    assert "that it led (the client waits 5 s at most)" in said[1]
    script._note("kill -9 of node 1", 0.0)
    assert said[2:] == ["  longest gap between two acknowledgements of a partition: 5600 ms"]
    assert [each.gap_s for each in script.outages] == [5.6, 5.6]
