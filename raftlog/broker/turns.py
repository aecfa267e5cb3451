"""Taking turns: a request of very many parts is answered a slice at a time, so that others get the loop meanwhile.

An `await` of what is answered at once does not give the loop its turn; this does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from raftlog.base.errors import KafkaError
from raftlog.base.memory import Account
from raftlog.protocol.codec import response_pieces

Part = TypeVar("Part")

PARTS_AT_ONCE: Final = 200
"""Parts of a request (groups, members, keys; some 20 µs each) between two turns of the loop."""

PARTS_TOGETHER: Final = 1_000
"""Parts of a request that wait for one commit together; fewer than the machine lets wait."""

BYTES_AT_ONCE: Final = 32 * 1024
"""Of an answer, encoded between two turns of the loop: of its smallest parts, some two thousand, a few ms."""

CALLS_AT_ONCE: Final = 100
"""Answers that leave between two turns of the loop, each with a task that encodes and sends it."""


class Queue:
    """Calls, some of them in each turn of the loop: a thousand members are told of their generation at once."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()

    def put(self, call: Callable[[], None]) -> None:
        """Make a call soon, after those that were put before."""
        self._calls.append(call)
        if len(self._calls) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        for _ in range(min(CALLS_AT_ONCE, len(self._calls))):
            self._calls[0]()
            self._calls.popleft()
        if self._calls:
            asyncio.get_running_loop().call_soon(self._run)


class Pace:
    """Says when the loop should have its turn, where the parts of a request have parts themselves."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, parts: int = 1) -> bool:
        """So many parts were done: whether they make PARTS_AT_ONCE with those since this was so last."""
        self._done += parts
        if self._done < PARTS_AT_ONCE:
            return False
        self._done = 0
        return True


async def in_turns(parts: Iterable[Part]) -> AsyncIterator[Part]:
    """Yield all parts, and give the loop its turn after every PARTS_AT_ONCE."""
    for number, part in enumerate(parts, 1):
        yield part
        if number % PARTS_AT_ONCE == 0:
            await asyncio.sleep(0)


async def encoded(
    api_key: int, version: int, correlation_id: int, message: Any, *, account: Account
) -> bytearray:
    """Return the whole frame of a response, as `encode_response` does, encoded in turns and counted meanwhile.

    This bounds how long encoding keeps the loop (BYTES_AT_ONCE, and the part that goes beyond), not how large an
    answer is: that is the business of whoever gives it. A part is an entity with its strings, and has no parts.
    """
    out, counted = bytearray(), 0
    try:
        for _ in response_pieces(api_key, version, correlation_id, message, out):
            if len(out) >= counted + BYTES_AT_ONCE:
                account.take(len(out) - counted)
                counted = len(out)
                await asyncio.sleep(0)
    finally:
        account.give(counted)
    return out


async def together(
    parts: Iterable[Part], begin: Callable[[Part], asyncio.Future[Any]]
) -> list[tuple[Part, Any]]:
    """Return all parts, each with what its future brought (a KafkaError as a value); many are begun before one ends."""
    ended: list[tuple[Part, Any]] = []
    rest = iter(parts)
    while batch := list(islice(rest, PARTS_TOGETHER)):
        begun: list[asyncio.Future[Any]] = []
        try:
            for number, part in enumerate(batch, 1):
                begun.append(begin(part))
                if number % PARTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            for part, future in zip(batch, begun, strict=True):
                ended.append((part, await _outcome(future)))
        finally:
            for future in begun:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # seen, if nobody else looks
    return ended


async def _outcome(future: asyncio.Future[Any]) -> Any:
    try:
        return await future
    except KafkaError as error:
        return error
