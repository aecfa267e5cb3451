"""Taking turns: a request of very many parts is answered a slice at a time, so that others get the loop meanwhile.

An `await` of what is answered at once does not give the loop its turn; this does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from raftlog.base.errors import KafkaError

Part = TypeVar("Part")

PARTS_AT_ONCE: Final = 200
"""Parts of a request (groups, members, keys; some 20 µs each) between two turns of the loop."""

PARTS_TOGETHER: Final = 1_000
"""Parts of a request that wait for one commit together; fewer than the machine lets wait."""


async def in_turns(parts: Iterable[Part]) -> AsyncIterator[Part]:
    """Yield all parts, and give the loop its turn after every PARTS_AT_ONCE."""
    for number, part in enumerate(parts, 1):
        yield part
        if number % PARTS_AT_ONCE == 0:
            await asyncio.sleep(0)


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
