"""An administrator that reassigns partitions: other replicas, more or fewer of them, and sometimes a change of mind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.raw_client import (
    ALTER_REASSIGNMENTS,
    AWAY,
    LIST_REASSIGNMENTS,
    Client,
    shapes,
)

REQUEST_TIMED_OUT, INVALID_REPLICA_ASSIGNMENT, NOT_CONTROLLER, NO_REASSIGNMENT = 7, 39, 41, 85
UNCERTAIN: Final = frozenset({REQUEST_TIMED_OUT, NOT_CONTROLLER})
"""It is unknown whether, and when, it is done."""
LINGERS_S: Final = 3.0
"""A request without a response may still be carried out within this, virtual seconds."""
TIMEOUT_MS: Final = 1000
PAUSES_S: Final = (0.0, 0.02, 0.1, 0.3, 1.0)


class Mover:
    """`run` moves partitions of one topic among `nodes` until `stopping`."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        partitions: int,
        nodes: Sequence[int],
        history: Observations,
        chance: random.Random,
    ) -> None:
        self.client = client
        self.topic = topic
        self.history = history
        self.stopping = False
        self.done = False
        self.asked = self.accepted = 0
        self.certain_at = 0.0
        """From then on no earlier request can take effect."""
        self.replicas = range(1, 5)
        """How many replicas a partition may get."""
        self._partitions = partitions
        self._nodes = tuple(nodes)
        self._chance = chance

    async def run(self) -> None:
        while not self.stopping:
            index = self._chance.randrange(self._partitions)
            await self.alter(index, None if self._chance.random() < 0.2 else self.target())
            if self._chance.random() < 0.1:
                await self.ongoing()
            await asyncio.sleep(self._chance.choice(PAUSES_S))
        self.done = True

    def target(self) -> tuple[int, ...]:
        """Return any replicas, as many as allowed."""
        return tuple(self._chance.sample(self._nodes, self._chance.choice(self.replicas)))

    async def alter(self, index: int, replicas: tuple[int, ...] | None) -> int | None:
        """Request replicas, or None to cancel. Returns the code, None if the outcome is uncertain."""
        make = shapes(ALTER_REASSIGNMENTS)
        partition = make.ReassignablePartition(partition_index=index, replicas=replicas)
        request = make.AlterPartitionReassignmentsRequest(
            timeout=TIMEOUT_MS,
            allow_replication_factor_change=True,
            topics=(make.ReassignableTopic(name=self.topic, partitions=(partition,)),),
        )
        self.asked += 1
        try:
            response = await self.client.ask_any(ALTER_REASSIGNMENTS, request)
        except AWAY:
            self._doubt()
            return None
        code = int(response.error_code)
        if not code:
            code = int(response.responses[0].partitions[0].error_code)
        if code in UNCERTAIN:
            self._doubt()
            return None
        refusals = {NO_REASSIGNMENT, INVALID_REPLICA_ASSIGNMENT} if replicas is None else set()
        if code not in refusals | {0}:
            self.history.blame(f"reassignment of {index} to {replicas}: refused with error {code}")
        self.accepted += code == 0
        return code

    def _doubt(self) -> None:
        self.certain_at = asyncio.get_running_loop().time() + LINGERS_S

    async def surely(self, index: int, replicas: tuple[int, ...] | None) -> int:
        """Retry until there is an answer."""
        while True:
            code = await self.alter(index, replicas)
            if code is not None:
                return code
            await asyncio.sleep(0.1)

    async def ongoing(self) -> dict[int, tuple[int, ...]] | None:
        """Return the replicas of the partitions that are being moved; None without a response."""
        request = shapes(LIST_REASSIGNMENTS).ListPartitionReassignmentsRequest(
            timeout=TIMEOUT_MS, topics=None
        )
        try:
            response = await self.client.ask_any(LIST_REASSIGNMENTS, request)
        except AWAY:
            return None
        if int(response.error_code):
            return None
        return {
            partition.partition_index: tuple(partition.replicas)
            for topic in response.topics
            if topic.name == self.topic
            for partition in topic.partitions
        }
