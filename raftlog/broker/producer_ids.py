"""Producer ids for idempotent producers, in blocks from the controller.

The next block is fetched before it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raftlog.base.errors import CoordinatorLoadInProgress, KafkaError
from raftlog.metadata.broker_requests import ProducerIdBlock


class ProducerIds:
    """Hands out each id once. `allocate` gets a block that no other broker gets.

    The next block is fetched when half of a block is used, and retried with each id until it is there. So without a
    controller, half a block of producers can still start.
    """

    __slots__ = ("_allocate", "_end", "_fetching", "_half", "_next", "_spare")

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = self._half = self._end = 0
        self._spare: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Return a producer id. Raises CoordinatorLoadInProgress (retriable) when no block is available."""
        while self._next == self._end and not self._begin_spare():
            await asyncio.shield(self._fetch())
        return self.take()

    def take(self) -> int:
        """Return an id of the current block. Raises CoordinatorLoadInProgress if there is none, and starts a fetch."""
        if self._next == self._end and not self._begin_spare():
            self._fetch()
            raise CoordinatorLoadInProgress("no producer id is available yet")
        producer_id = self._next
        self._next += 1
        if self._next >= self._half and self._spare is None:
            self._fetch()
        return producer_id

    async def prepare(self) -> None:
        """Fetch a block in advance, so that producers can start while there is no controller."""
        if self._next == self._end and self._spare is None:
            try:
                await asyncio.shield(self._fetch())
            except CoordinatorLoadInProgress:
                return  # the first producer retries it

    def _begin_spare(self) -> bool:
        block, self._spare = self._spare, None
        if block is None:
            return False
        self._next, self._end = block.first_id, block.first_id + block.count
        self._half = block.first_id + block.count // 2
        return True

    def _fetch(self) -> asyncio.Task[None]:
        """Join the fetch that is under way, or begin a fetch."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_block())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    async def _fetch_block(self) -> None:
        try:
            self._spare = await self._allocate()
        except KafkaError as error:
            raise CoordinatorLoadInProgress(f"the controller allocated no producer ids: {error}") from error

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # if this block was needed, its caller has it; a block fetched ahead is retried
