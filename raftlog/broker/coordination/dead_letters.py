"""Writes the dead letters of share groups to their dead-letter topics (KIP-1191).

The topic belongs to the group's config. It must exist, have `errors.deadletterqueue.group.enable`, and begin with the
prefix that the brokers' config demands. The letters of a share partition all go to one partition of it, by the number
of the source partition, as in Apache Kafka. A batch is an idempotent producer's, so producing it again has no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from raftlog.base.config import TopicConfig, topic_config
from raftlog.base.errors import (
    NONE,
    CorruptMessage,
    InvalidConfig,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    MessageTooLarge,
    OffsetNotAvailable,
    UnknownTopicId,
    from_code,
)
from raftlog.base.memory import Account
from raftlog.base.types import NO_BROKER
from raftlog.broker.auto_create import create_topics
from raftlog.broker.coordination.share_group_configs import share_config
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.walked_records import check_schemas, walk_records
from raftlog.broker.partition_lookup import locate
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.metadata.controller_api import NewTopic
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import (
    ProducerIdAndSequence,
    Record,
    build_batch,
    iter_records,
    new_record,
    skip_headers,
)
from raftlog.records.header import HEADER_BYTES, BatchHeader, iter_headers
from raftlog.records.validation import NeedsStepwiseValidation
from raftlog.sharing.dead_letter import DeadLetters

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.log import Log

VERSION: Final = 9
"""A version of Produce that names topics: an unknown id from another broker would not mean that a topic is deleted."""

EPOCH: Final = 0
ALL_ACKS: Final = -1
TIMEOUT_S: Final = 10.0

MOST: Final = 100
"""Dead letters of a batch. A copied record shares the limit of the batch with the others, so then it has one."""

LETTER_BYTES: Final = 350
"""Upper bound of a dead letter's size without a copy, beside the names of topic and group."""

BY_HAND: Final = b"Offset archived by an operator."
REJECTED: Final = b"Offset rejected by client."
OUT_OF_DELIVERIES: Final = b"Offset delivery count exceeded the threshold."


T = TypeVar("T")
ReadBatch = Callable[[BatchHeader, memoryview, range], Iterable[tuple[int, T]]]
"""(header, whole batch, offsets in question) → offsets with what was read."""


class LetterBox(NamedTuple):
    """The partition of a dead-letter topic that gets the letters of a share partition."""

    topic_id: UUID
    partition: int


class DeadLetterWriter:
    """All failures are KafkaErrors, after which the same letters may be produced again."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker

    async def find_box(self, key: SharePartitionKey) -> LetterBox:
        """Return where new dead letters belong. Raises InvalidConfig and errors that may pass."""
        name = share_config(self._broker, key.group_id, key.topic_id).errors_deadletterqueue_topic_name
        config = self._broker.config
        if not name:
            raise InvalidConfig(f"the group {key.group_id} has no dead-letter topic any more")
        if not name.startswith(config.errors_deadletterqueue_topic_name_prefix):
            prefix = config.errors_deadletterqueue_topic_name_prefix
            raise InvalidConfig(f"the dead-letter topic {name} must begin with {prefix}")
        if name not in self._broker.image().topics:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise InvalidConfig(f"the dead-letter topic {name} does not exist")
            configs: dict[str, str | None] = {
                "errors.deadletterqueue.group.enable": "true",
                "message.timestamp.type": "CreateTime",
            }
            codes = await create_topics(self._broker, [NewTopic(name, configs=configs)])
            if codes[name] != NONE:
                raise from_code(codes[name], f"the dead-letter topic {name} cannot be created")
        topic = self._broker.image().topics.get(name)
        if topic is None:
            raise LeaderNotAvailable(f"the dead-letter topic {name} is not there yet")
        if not self._topic_config(name).errors_deadletterqueue_group_enable:
            raise InvalidConfig(f"errors.deadletterqueue.group.enable is false for the topic {name}")
        return LetterBox(topic.topic_id, key.partition % len(topic.partitions))

    async def new_producer_id(self) -> int:
        assert self._broker.producer_ids is not None, "the broker server provides it"
        return await self._broker.producer_ids.next()

    def most(self, key: SharePartitionKey) -> int:
        """Return how many letters a new batch may have, so that the dead-letter topic takes them."""
        config = share_config(self._broker, key.group_id)
        if config.errors_deadletterqueue_copy_record_enable:
            return 1
        room = self._topic_config(config.errors_deadletterqueue_topic_name).max_message_bytes - HEADER_BYTES
        return max(1, min(MOST, room // (LETTER_BYTES + len(self._name(key)) + len(key.group_id.encode()))))

    async def offsets(self, key: SharePartitionKey, first_offset: int, last_offset: int) -> list[int]:
        """Return which of these offsets have a record: compaction leaves gaps, and control records are none."""
        return sorted(await self._read(key, first_offset, last_offset, _offsets))

    async def write(self, key: SharePartitionKey, letters: DeadLetters, *, by_hand: bool = False) -> None:
        """Return once the letters are committed. Raises UnknownTopicId once the dead-letter topic is deleted.

        `by_hand`: an operator has archived the records. A record that is too large for the dead-letter topic is not
        copied: its letter only names it.
        """
        config = share_config(self._broker, key.group_id)
        copied: dict[int, Record] = {}
        if config.errors_deadletterqueue_copy_record_enable:
            copied = await self._read(key, letters.first_offset, letters.last_offset, _records)
        try:
            await self._produce(letters, self._batch(key, letters, copied, by_hand))
        except MessageTooLarge:
            if not copied:
                raise
            await self._produce(letters, self._batch(key, letters, {}, by_hand))

    # -- what they are made from ---------------------------------------------------------------------------

    async def _read(
        self, key: SharePartitionKey, first_offset: int, last_offset: int, read: ReadBatch[T]
    ) -> dict[int, T]:
        """Return what `read` yields for these offsets, as far as the log still has them.

        Raises OffsetNotAvailable while a new leader does not know yet that they are committed.
        """
        replica = locate(self._broker, key.topic_id, key.partition)
        end_offset, readable_end = min(last_offset + 1, replica.log_end_offset), replica.high_watermark
        if readable_end < end_offset:
            raise OffsetNotAvailable("the leader does not know yet that the records are committed")
        offset = max(first_offset, replica.log_start_offset)
        found: dict[int, T] = {}
        while offset < end_offset:
            try:
                records, next_offset = await self._broker.env.offload(
                    partial(_read_some, replica.log, range(offset, end_offset), readable_end, read)
                )
            except OSError as error:
                raise KafkaStorageError("the records cannot be read") from error
            found |= records
            if next_offset == offset:
                break
            offset = next_offset
        return found

    def _batch(
        self, key: SharePartitionKey, letters: DeadLetters, copied: dict[int, Record], by_hand: bool
    ) -> bytes:
        now_ms = self._broker.env.ages.latest_ms()
        limit = share_config(self._broker, key.group_id).share_delivery_count_limit
        reason = OUT_OF_DELIVERIES if letters.delivery_count >= limit else REJECTED
        if by_hand:
            reason = BY_HAND
        topic = self._name(key)

        def letter(offset: int) -> Record:
            record = copied.get(offset)
            headers = (
                ("__dlq.errors.topic", topic),
                ("__dlq.errors.partition", str(key.partition).encode()),
                ("__dlq.errors.offset", str(offset).encode()),
                ("__dlq.errors.group", key.group_id.encode()),
                ("__dlq.errors.delivery.count", str(letters.delivery_count).encode()),
                ("__dlq.errors.message", reason),
            )
            key_and_value = (None, None) if record is None else (record.key, record.value)
            return new_record(*key_and_value, timestamp=now_ms, headers=headers)

        offsets = range(letters.first_offset, letters.last_offset + 1)
        producer = ProducerIdAndSequence(letters.producer_id, EPOCH, letters.sequence)
        return build_batch([letter(each) for each in offsets], producer=producer)

    def _name(self, key: SharePartitionKey) -> bytes:
        """Return the name of the source topic, or its id once it is deleted."""
        return (self._broker.image().topic_names.get(key.topic_id) or str(key.topic_id)).encode()

    # -- where they go -------------------------------------------------------------------------------------

    def _topic_config(self, name: str) -> TopicConfig:
        image = self._broker.image()
        return topic_config(self._broker.config, image.config("broker", ""), image.config("topic", name))

    async def _produce(self, letters: DeadLetters, batch: bytes) -> None:
        image = self._broker.image()
        name = image.topic_names.get(letters.topic_id)
        if name is None:
            raise UnknownTopicId("the dead-letter topic was deleted")
        state = image.partition(name, letters.partition)
        if state is None or state.leader == NO_BROKER:
            raise LeaderNotAvailable(f"{name}-{letters.partition} has no leader")
        if state.leader == self._broker.config.node_id:
            await self._append(letters, batch)
        else:
            await self._send(state.leader, name, letters.partition, batch)

    async def _append(self, letters: DeadLetters, batch: bytes) -> None:
        env, records, done = self._broker.env, memoryview(batch), _Commit()
        replica = locate(self._broker, letters.topic_id, letters.partition)
        try:
            appended = replica.append_produced(records, acks=ALL_ACKS, now_ms=env.ages.latest_ms())
        except NeedsStepwiseValidation:
            memory = Account("dead letters", 4 * len(batch))
            walked = await walk_records(env, records, replica.log.config, memory=memory)
            await check_schemas(self._broker.check_by_schemas, replica, records, walked, memory=memory)
            replica = locate(self._broker, letters.topic_id, letters.partition)  # of now
            appended = replica.append_produced(
                walked.records,
                acks=ALL_ACKS,
                now_ms=env.ages.latest_ms(),
                max_timestamp=walked.max_timestamp,
            )
        replica.await_commit(appended.end_offset, done)
        async with asyncio.timeout(TIMEOUT_S):
            await done.future

    async def _send(self, leader: int, name: str, partition: int, batch: bytes) -> None:
        make = request_builders(ApiKey.PRODUCE, VERSION)
        data = make.PartitionProduceData(index=partition, records=batch)
        request = make.ProduceRequest(
            transactional_id=None,
            acks=ALL_ACKS,
            timeout=int(TIMEOUT_S * 1_000),
            topic_data=(make.TopicProduceData(name=name, partition_data=(data,)),),
        )
        answer = await self._broker.links.ask(leader, ApiKey.PRODUCE, VERSION, request, timeout_s=TIMEOUT_S)
        (part,) = answer.responses[0].partition_responses
        if part.error_code != NONE:
            raise from_code(int(part.error_code), part.error_message)


def _read_some(log: Log, offsets: range, readable_end: int, read: ReadBatch[T]) -> tuple[dict[int, T], int]:
    """Return what `read` yields for some of these offsets of a log, and the offset to read on from.

    For a thread: batches may be large.
    """
    next_offset = offsets.start
    found: dict[int, T] = {}
    view = memoryview(log.read(offsets.start, 1, end_offset=readable_end, cached=False) or b"")
    for position, header in iter_headers(view):
        next_offset = header.end_offset
        if not header.is_control:
            batch = view[position : position + header.length]
            found |= {offset: each for offset, each in read(header, batch, offsets) if offset in offsets}
    return found, next_offset


def _records(header: BatchHeader, batch: memoryview, offsets: range) -> Iterator[tuple[int, Record]]:
    return ((each.offset, each) for each in iter_records(batch, read_headers=skip_headers))


def _offsets(header: BatchHeader, batch: memoryview, offsets: range) -> Iterable[tuple[int, None]]:
    """Return the offsets of a batch's records. A batch that cannot be read has them all: it may be why they failed."""
    dense = range(max(header.base_offset, offsets.start), min(header.end_offset, offsets.stop))
    if header.record_count < header.end_offset - header.base_offset:
        try:
            return [(offset, None) for offset, _ in _records(header, batch, offsets)]
        except CorruptMessage:
            pass
    return ((offset, None) for offset in dense)


class _Commit:
    """Waits for the commit of a batch in a log of this broker (`CommitWaiter`)."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def committed(self, partition: Partition) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, partition: Partition, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
