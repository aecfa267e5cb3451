"""The bystanders' records are judged by the checkers of all histories; here each harm is shown to them once."""

from __future__ import annotations

from typing import Any

from raftlog_chaos.attacks.bystanders import faults_of
from raftlog_chaos.history import Op, Outcome, Recorder

KEY = "bystanders-0"


class Tale:
    """A history as bystanders leave it: a process per record, and one reader of all records."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._now = 0
        self._recorder = Recorder(self._tick, self.ops.append)

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def send(self, value: int, offset: int | None, outcome: Outcome = "ok") -> None:
        process = self._recorder.new_process()
        self._recorder.note(process, "invoke", "send", [["send", KEY, value]])
        self._recorder.note(process, outcome, "send", [["send", KEY, [offset, value]]])

    def read(self, *records: tuple[int, int]) -> None:
        process = self._recorder.new_process()
        found: list[Any] = [["poll", {KEY: [list(each) for each in records]}]]
        self._recorder.note(process, "invoke", "poll", [["poll"]])
        self._recorder.note(process, "ok", "poll", found)


def test_records_that_are_all_read_once_are_no_fault():
    """Also when the fate of a record is unknown."""
    tale = Tale()
    tale.send(0, 0)
    tale.send(1, None, "info")
    tale.send(2, 1)
    tale.read((0, 0), (1, 2))
    assert faults_of(tale.ops, {}) == []


def test_a_lost_record_is_a_fault():
    """It was acknowledged, later records were read, and it was not."""
    tale = Tale()
    for value in range(3):
        tale.send(value, value)
    tale.read((0, 0), (2, 2))
    assert any("lost" in each for each in faults_of(tale.ops, {}))


def test_a_doubled_record_is_a_fault():
    """One value at two offsets."""
    tale = Tale()
    tale.send(0, 0)
    tale.send(1, 2)
    tale.read((0, 0), (1, 0), (2, 1))
    assert any("duplicate" in each for each in faults_of(tale.ops, {}))


def test_an_end_that_was_not_reached_is_a_fault():
    """No record behind the last shows that it is lost; the last reading does."""
    tale = Tale()
    tale.send(0, 0)
    tale.send(1, 1)
    tale.read((0, 0))
    assert any("not read up to offset 2" in each for each in faults_of(tale.ops, {KEY: 2}))
