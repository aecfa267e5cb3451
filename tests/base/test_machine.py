"""The runner: decide on the tail, append, apply, answer at commit (Architecture §3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raftlog.base import machine
from raftlog.base.errors import InvalidRequest, KafkaError, NotController, RequestTimedOut
from raftlog.base.machine import Decision, Runner
from tests.kit.examples import examples

State = tuple[Any, ...]


class Journal:
    """A journal in a list. `on_append` runs while a batch is being appended."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.error: KafkaError | None = None
        self.on_append: Callable[[], None] = lambda: None

    def append(self, records: tuple[Any, ...]) -> int:
        if self.error is not None:
            raise self.error
        self.records += records
        self.on_append()
        return len(self.records)


def make() -> tuple[Runner[State], Journal, list[Any]]:
    """Return a runner with the tuple of all records as its state, its journal, and its responses and effects."""
    journal, out = Journal(), []
    runner: Runner[State] = Runner(
        (),
        lambda state, records: state + records,
        journal.append,
        perform=lambda effect: out.append(("effect", effect)),
    )
    return runner, journal, out


def write(*records: Any, reply: Any = None, effects: tuple[Any, ...] = ()) -> Callable[[State], Decision]:
    return lambda state: Decision(records, reply, effects)


def refuse(state: State) -> Decision:
    raise InvalidRequest("no")


def test_a_committed_state_is_shared_only_while_nothing_is_under_way() -> None:
    """The tail may be another, equal object, but never lacks records appended since."""
    runner, _, out = make()
    runner.handle(write("a"), out.append)
    committed = ("a", *())
    runner.share(committed, 1)
    assert runner.tail is committed
    runner.handle(write("b"), out.append)
    runner.share(committed, 1)
    assert runner.tail == ("a", "b")


def test_replies_and_effects_wait_for_commit() -> None:
    """Neither reply nor effect leaves before the records are committed; effects leave first."""
    runner, _, out = make()
    runner.handle(write("a", "b", reply=1, effects=("x",)), out.append)
    assert runner.tail == ("a", "b")
    runner.committed(1)
    assert out == []
    runner.committed(2)
    assert out == [("effect", "x"), 1]


def test_reads_wait_for_what_they_saw() -> None:
    """A decision without records, and an error, leave only when the tail that they read is committed."""
    runner, _, out = make()
    runner.handle(write("a", reply="wrote"), out.append)
    runner.handle(lambda state: Decision(reply=state), out.append)
    runner.handle(refuse, lambda error: out.append(type(error)))
    assert out == []
    runner.committed(1)
    assert out == ["wrote", ("a",), InvalidRequest]


def test_reads_of_committed_state_leave_at_once() -> None:
    """With no uncommitted records there is no reason to wait."""
    runner, _, out = make()
    runner.handle(write(reply="read"), out.append)
    assert out == ["read"]


def test_refused_append_changes_nothing() -> None:
    """An append that raises is answered with its error, and the tail stays."""
    runner, journal, out = make()
    journal.error = NotController()
    runner.handle(write("a", reply=1, effects=("x",)), out.append)
    assert out == [journal.error]
    assert runner.tail == ()
    assert runner.end_offset == 0


def test_records_that_cannot_be_applied_are_never_appended() -> None:
    """Applying comes first: a failing apply leaves no trace in the journal."""
    journal = Journal()

    def broken(state: State, records: State) -> State:
        raise AssertionError("invariant")

    runner: Runner[State] = Runner((), broken, journal.append)
    with pytest.raises(AssertionError):
        runner.handle(write("a"), lambda outcome: None)
    assert journal.records == []


def test_standing_down_answers_everything_once_and_drops_effects() -> None:
    """For a lost tail the response is the error; later commits of the same offsets produce no response."""
    runner, _, out = make()
    error = NotController()
    runner.handle(write("a", reply=1, effects=("x",)), out.append)
    runner.stand_down(error)
    runner.handle(write("b", reply=2), out.append)
    runner.committed(2)
    assert out == [error, error]
    runner.reset(("z",), 7)
    runner.handle(lambda state: Decision(reply=state), out.append)
    assert out[2:] == [("z",)]


def test_commit_during_append_waits_for_the_tail() -> None:
    """A journal that commits before append returns (one voter) still sees answers after the tail is adopted."""
    runner, journal, out = make()
    journal.on_append = lambda: runner.committed(len(journal.records))
    runner.handle(write("a", reply=1), lambda reply: out.append((reply, runner.tail)))
    assert out == [(1, ("a",))]


def test_earlier_answer_during_append_decides_on_the_whole_tail() -> None:
    """An answer released by a commit inside append may decide anew, and sees what was just appended."""
    runner, journal, out = make()

    def read_again(reply: Any) -> None:
        runner.handle(lambda state: Decision(reply=state), out.append)

    runner.handle(write("a"), read_again)
    journal.on_append = lambda: runner.committed(1)
    runner.handle(write("b", reply="b"), out.append)
    runner.committed(2)
    assert out == ["b", ("a", "b")]


def test_standing_down_during_append_answers_the_one_under_way() -> None:
    """A journal that loses leadership during an append still answers every request."""
    runner, journal, out = make()
    error = NotController()
    journal.on_append = lambda: runner.stand_down(error)
    runner.handle(write("a", reply=1), out.append)
    assert out == [error]


def test_decisions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past MAX_PARKED the response is a retriable error and no record is appended."""
    monkeypatch.setattr(machine, "MAX_PARKED", 2)
    runner, journal, out = make()
    for name in "abc":
        runner.handle(write(name, reply=name), out.append)
    assert [type(each) for each in out] == [RequestTimedOut]
    assert out[0].retriable
    assert journal.records == ["a", "b"]


class RunnerMachine(RuleBasedStateMachine):
    """Random decisions, commits and lost tails, against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.runner, self.journal, self.out = make()
        self.made: list[tuple[int, int]] = []  # (number, end offset it rests on)
        self.answered: list[int] = []
        self.failed: list[int] = []
        self.committed = 0
        self.number = 0

    def _answer(self, number: int) -> Callable[[Any], None]:
        def answer(outcome: Any) -> None:
            if isinstance(outcome, NotController):
                self.failed.append(number)
                return
            rests_on = dict(self.made)[number]
            assert rests_on <= self.committed, "answered before it was committed"
            self.answered.append(number)

        return answer

    @rule(records=st.integers(0, 3), fails=st.booleans())
    def decide(self, records: int, fails: bool) -> None:
        self.number += 1
        number = self.number
        added = 0 if fails else records
        self.made.append((number, len(self.journal.records) + added))
        decide = refuse if fails else write(*[number] * records, reply=number)
        self.runner.handle(decide, self._answer(number))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed, len(self.journal.records)))
        self.runner.committed(self.committed)

    @precondition(lambda self: len(self.journal.records) > self.committed)
    @rule(data=st.data())
    def lose_tail(self, data: st.DataObject) -> None:
        self.runner.stand_down(NotController())
        kept = data.draw(st.integers(self.committed, len(self.journal.records)))
        del self.journal.records[kept:]
        self.committed = kept
        self.runner.reset(tuple(self.journal.records), kept)

    @invariant()
    def tail_is_the_journal(self) -> None:
        assert self.runner.tail == tuple(self.journal.records)

    @invariant()
    def everything_is_answered_once_and_in_order(self) -> None:
        waiting = {number for number, end in self.made} - set(self.answered) - set(self.failed)
        assert self.runner.parked == len(waiting)
        assert self.answered == sorted(self.answered)
        assert len(self.answered) + len(self.failed) + len(waiting) == self.number


TestRunner = RunnerMachine.TestCase
TestRunner.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
