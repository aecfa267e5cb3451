"""A member of the consumer protocol that visits a classic group, at the worst time, and leaves soon.

It comes after some member got a revocation that it may not have carried out yet. Then the outcome of a change of the
group's type depends on more than the assignments.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog_chaos.workloads.consumer_worker import JOINING, ConsumerWorker

GOES_RATE: Final = 0.1
COMES_WITHIN_S: Final = 3.0
HURRIES_S: Final = (0.0, 0.01, 0.1)
"""Up to how long it takes to come."""


class Visitor(ConsumerWorker):
    """It stays when all is to be calm."""

    async def _act(self) -> int:
        if not self.calm:
            if self.epoch == JOINING:
                await self._wait_for_a_bad_time()
            elif self._chance.random() < GOES_RATE:
                return await self._leave()
        return await super()._act()

    async def _wait_for_a_bad_time(self) -> None:
        self.book.took_one.clear()
        try:
            async with asyncio.timeout(self._chance.uniform(0.0, COMES_WITHIN_S)):
                await self.book.took_one.wait()
            await asyncio.sleep(self._chance.uniform(0.0, self._chance.choice(HURRIES_S)))
        except TimeoutError:
            pass
