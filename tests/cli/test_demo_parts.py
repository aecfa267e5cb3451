"""Claims about the demo's parts: its text, its gaps, its verdict. The whole runs against a real cluster elsewhere."""

from __future__ import annotations

import pytest

from raftlog.cli.demo.command import Report
from raftlog.cli.demo.text import Text, find_text
from raftlog.cli.demo.verdict import Checker

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
    with pytest.raises(OSError, match="no text"):
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
