"""A consumer that commits its offset in a group and reads it back: an acknowledged offset never goes back."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Client,
    shapes,
)

BACKOFF_S: Final = 0.05
NOT_NOW: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: look for it again."""


class Committer:
    """Alone in its group, without membership. It commits 1, 2, 3, … for one partition."""

    def __init__(
        self, client: Client, topic: str, index: int, *, history: Observations, chance: random.Random
    ) -> None:
        self.client = client
        self.where = (topic, index)
        self.group = f"group-{client.name}"
        self.history = history
        self.stopping = False
        self.attempted = 0
        self.acked = 0
        self._chance = chance
        self._coordinator: tuple[str, int] | None = None

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._chance.expovariate(1 / 0.01))
            try:
                if self._coordinator is None:
                    await self.find()
                    continue
                code = await (self.read() if self._chance.random() < 0.3 else self._commit())
                if code == 0:
                    continue
                if code not in NOT_NOW:
                    self.history.blame(f"{self.group}: refused with error {code}")
            except AWAY:
                pass
            self._coordinator = None
            await asyncio.sleep(BACKOFF_S)

    async def find(self) -> None:
        """Look for the coordinator."""
        make = shapes(FIND_COORDINATOR)
        found = await self.client.ask_any(FIND_COORDINATOR, make.FindCoordinatorRequest(key=self.group))
        if not int(found.error_code):
            self._coordinator = (found.host, found.port)

    async def _commit(self) -> int:
        topic, index = self.where
        make = shapes(OFFSET_COMMIT)
        self.attempted = offset = self.attempted + 1
        partition = make.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics = (make.OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
        response = await self._ask(
            OFFSET_COMMIT,
            make.OffsetCommitRequest(
                group_id=self.group, generation_id_or_member_epoch=-1, member_id="", topics=topics
            ),
        )
        code = int(response.topics[0].partitions[0].error_code)
        if code == 0:
            self.acked = offset
        return code

    async def read(self) -> int:
        """Read the committed offset and judge it; returns the error code. Raises AWAY's."""
        topic, index = self.where
        make = shapes(OFFSET_FETCH)
        topics = (make.OffsetFetchRequestTopic(name=topic, partition_indexes=(index,)),)
        least = self.acked
        response = await self._ask(OFFSET_FETCH, make.OffsetFetchRequest(group_id=self.group, topics=topics))
        code = int(response.error_code) or int(response.topics[0].partitions[0].error_code)
        if code == 0:
            committed = max(0, response.topics[0].partitions[0].committed_offset)
            if not least <= committed <= self.attempted:
                self.history.blame(f"{self.group}: {committed} is committed, {least} was acknowledged")
            self.acked = max(self.acked, committed)
        return code

    async def _ask(self, api_key: int, message: Any) -> Any:
        assert self._coordinator is not None
        return await self.client.ask(self._coordinator, api_key, message)
