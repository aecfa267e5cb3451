"""This broker's replica of `_schemas`, as a schema registry uses it: follows what is committed, appends as its leader.

Only the leader of the partition writes, and only where its reader has arrived. `append` names the offset that its
records must get, and the leader epoch in which they were decided on. So each record is decided on exactly the records
before it, although other clients may write to the topic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import NONE, KafkaError, LeaderNotAvailable, NotLeaderOrFollower, PolicyViolation
from raftlog.base.schema_log import NO_REPLICA, SchemaLogBounds
from raftlog.base.types import NO_BROKER, NO_EPOCH, SCHEMAS_TOPIC
from raftlog.broker.auto_create import create_missing
from raftlog.broker.controller_requests import wait_for_image
from raftlog.broker.coordination.shard import ALL_ACKS, read_committed
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.partition_lookup import is_doubtful
from raftlog.metadata.image import MetadataImage
from raftlog.records.batch import build_batch, new_record

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

INDEX: Final = 0
READ_BYTES: Final = 256 * 1024


class SchemaLog:
    """The replica may come, go, and change its role; `changed` returns when it may have."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._moved = asyncio.Event()
        self._parked_on: Partition | None = None
        broker.replicas.role_listeners.append(self._moved.set)

    def exists(self) -> bool:
        """Return whether the topic is there."""
        return SCHEMAS_TOPIC in self._broker.image().topics

    async def create(self) -> None:
        """Create the topic unless it exists. Raises KafkaError."""
        codes = await create_missing(self._broker, (SCHEMAS_TOPIC,))
        if codes[SCHEMAS_TOPIC] != NONE:
            raise LeaderNotAvailable(f"the topic {SCHEMAS_TOPIC} could not be created yet")
        await wait_for_image(self._broker, _has_leader)

    def _replica(self) -> Partition | None:
        try:
            return self._broker.replicas.get(SCHEMAS_TOPIC, INDEX)
        except KafkaError:
            return None

    def bounds(self) -> SchemaLogBounds:
        """Return where the replica begins and ends; without a `topic_id` this broker has none."""
        partition = self._replica()
        if partition is None:
            return NO_REPLICA
        state = self._broker.image().partition(SCHEMAS_TOPIC, INDEX)
        leads = partition.is_leader and state is not None and not is_doubtful(self._broker, state)
        return SchemaLogBounds(
            partition.topic_id,
            partition.log_start_offset,
            partition.high_watermark,
            partition.log_end_offset,
            partition.leader_epoch if leads else NO_EPOCH,
        )

    def special_offset(self, timestamp: int) -> int:
        """Return the offset for a special timestamp of ListOffsets, as the leader. Raises KafkaError."""
        partition = self._broker.replicas.get(SCHEMAS_TOPIC, INDEX)
        if self.bounds().leader_epoch == NO_EPOCH:
            raise NotLeaderOrFollower(f"this broker does not lead {SCHEMAS_TOPIC}")
        found = partition.offset_for_timestamp(timestamp, read_committed=False)
        assert found is not None, "a log has a start and an end"
        return found[0]

    async def read(self, offset: int) -> bytes:
        """Return committed batches from `offset` on. Raises KafkaError."""
        partition = self._broker.replicas.get(SCHEMAS_TOPIC, INDEX)
        return await read_committed(
            self._broker.env, partition, offset, leader_only=False, max_bytes=READ_BYTES
        )

    def append(
        self, records: tuple[tuple[bytes, bytes | None], ...], *, at: int, leader_epoch: int, now_ms: int
    ) -> int:
        """Append records as one batch whose first offset is `at`. Return the end offset, which is not committed yet.

        Raise NotLeaderOrFollower, without an append, if the log ends elsewhere or the epoch is over.
        """
        partition = self._broker.replicas.get(SCHEMAS_TOPIC, INDEX)
        bounds = self.bounds()
        if leader_epoch == NO_EPOCH or bounds.leader_epoch != leader_epoch or bounds.log_end_offset != at:
            raise NotLeaderOrFollower(f"another writer appended to {SCHEMAS_TOPIC}, or leads it")
        if "compact" not in partition.config.cleanup_policy:
            raise PolicyViolation(f"the topic {SCHEMAS_TOPIC} must be compacted: set cleanup.policy=compact")
        batch = memoryview(build_batch([new_record(key, value, timestamp=now_ms) for key, value in records]))
        return partition.append_produced(batch, acks=ALL_ACKS, now_ms=now_ms, max_timestamp=now_ms).end_offset

    async def changed(self) -> None:
        """Return when the high watermark has moved, or the replica has changed its role, since the last call."""
        partition = self._replica()
        if partition is not self._parked_on:
            self.close()
            self._parked_on = partition
            if partition is not None:
                partition.park(self)
                self._moved.set()  # it may have moved before
        await self._moved.wait()
        self._moved.clear()

    def wake(self, partition: Partition) -> None:
        """Note that the high watermark moved, or that the replica's role changed."""
        self._moved.set()

    def close(self) -> None:
        """Stop following the replica."""
        if self._parked_on is not None:
            self._parked_on.unpark(self)
            self._parked_on = None


def _has_leader(image: MetadataImage) -> bool:
    state = image.partition(SCHEMAS_TOPIC, INDEX)
    return state is not None and state.leader != NO_BROKER
