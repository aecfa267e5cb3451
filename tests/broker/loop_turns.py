"""How many turns the loop has beside some work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def count_loop_turns(work: Awaitable[Any]) -> tuple[Any, int]:
    """The result of the work, and how many turns the loop had meanwhile."""
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    try:
        return await work, turns
    finally:
        watching.cancel()
