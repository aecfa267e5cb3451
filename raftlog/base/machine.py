"""The one law of everything replicated: decide on the tail, apply, append, answer at commit.

A `Runner` holds the tail of one replicated state machine: the committed state plus everything appended since. Deciding
only reads. Applying is the only way the state changes. Replies *and* effects leave when the journal's committed offset
has passed the records that they depend on. Reads wait too, so that a lost tail never contradicts a response.

Ordering law: a decision's records are applied before they are appended (what cannot be applied is never written)
and adopted as the tail after. Effects and answers leave in the order in which the decisions were made.

The runner does not know journals, time or connections. Calls come from one thread; `append` may commit before it
returns, and an answer may call `handle` again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeVar

from raftlog.base.errors import KafkaError, NotController, RequestTimedOut

Key = TypeVar("Key")
State = TypeVar("State")

MAX_PARKED: Final = 10_000
"""Decisions that may wait for commit at a time; more are refused with RequestTimedOut, without an effect, and can be
retried.
"""

Answer = Callable[[Any], None]
"""Receives the reply, or a KafkaError; called exactly once."""


class Decision(NamedTuple):
    """A decision: records to append, and the reply and effects that leave once they are committed."""

    records: tuple[Any, ...] = ()
    reply: Any = None
    effects: tuple[Any, ...] = ()


class _Parked(NamedTuple):
    end_offset: int
    answer: Answer
    outcome: Any
    effects: tuple[Any, ...]


class Runner(Generic[State]):
    """Runs one state machine over one journal.

    `apply(state, records)` returns the state after all records of one decision; it must not fail for records that a
    `decide` returned. `append(records)` returns the journal's end offset after them, or raises KafkaError without an
    append. `perform(effect)` is called for each effect of a committed decision.
    """

    __slots__ = (
        "_append",
        "_apply",
        "_committed_offset",
        "_end_offset",
        "_parked",
        "_perform",
        "_releasing",
        "_stood_down",
        "tail",
    )

    def __init__(
        self,
        state: State,
        apply: Callable[[State, tuple[Any, ...]], State],
        append: Callable[[tuple[Any, ...]], int],
        *,
        perform: Callable[[Any], None] | None = None,
        offset: int = 0,
    ) -> None:
        self.tail = state
        self._apply = apply
        self._append = append
        self._perform = perform
        self._end_offset = offset
        self._committed_offset = offset
        self._parked: deque[_Parked] | None = None
        """Made when a decision waits: there are very many machines, and most have none under way."""
        self._stood_down: KafkaError | None = None
        self._releasing = False

    @property
    def end_offset(self) -> int:
        """The journal's end after the last decision that was appended."""
        return self._end_offset

    @property
    def parked(self) -> int:
        """How many decisions wait for commit."""
        return len(self._parked) if self._parked else 0

    @property
    def waits_for(self) -> int | None:
        """Return the journal offset that the first waiting decision waits for; None if none waits."""
        return self._parked[0].end_offset if self._parked else None

    def handle(self, decide: Callable[[State], Decision], answer: Answer) -> None:
        """Decide on the tail and answer once that is committed; never raises KafkaError, answers it."""
        if self._stood_down is None and self.parked < MAX_PARKED:
            outcome, effects = self._run(decide)
            if self._stood_down is None:
                self._park(_Parked(self._end_offset, answer, outcome, effects))
                self._release()
                return
        answer(self._stood_down or RequestTimedOut("too many changes wait for a majority"))

    def _park(self, waiting: _Parked) -> None:
        if self._parked is None:
            self._parked = deque()
        self._parked.append(waiting)

    def _run(self, decide: Callable[[State], Decision]) -> tuple[Any, tuple[Any, ...]]:
        # A commit that comes while `append` runs must wait: the tail is not adopted yet.
        releasing, self._releasing = self._releasing, True
        try:
            decision = decide(self.tail)
            if decision.records:
                # Apply, append, adopt. Records that cannot be applied are never written. A state is never seen if the
                # journal refused its records: the next decision starts from the unchanged tail.
                state = self._apply(self.tail, decision.records)
                end_offset = self._append(decision.records)
                self.tail, self._end_offset = state, end_offset
        except KafkaError as error:
            return error, ()
        finally:
            self._releasing = releasing
        return decision.reply, decision.effects

    def take(self, records: tuple[Any, ...], end_offset: int) -> None:
        """Apply records that are in the journal already, where one batch concerns several machines."""
        self.tail = self._apply(self.tail, records)
        self._end_offset = end_offset
        self._park(_Parked(end_offset, ignore_reply, None, ()))

    def share(self, state: State, offset: int) -> None:
        """Adopt the committed state as the tail if no decision is under way.

        The two are equal then. A state that shares its parts with other copies is cheaper to keep and to compare.
        """
        if offset == self._end_offset and not self._releasing:
            self.tail = state

    def committed(self, end_offset: int) -> None:
        """Answer the decisions that waited until everything below `end_offset` is committed. It never goes
        backwards.
        """
        self._committed_offset = max(self._committed_offset, end_offset)
        self._release()

    def _release(self) -> None:
        if self._releasing:
            return
        self._releasing = True
        try:
            while self._parked and self._parked[0].end_offset <= self._committed_offset:
                parked = self._parked.popleft()
                for effect in parked.effects:
                    assert self._perform is not None, "a decision has effects, but no function performs them"
                    self._perform(effect)
                parked.answer(parked.outcome)
        finally:
            self._releasing = False
            self._parked = self._parked or None

    def stand_down(self, error: KafkaError | None = None) -> None:
        """Answer all waiting and further decisions until `reset` with `error`; the tail is void."""
        self._stood_down = error or NotController()
        parked, self._parked = self._parked, None
        for each in parked or ():
            each.answer(self._stood_down)

    def reset(self, state: State, offset: int) -> None:
        """Begin anew from a committed state at `offset`; no decision may be parked."""
        assert not self._parked, "stand down before beginning anew"
        self.tail = state
        self._end_offset = self._committed_offset = offset
        self._stood_down = None


class Machines(Generic[Key, State]):
    """The state machines of one journal, by key, for a journal with very many of them.

    A machine is kept while it has state, or a decision that waits for commit. A heap has the machines that wait.
    `new(key)` makes the machine of a key without state. `exists(state)`: whether there is any to keep.
    """

    __slots__ = ("_exists", "_new", "_runners", "_waiting", "committed_offset", "lost")

    def __init__(self, new: Callable[[Key], Runner[State]], exists: Callable[[State], bool]) -> None:
        self._new = new
        self._exists = exists
        self._runners: dict[Key, Runner[State]] = {}
        self._waiting: list[tuple[int, Key]] = []
        """A heap of waiting machines: journal offset, key."""
        self.committed_offset = 0
        self.lost: KafkaError | None = None
        """The answer to all requests, once the partition is lost."""

    def __len__(self) -> int:
        return len(self._runners)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._runners)

    def __contains__(self, key: Key) -> bool:
        return key in self._runners

    def get(self, key: Key) -> Runner[State] | None:
        return self._runners.get(key)

    def find(self, key: Key) -> Runner[State]:
        """Return the machine of a key, or a new machine that `settle` keeps once it has state."""
        return self._runners.get(key) or self._new(key)

    def load(self, key: Key, runner: Runner[State]) -> None:
        """Keep a machine whose state is committed."""
        self._runners[key] = runner

    def decide(self, key: Key, decide: Callable[[State], Decision], answer: Answer) -> None:
        """Run a decision about a key, release what is committed and note what is not."""
        if self.lost is not None:
            answer(self.lost)
            return
        runner = self.find(key)
        runner.handle(decide, answer)
        self.settle(key, runner)

    def settle(self, key: Key, runner: Runner[State]) -> None:
        """Release what is committed of a machine after a decision; keep it if it waits or has state."""
        runner.committed(self.committed_offset)
        if runner.parked:
            heappush(self._waiting, (runner.end_offset, key))
        if runner.parked or self._exists(runner.tail):
            self._runners[key] = runner
        else:
            self._runners.pop(key, None)

    def committed(self, end_offset: int) -> None:
        """Answer and perform what waited for the high watermark `end_offset`."""
        self.committed_offset = end_offset
        while self._waiting and self._waiting[0][0] <= end_offset:
            key = heappop(self._waiting)[1]
            runner = self._runners.get(key)
            if runner is not None:
                runner.committed(end_offset)
                if not runner.parked:
                    self.settle(key, runner)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting and further requests with `error`: the partition is lost."""
        self.lost = error
        for runner in self._runners.values():
            runner.stand_down(error)


def ignore_reply(reply: object) -> None:
    """Drop a reply or error that no caller waits for, such as of a decision that a timer retries if it fails."""
