"""The common part of members of a group in the simulator, of whatever protocol: a coordinator to find, and commits."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from raftlog_chaos.workloads.raw_client import AWAY, FIND_COORDINATOR, OFFSET_COMMIT, Client, shapes

NOT_NOW: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: look for it again."""
BACKOFF_S: Final = 0.05


class Worker:
    """Acts until `stopping`. `reads`: topic and number of partitions; `instance`: its static id, or None."""

    def __init__(
        self,
        client: Client,
        reads: tuple[str, int],
        *,
        group_id: str,
        instance: str | None,
        chance: random.Random,
    ) -> None:
        self.client = client
        self.topic, self.partitions = reads
        self.group_id = group_id
        self.instance = instance
        self.stopping = False
        self.calm = False
        self.member_id = ""
        self.positions: dict[int, int] = {}
        self._former: tuple[int, dict[int, int]] | None = None
        """The generation or epoch before, and where it was."""
        self._chance = chance
        self._coordinator: tuple[str, int] | None = None

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._chance.expovariate(1 / 0.03))
            try:
                code = await (self._act() if self._coordinator else self._find())
            except AWAY:
                self._lose_coordinator()
                await asyncio.sleep(BACKOFF_S)
                continue
            if code:
                await self._take(code)

    async def _act(self) -> int:
        """Do one thing; returns an error code, or 0."""
        raise NotImplementedError

    async def _take(self, code: int) -> None:
        """React to an error code."""
        raise NotImplementedError

    async def _send_commit(self, epoch: int, index: int, offset: int, *, instance: str | None = None) -> int:
        make = shapes(OFFSET_COMMIT)
        partition = make.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = make.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            group_instance_id=instance,
            topics=(make.OffsetCommitRequestTopic(name=self.topic, partitions=(partition,)),),
        )
        response = await self._ask(OFFSET_COMMIT, request)
        return int(response.topics[0].partitions[0].error_code)

    def _lose_coordinator(self) -> None:
        self._coordinator = None

    async def _find(self) -> int:
        find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=self.group_id, key_type=0)
        found = await self.client.ask_any(FIND_COORDINATOR, find)
        if not int(found.error_code):
            self._coordinator = (found.host, found.port)
        return int(found.error_code)

    async def _ask(self, api_key: int, request: Any) -> Any:
        assert self._coordinator is not None
        return await self.client.ask(self._coordinator, api_key, request)
