"""The registry's schemas as a broker has read them, which need not lead or replicate `_schemas`.

It reads when it is asked to: first the end of the partition, as its leader reports it, then the records up to there.
A new leader reports no end until it knows that of its predecessor (KIP-207). At last all live replicas confirm that it
still leads. So what was registered before the call is read, or the call fails.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from raftlog.base.errors import KafkaError, LeaderNotAvailable, OffsetOutOfRange, from_code
from raftlog.base.turns import each_part
from raftlog.base.types import NO_BROKER, NO_EPOCH, SCHEMAS_TOPIC
from raftlog.broker.controller_requests import wait_for_image
from raftlog.broker.coordination.schema_log import INDEX, READ_BYTES, SchemaLog
from raftlog.broker.local_broker import LocalBroker
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import VERSIONS
from raftlog.protocol.message_builders import request_builders
from raftlog.replication.leader_role import EARLIEST, LATEST
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.replay import decoded

ANSWER_S: Final = 2.0
READ_S: Final = 5.0
IMAGE_S: Final = 0.5
"""Longest wait for the topic: another node may have created it a moment ago."""
REFRESH_EACH_S: Final = 0.1
"""Pause between two readings: unknown ids of a producer are not a load for the leader."""


KEEPS_UP_EACH_S: Final = 60.0
"""Schemas that were deleted permanently count for this long, unless something else causes a reading."""


class SchemaReader:
    """`state` has what was read so far."""

    def __init__(self, broker: LocalBroker) -> None:
        self.state = RegistryState()
        self._topic_id: Any = None
        """The topic that `state` is of."""
        self._loading = self.state
        """Another state until a log was read for the first time."""
        self._broker = broker
        self._log = SchemaLog(broker)
        self._loaded_from: tuple[Any, int] = (None, NO_EPOCH)
        """The topic id and the leader epoch of what is loaded: a new leader may lack some of it."""
        self._offset = 0
        self._reading = asyncio.Lock()
        self._began_at = -REFRESH_EACH_S
        self._failure = ""
        """Why the last reading failed."""

    async def keep_up(self) -> bool:
        """Read on if the topic was made anew, or nothing was read for KEEPS_UP_EACH_S; return whether it was read.

        Raise LeaderNotAvailable only for a new topic: ids of another registry mean nothing.
        """
        topic = self._broker.image().topics.get(SCHEMAS_TOPIC)
        is_new = (None if topic is None else topic.topic_id) != self._topic_id
        if not is_new and asyncio.get_running_loop().time() - self._began_at < KEEPS_UP_EACH_S:
            return False
        try:
            await self.read_on()
        except LeaderNotAvailable:
            if is_new:
                raise
            return False
        return True

    async def read_on(self) -> None:
        """Read everything that was committed before this call. Raises LeaderNotAvailable, which clients retry.

        Calls that wait for the same reading share its outcome.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._reading:
            if self._began_at <= asked_at:
                await asyncio.sleep(self._began_at + REFRESH_EACH_S - loop.time())
                self._began_at = loop.time()
                self._failure = "the reading was interrupted"
                self._failure = await self._attempt()
            failure = self._failure
        if failure:
            raise LeaderNotAvailable(f"the schemas of the registry cannot be read: {failure}")

    async def _attempt(self) -> str:
        """Return "", or why the schemas cannot be read."""
        try:
            async with asyncio.timeout(READ_S):
                await self._read_all()
        except TimeoutError:
            return f"there were more than {READ_S:.0f} s to read"
        except (KafkaError, OSError) as error:
            return str(error)
        return ""

    async def _read_all(self) -> None:
        await wait_for_image(self._broker, _has_schemas, timeout_s=IMAGE_S)
        topic = self._broker.image().topics.get(SCHEMAS_TOPIC)
        if topic is None:
            self._restart((None, NO_EPOCH), 0)
            self.state, self._topic_id = self._loading, None
            return
        state = topic.partitions[INDEX]
        leader = state.leader
        if leader == NO_BROKER:
            raise LeaderNotAvailable(f"no broker leads {SCHEMAS_TOPIC}")
        end_offset = await self._special_offset(leader, LATEST)
        source = (topic.topic_id, state.leader_epoch)
        if source != self._loaded_from or self._offset > end_offset:
            self._restart(source, 0)
        while self._offset < end_offset:
            try:
                batches = await self._read(leader)
            except OffsetOutOfRange:  # the log start has passed it
                start_offset = await self._special_offset(leader, EARLIEST)
                if start_offset <= self._offset:
                    raise
                self._restart(source, start_offset)
                end_offset = await self._special_offset(leader, LATEST)  # the start may have passed that too
                continue
            records, offset = await self._broker.env.offload(partial(decoded, batches, self._offset))
            if offset <= self._offset:
                raise LeaderNotAvailable(f"there is no record at offset {offset} of {SCHEMAS_TOPIC}")
            await each_part(self._broker.env, records, lambda each: self._loading.apply(*each))
            self._offset = offset
        await self._confirm(state)
        self.state, self._topic_id = self._loading, topic.topic_id

    async def _confirm(self, state: PartitionState) -> None:
        """Raise a KafkaError if a live replica knows another leader than the one that was asked, or does not answer.

        A leader that was paused does not know yet that it was replaced. Its successor is a replica, and does.
        """
        brokers = self._broker.image().brokers
        alive = {each for each in state.replicas if each in brokers and not brokers[each].fenced}
        others = alive - {self._broker.config.node_id}
        for answer in await asyncio.gather(
            *(self._ask(each, ApiKey.METADATA, _metadata_request()) for each in sorted(others))
        ):
            (topic,) = answer.topics
            led = {(each.leader_id, each.leader_epoch) for each in topic.partitions}
            if led != {(state.leader, state.leader_epoch)}:
                raise LeaderNotAvailable(f"the leader of {SCHEMAS_TOPIC} is changing")

    def _restart(self, source: tuple[Any, int], offset: int) -> None:
        self._loading, self._offset, self._loaded_from = RegistryState(), offset, source

    async def _special_offset(self, leader: int, timestamp: int) -> int:
        if leader == self._broker.config.node_id:
            return self._log.special_offset(timestamp)
        answer = await self._ask(leader, ApiKey.LIST_OFFSETS, _list_request(timestamp))
        (found,) = answer.topics[0].partitions
        if found.error_code:
            raise from_code(found.error_code)
        return int(found.offset)

    async def _read(self, leader: int) -> bytes:
        """Return committed batches from the offset on."""
        if leader == self._broker.config.node_id:
            return await self._log.read(self._offset)
        answer = await self._ask(leader, ApiKey.FETCH, _fetch_request(self._offset))
        (found,) = answer.responses[0].partitions
        if found.error_code:
            raise from_code(found.error_code)
        return bytes(found.records or b"")

    async def _ask(self, leader: int, api_key: ApiKey, request: Any) -> Any:
        links = self._broker.links
        return await links.ask(leader, api_key, VERSIONS[api_key], request, timeout_s=ANSWER_S)


def _has_schemas(image: MetadataImage) -> bool:
    return SCHEMAS_TOPIC in image.topics


def _metadata_request() -> Any:
    make = request_builders(ApiKey.METADATA, VERSIONS[ApiKey.METADATA])
    topic = make.MetadataRequestTopic(name=SCHEMAS_TOPIC)
    return make.MetadataRequest(topics=(topic,), allow_auto_topic_creation=False)


def _list_request(timestamp: int) -> Any:
    make = request_builders(ApiKey.LIST_OFFSETS, VERSIONS[ApiKey.LIST_OFFSETS])
    partition = make.ListOffsetsPartition(partition_index=INDEX, current_leader_epoch=-1, timestamp=timestamp)
    topic = make.ListOffsetsTopic(name=SCHEMAS_TOPIC, partitions=(partition,))
    return make.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))


def _fetch_request(offset: int) -> Any:
    make = request_builders(ApiKey.FETCH, VERSIONS[ApiKey.FETCH])
    partition = make.FetchPartition(
        partition=INDEX,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=READ_BYTES,
    )
    return make.FetchRequest(
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=READ_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(make.FetchTopic(topic=SCHEMAS_TOPIC, partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
