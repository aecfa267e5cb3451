"""Taking turns: a request of very many parts is answered a slice at a time, so that others get the loop meanwhile.

An `await` of what is answered at once does not give the loop its turn; this does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

Part = TypeVar("Part")

PARTS_AT_ONCE: Final = 200
"""Parts of a request (groups, members, keys; some 20 µs each) between two turns of the loop."""


async def in_turns(parts: Iterable[Part]) -> AsyncIterator[Part]:
    """Yield all parts, and give the loop its turn after every PARTS_AT_ONCE."""
    for number, part in enumerate(parts, 1):
        yield part
        if number % PARTS_AT_ONCE == 0:
            await asyncio.sleep(0)
