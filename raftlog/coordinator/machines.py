"""The state machines in one partition of a coordinators' topic, by key: all write to the partition's one journal.

A machine is kept while it has state, or a decision that waits for commit. There are very many, so a heap knows which of
them wait for the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

from raftlog.base.errors import KafkaError
from raftlog.base.machine import Answer, Decision, Runner

Key = TypeVar("Key")
State = TypeVar("State")


class Machines(Generic[Key, State]):
    """`new(key)` makes the machine of a key without state. `exists(state)`: whether there is any to keep."""

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
