"""History files: written and read again, hostile files refused by line, files of killed runs tolerated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlog_chaos.history import (
    FORMAT,
    Header,
    HistoryError,
    HistoryFile,
    Op,
    Recorder,
    StoredHistory,
    read_history,
)
from tests.chaos.checkers.model import history

GOOD: dict[str, Any] = {
    "index": 0,
    "time_ns": 1,
    "process": 1,
    "type": "ok",
    "f": "send",
    "value": [["send", "t-0", [0, 1]]],
}


def stored(tmp_path: Path, *lines: Any, end: bytes = b"\n") -> StoredHistory:
    """A file of lines, given as bytes or to be made JSON."""
    path = tmp_path / "history"
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + end)
    return StoredHistory(path)


def test_a_history_is_read_as_it_was_written(tmp_path):
    """Header and all operations, as often as one likes."""
    ops = list(history(1))
    header = Header(place="sim", workload="log", seed=3, allowed=["unseen"])
    file = HistoryFile(tmp_path / "history", header)
    for op in ops:
        file.keep(op)
    file.close()
    read = StoredHistory(tmp_path / "history")
    assert read.header == header
    assert list(read) == ops
    assert list(read) == ops
    assert not read.cut_short


def test_a_header_of_defaults_is_still_seen_to_be_one(tmp_path):
    """Its format number is always written."""
    file = HistoryFile(tmp_path / "history", Header())
    file.close()
    assert (tmp_path / "history").read_text().startswith('{"raftlog_history":1')
    assert list(StoredHistory(tmp_path / "history")) == []


def test_a_header_is_optional(tmp_path):
    """Histories may come from anywhere."""
    read = stored(tmp_path, GOOD)
    assert read.header == Header()
    assert len(list(read)) == 1


def test_a_newer_format_is_refused(tmp_path):
    """It may mean something else."""
    with pytest.raises(HistoryError, match=f"line 1: raftlog_history is {FORMAT + 1}, known up to {FORMAT}"):
        stored(tmp_path, {"raftlog_history": FORMAT + 1})


def with_value(*micros: Any, f: str = "txn") -> dict[str, Any]:
    return {**GOOD, "f": f, "value": list(micros)}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"not json", "malformed"),
        (b'{"index": 1', "truncated"),
        (b'"a text"', "Expected `object`, got `str`"),
        (b"\xff\xfe{}", "malformed"),
        (b'{"index": 1, "error": "\xff"}', "utf-8|UTF-8"),
        (b"[" * 100_000, "Expected `object`, got `array`|recursion"),
        (b'{"value": ' + b"[" * 100_000, "recursion|truncated"),
        ({}, "missing required field"),
        ({**GOOD, "index": "1"}, r"Expected `int`, got `str` - at `\$.index`"),
        ({**GOOD, "type": "maybe"}, "Invalid enum value 'maybe'"),
        ({**GOOD, "f": "delete"}, "Invalid enum value 'delete'"),
        ({**GOOD, "time_ns": 2**80}, "out of range|no 64-bit number"),
        ({**GOOD, "process": 2**80}, "out of range|no 64-bit number"),
        ({**GOOD, "value": 7}, r"Expected `array \| null`, got `int`"),
        ({**GOOD, "f": "assign"}, r"Expected `str`, got `array` - at `\$\[0\]`"),
        (with_value("send"), r"Expected `array`, got `str` - at `\$\[0\]`"),
        (with_value([]), "Expected `array` of at least length 1"),
        (with_value(["peek", "t-0", 1]), "Invalid enum value 'peek'"),
        (with_value(["send", "t-0"]), "a send is"),
        (with_value(["send", 5, 1]), r"at `\$\[0\]\[1\]`"),
        (with_value(["send", {}, 1]), "a send is"),
        (with_value(["send", "t-0", [0, 1.5]]), "got `float`"),
        (with_value(["send", "t-0", True]), "got `bool`"),
        (with_value(["send", "t-0", [-1, 1]]), ">= 0"),
        (with_value(["send", "t-0", [2**63, 1]]), "<="),
        (with_value(["send", "t-0", [1]]), "length"),
        (with_value(["send", "t-0", [0, 1], 9]), "length"),
        (with_value(["poll", "t-0"]), "a poll is"),
        (with_value(["poll", {"t-0": [0, 1]}]), "Expected `array`, got `int`"),
        (with_value(["poll", {"t-0": [[None, 1]]}]), "Expected `int`, got `null`"),
        (with_value(["poll", {"t-0": [[0, {}]]}]), "got `object`"),
        (with_value(["poll"], f="send"), "a poll in a send"),
        (with_value(["send", "t-0", 1], f="poll"), "a send in a poll"),
    ],
)
def test_a_hostile_line_is_refused_with_its_number_and_what_is_wrong(tmp_path, line, fault):
    """Bad JSON, wrong types, numbers that fit nowhere: one clear error, never another exception."""
    with pytest.raises(HistoryError, match=rf"(?s)^line 3: .*({fault})"):
        list(stored(tmp_path, {"raftlog_history": 1}, GOOD, line, GOOD))


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_the_last_line_of_a_killed_run_may_be_cut_short(tmp_path, cut):
    """It is left out, and that is noted."""
    last = json.dumps({**GOOD, "index": 1}).encode()
    read = stored(tmp_path, GOOD, last[:cut], end=b"")
    assert [op.index for op in read] == [0]
    assert read.cut_short
    assert [op.index for op in read] == [0]


def test_a_last_line_without_an_end_that_is_whole_counts(tmp_path):
    """Some writers end no last line."""
    read = stored(tmp_path, GOOD, {**GOOD, "index": 1}, end=b"")
    assert [op.index for op in read] == [0, 1]
    assert not read.cut_short


def test_a_bad_line_in_the_middle_is_no_cut(tmp_path):
    """Only the last line may be."""
    with pytest.raises(HistoryError) as refused:
        list(stored(tmp_path, GOOD, b'{"index"', GOOD))
    assert refused.value.line == 2


def test_a_file_that_is_all_cut_is_refused(tmp_path):
    """One bad line is no history."""
    with pytest.raises(HistoryError) as refused:
        list(stored(tmp_path, b"garbage", end=b""))
    assert refused.value.line == 1


def test_an_empty_file_is_refused(tmp_path):
    """It records no operation."""
    with pytest.raises(HistoryError):
        stored(tmp_path, end=b"")


def test_a_line_without_bounds_is_refused(tmp_path, monkeypatch):
    """A gigabyte without a line's end is not read into memory."""
    monkeypatch.setattr("raftlog_chaos.history.LINE_BYTES", 1 << 20)
    with pytest.raises(HistoryError, match="line 2: longer than 1 MiB"):
        list(stored(tmp_path, GOOD, b" " * (2 << 20)))


def test_empty_lines_count_for_nothing(tmp_path):
    """But they keep their numbers."""
    with pytest.raises(HistoryError) as refused:
        list(stored(tmp_path, GOOD, b"", GOOD, b"x", GOOD))
    assert refused.value.line == 4


def test_a_file_that_grows_while_it_is_judged_ends_where_it_ended(tmp_path):
    """The passes over it must see the same lines."""
    read = stored(tmp_path, GOOD, GOOD)
    assert len(list(read)) == 2
    with read.path.open("ab") as file:
        file.write(json.dumps(GOOD).encode() + b"\n")
    assert len(list(read)) == 2


def test_lines_are_read_from_anything_that_yields_them():
    """Text or bytes, with a header or without."""
    header, ops = read_history(['{"raftlog_history": 1, "seed": 5}', json.dumps(GOOD), ""])
    assert header.seed == 5
    assert len(list(ops)) == 1
    header, ops = read_history([json.dumps(GOOD).encode()])
    assert header == Header()
    assert len(list(ops)) == 1
    with pytest.raises(HistoryError) as refused:
        list(read_history([json.dumps(GOOD), "x"])[1])
    assert refused.value.line == 2


def test_a_recorder_numbers_and_times_lines():
    """Index by index, by the clock it was given, and no process id twice."""
    kept: list[Op] = []
    ticks = iter(range(100, 200))
    recorder = Recorder(lambda: next(ticks), kept.append)
    first, second = recorder.new_process(), recorder.new_process()
    recorder.note(first, "invoke", "poll", [["poll"]])
    recorder.note(second, "info", "crash", None, error="gone")
    assert first != second
    assert [(op.index, op.time_ns) for op in kept] == [(0, 100), (1, 101)]
    assert kept[1].error == "gone"
