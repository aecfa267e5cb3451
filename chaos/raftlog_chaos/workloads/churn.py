"""Topics that are created, written to and deleted, often with the name of a deleted topic."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from raftlog.records.batch import build_batch, new_record
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.producer import RETRIABLE, produce_request
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    CREATE_TOPICS,
    DELETE_TOPICS,
    Client,
    create_topic_request,
    shapes,
)

PRODUCE: Final = 0
NAMES: Final = 3
"""The number of topic names."""
UNKNOWN_TOPIC, EXISTS, INVALID_REPLICATION_FACTOR, NOT_CONTROLLER = 3, 36, 38, 41
NOT_NOW: Final = RETRIABLE | {INVALID_REPLICATION_FACTOR, NOT_CONTROLLER}
"""Retriable errors. INVALID_REPLICATION_FACTOR: too few brokers are alive."""


class Churn:
    """Creates and deletes topics until `stopping`, then deletes all. Once `done`, no topic of `names` may exist.

    It repeats the deletions until `over`, since a CreateTopics without a response may still take effect.
    """

    def __init__(self, client: Client, *, history: Observations, chance: random.Random) -> None:
        self.client = client
        self.history = history
        self.stopping = False
        self.done = False
        self.over = False
        self.names: Sequence[str] = tuple(f"churn{number}" for number in range(NAMES))
        self.deleted = 0
        self._chance = chance

    async def run(self) -> None:
        while not self.stopping:
            name = self._chance.choice(self.names)
            if await self._create(name) and self._chance.random() < 0.7:
                await self._write(name)
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 0.5)))
            if self._chance.random() < 0.7:
                await self._delete(name)
        while not self.over:
            gone = [await self._delete(name) for name in self.names]
            self.done = all(gone)
            await asyncio.sleep(0.05)

    async def _create(self, name: str) -> bool:
        request = create_topic_request(name, partitions=self._chance.choice((1, 3)))
        return await self._change(CREATE_TOPICS, request, name, EXISTS)

    async def _delete(self, name: str) -> bool:
        make = shapes(DELETE_TOPICS)
        wanted = make.DeleteTopicState(name=name, topic_id=None)
        request = make.DeleteTopicsRequest(topics=(wanted,), timeout=1000)
        deleted = await self._change(DELETE_TOPICS, request, name, UNKNOWN_TOPIC)
        self.deleted += deleted
        return deleted

    async def _change(self, api_key: int, request: Any, name: str, done_before: int) -> bool:
        """Send the request once. Return whether the change is made, by this request or an earlier request."""
        try:
            response = await self.client.ask_any(api_key, request)
        except AWAY:
            return False
        answers = response.topics if api_key == CREATE_TOPICS else response.responses
        code = int(answers[0].error_code)
        if code not in NOT_NOW | {0, done_before}:
            self.history.blame(f"topic {name}: refused with error {code}")
        return code in (0, done_before)

    async def _write(self, name: str) -> None:
        """Write one record with acks=1; its outcome is not checked."""
        try:
            await self.client.refresh(name)
            wire, _ = await self.client.leader_wire(name, 0)
            batch = build_batch([new_record(None, b"passing", timestamp=-1)])
            await self.client.answer(wire, wire.send(PRODUCE, produce_request((name, 0), batch, acks=1)))
        except AWAY:
            pass
        finally:
            self.client.leaders.pop(
                (name, 0), None
            )  # leader epochs of the next topic of this name begin again
