"""Long work in slices, so that other requests get the event loop meanwhile.

All slices of a node wait in one queue (`TurnQueue`), a slice for each turn of the loop. An `await` of a completed
result does not yield to the loop; the functions of this module do.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

PARTS_AT_ONCE: Final = 100
"""Parts of a request (groups, members, keys; some 20 µs each) between two turns of the loop."""

SERVES_A_BROKER: Final = ContextVar("SERVES_A_BROKER", default=False)
"""Set in the tasks that answer another broker: replication does not queue behind the long work of many clients."""


def context_of_task(*, serves_a_broker: bool) -> Context:
    """Return a context for a task: a broker's fetch may wake clients' fetches, so the caller's context may be wrong."""
    context = copy_context()
    context.run(SERVES_A_BROKER.set, serves_a_broker)
    return context


class TurnQueue:
    """Slices of long work, one in each turn of the event loop, in the order of the requests.

    However many requests and tasks have long work, all together add one slice to a turn. While both wait, responses to
    brokers (SERVES_A_BROKER) have every other slice.
    """

    __slots__ = ("_later", "_next")

    def __init__(self) -> None:
        self._next = _Slices(of_brokers=True, waiting=deque())
        self._later = _Slices(of_brokers=False, waiting=deque())

    async def next(self) -> None:
        """Wait for a turn of the loop in which no other slice runs. The slice ends where the caller awaits again."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._next.waiting and not self._later.waiting:
            loop.call_soon(self._give, loop)
        mine = self._next if self._next.of_brokers is SERVES_A_BROKER.get() else self._later
        mine.waiting.append(turn)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        first, second = self._next, self._later
        self._next, self._later = second, first
        if not first.give():
            second.give()
        if first.waiting or second.waiting:
            loop.call_soon(self._give, loop)


class _Slices(NamedTuple):
    """The waiting slices, for brokers' work and for all other."""

    of_brokers: bool
    waiting: deque[asyncio.Future[None]]

    def give(self) -> bool:
        """Give the first waiter a slice; return whether there was a waiter."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():  # else the waiter was cancelled
                turn.set_result(None)
                return True
        return False


class Turns(Protocol):
    """The turns of the loop that long work gets."""

    async def next(self) -> None:
        """Wait for the next of them."""


class HasTurns(Protocol):
    """A node's ports, a node or a request."""

    @property
    def turns(self) -> Turns: ...


class TurnCounter:
    """Counts the parts of a request where these have parts themselves, and yields to the loop."""

    __slots__ = ("_at_once", "_done", "_turns")

    def __init__(self, of: HasTurns, at_once: int | None = None) -> None:
        self._turns = of.turns
        self._at_once = at_once or PARTS_AT_ONCE
        self._done = 0

    async def count(self, parts: int = 1) -> None:
        """Count parts that are done; wait for a turn of the loop after every `at_once`."""
        self._done += parts
        if self._done >= self._at_once:
            self._done = 0
            await self._turns.next()


async def each_part(
    of: HasTurns,
    parts: Iterable[Part],
    answer: Callable[[Part], Result | Awaitable[Result]],
    *,
    size_of: Callable[[Part], int] | None = None,
    at_once: int = PARTS_AT_ONCE,
) -> list[Result]:
    """Return what `answer` returns for each part, in their order, and yield to the loop between.

    `size_of` returns the size of a part, otherwise it is 1. `at_once`: their sizes between two turns.
    """
    done, results = 0, []
    for part in parts:
        result = answer(part)
        if result is not None and inspect.isawaitable(result):
            result = await result
        results.append(result)
        done += 1 if size_of is None else size_of(part)
        if done >= at_once:
            done = 0
            await of.turns.next()
    return results


class in_slices(Generic[Part]):
    """Yield the parts in an `async for`, and yield to the loop after every `at_once`, if there are more."""

    __slots__ = ("_at_once", "_left", "_parts", "_turns")

    def __init__(self, of: HasTurns, parts: Iterable[Part], at_once: int = PARTS_AT_ONCE) -> None:
        self._turns = of.turns
        self._parts = iter(parts)
        self._left = self._at_once = at_once

    def __aiter__(self) -> in_slices[Part]:
        return self

    async def __anext__(self) -> Part:
        try:
            part = next(self._parts)
        except StopIteration:
            raise StopAsyncIteration from None
        if not self._left:
            self._left = self._at_once
            await self._turns.next()
        self._left -= 1
        return part


def batches(parts: Sequence[Part], size: int = PARTS_AT_ONCE) -> Iterator[Sequence[Part]]:
    """Yield the parts as slices of so many."""
    return (parts[first : first + size] for first in range(0, len(parts), size))


async def run_steps(
    of: HasTurns, steps: Iterator[Any], *, at_once: int = 1, goes_on: Callable[[], bool] = lambda: True
) -> Any:
    """Run a generator to its end and return its value. Yield to the loop after every `at_once` steps.

    Return None as soon as it no longer `goes_on` after such a turn.
    """
    for number in count(1):
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if number % at_once == 0:
            await of.turns.next()
            if not goes_on():
                break
    return None
