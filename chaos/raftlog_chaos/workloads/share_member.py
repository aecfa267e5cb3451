"""A member of a share group that reads one partition, with raw requests (KIP-932).

It keeps only the epoch of its share session. Callers choose which records to acknowledge, and check the responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.workloads.raw_client import FIND_COORDINATOR, Client, shapes

HEARTBEAT, FETCH, ACKNOWLEDGE = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

NEWEST: Final = 2
"""The newest version of ShareFetch and ShareAcknowledge."""

ALTER_OFFSETS: Final = ApiKey.ALTER_SHARE_GROUP_OFFSETS

FINAL_EPOCH: Final = -1
LEAVES: Final = -1
"""The member epoch in a heartbeat that leaves the group."""

RETRY_S: Final = 0.5

RENEWS: Final = {"is_renew_ack": True, "max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
"""Fields of a ShareFetch that only renews locks and fetches no records."""

Ack = tuple[int, int, list[int]]
"""An acknowledgement batch: first offset, last offset, types."""


class ShareMember:
    """A member. Its requests go to the partition's leader. `topic_id` must be known before the first request."""

    def __init__(
        self, client: Client, name: str, where: tuple[str, int], *, group: str, version: int = NEWEST
    ) -> None:
        self.client = client
        self.name = name
        self.topic, self.index = where
        self.group = group
        self.version = version
        self.epoch = 0
        """The share session's epoch in the next request."""
        self.member_epoch = 0
        """The member's epoch in the next heartbeat, from the response to the last."""
        self._topic_id: UUID | None = None

    @property
    def topic_id(self) -> UUID | None:
        return self.client.topic_ids.get(self.topic)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the partition's leader. Raises LookupError while no leader is known."""
        return self.client.address_of(self.topic, self.index)

    async def join(self) -> None:
        """Send heartbeats to the group's coordinator until this member has its partition."""
        self.member_epoch = 0
        while True:
            if await self.beat():
                return
            await asyncio.sleep(RETRY_S)

    async def beat(self) -> bool:
        """Send a heartbeat, if the group's coordinator is known; return whether the response assigns partitions."""
        make = request_builders(HEARTBEAT, 1)
        message = make.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.member_epoch,
            subscribed_topic_names=(self.topic,) if self.member_epoch == 0 else None,
        )
        if (where := await self._coordinator()) is None:
            return False
        answer = await self.client.ask(where, HEARTBEAT, message, version=1)
        if answer.error_code:
            return False
        self.member_epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    async def leave(self) -> None:
        """Leave the group with a heartbeat to its coordinator. The share session with the leader stays open."""
        make = request_builders(HEARTBEAT, 1)
        message = make.ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=LEAVES, subscribed_topic_names=None
        )
        await self._ask_coordinator(HEARTBEAT, message, 1, lambda answer: int(answer.error_code))

    async def alter_offset(self, start_offset: int) -> None:
        """Have a group without members begin at this offset."""
        make = request_builders(ALTER_OFFSETS, 0)
        partition = make.AlterShareGroupOffsetsRequestPartition(
            partition_index=self.index, start_offset=start_offset
        )
        topic = make.AlterShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=(partition,))
        message = make.AlterShareGroupOffsetsRequest(group_id=self.group, topics=(topic,))

        def code_of(answer: Any) -> int:
            parts = [each for it in answer.responses for each in it.partitions]
            return int(answer.error_code or next((each.error_code for each in parts if each.error_code), 0))

        await self._ask_coordinator(ALTER_OFFSETS, message, 0, code_of)

    async def _ask_coordinator(
        self, api_key: int, message: Any, version: int, code_of: Callable[[Any], int]
    ) -> None:
        """Ask the group's coordinator until it agrees."""
        while True:
            where = await self._coordinator()
            if (
                where is not None
                and code_of(await self.client.ask(where, api_key, message, version=version)) == 0
            ):
                return
            await asyncio.sleep(RETRY_S)

    async def _coordinator(self) -> tuple[str, int] | None:
        """Return where the group's coordinator is, None if it is not known."""
        find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=self.group, key_type=0)
        where = await self.client.ask_any(FIND_COORDINATOR, find)
        return None if where.error_code else (where.host, where.port)

    async def take(self) -> set[int]:
        """Fetch and accept records; return the offsets that were acquired, and accepted."""
        answer = await self.fetch(max_records=100)
        assert answer.error_code == 0, answer
        acquired = [
            (each.first_offset, each.last_offset)
            for topic in answer.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]
        if acquired:
            await self.acknowledge(*((first, last, [ACCEPT]) for first, last in acquired))
        return {offset for first, last in acquired for offset in range(first, last + 1)}

    async def ask(self, api_key: int, message: Any) -> Any:
        """Send a request to the leader that this member knows."""
        return await self.client.ask(self.address, api_key, message, version=self.version)

    async def fetch(self, *acks: Ack, epoch: int | None = None, **fields: Any) -> Any:
        """Fetch with acknowledgements; return the response."""
        message = self.fetch_request(*acks, epoch=self.epoch if epoch is None else epoch, **fields)
        return self._counted(await self.ask(FETCH, message), epoch)

    def fetch_request(self, *acks: Ack, epoch: int, **fields: Any) -> Any:
        """Return a request for three records of the partition, with some fields changed."""
        make = request_builders(FETCH, self.version)
        partition = make.FetchPartition(
            partition_index=self.index, acknowledgement_batches=_batches(make, acks)
        )
        topic = make.FetchTopic(topic_id=self.topic_id, partitions=(partition,))
        if self.version > 1:
            fields = {"share_acquire_mode": 1} | fields
        usual = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 3, "batch_size": 3}
        given = usual | {"group_id": self.group, "topics": (topic,)} | fields
        return make.ShareFetchRequest(member_id=self.name, share_session_epoch=epoch, **given)

    async def acknowledge(self, *acks: Ack, epoch: int | None = None, **fields: Any) -> Any:
        """Acknowledge; return the response."""
        make = request_builders(ACKNOWLEDGE, self.version)
        partition = make.AcknowledgePartition(
            partition_index=self.index, acknowledgement_batches=_batches(make, acks)
        )
        topic = make.AcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,))
        message = make.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=(topic,),
            **fields,
        )
        return self._counted(await self.ask(ACKNOWLEDGE, message), epoch)

    def _counted(self, answer: Any, epoch: int | None) -> Any:
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer


def _batches(make: Any, acks: Iterable[Ack]) -> tuple[Any, ...]:
    return tuple(
        make.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
        for first, last, types in acks
    )
