"""A broker for group tests: real logs and partitions of `__consumer_offsets` on a simulated disk, loop and clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from raftlog.base.config import NodeConfig, TopicConfig
from raftlog.base.errors import KafkaError, UnknownTopicOrPartition
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.group_coordinators import GroupCoordinators
from raftlog.broker.coordination.transaction_coordinators import TransactionCoordinators
from raftlog.broker.coordination.transaction_verification import TransactionVerifier
from raftlog.broker.long_work.turns import completed
from raftlog.broker.replicas.deleted_topics import DeletedTopics
from raftlog.broker.rights import demand_needed
from raftlog.metadata.controller_api import CreateTopics, CreateTopicsReply, TopicCreation
from raftlog.metadata.image import BrokerState, Endpoint, MetadataImage, PartitionState, TopicState
from raftlog.protocol.codec import (
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from raftlog.protocol.message_builders import request_builders
from raftlog.replication.partition import Partition
from raftlog.storage.log import Log
from raftlog_chaos.simulator import Host, SimEnv, SimLoop

OFFSETS_ID, TOPIC_ID = UUID(int=7), UUID(int=8)
PARTITIONS = 2
AWAY_S = 0.01
"""Between the broker and its controller, seconds of the simulated clock."""
TOPIC = TopicState("t", TOPIC_ID, (PartitionState((1,), (1,), 1),) * 3)
TRANSACTIONS = TopicState(TRANSACTION_STATE_TOPIC, UUID(int=9), (PartitionState((2,), (2,), 2),))
"""Another broker coordinates all transactions, unless the test is about those."""
BROKER = BrokerState(1, 5, UUID(int=1), (Endpoint("PLAINTEXT", "b1", 9092),), fenced=False)


class LoopHost:
    """A stand-in for the broker of a partition: by default it flushes, and wakes waiters a turn later."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.broker_id = 1
        self.replica_lag_time_max = 5.0
        self.flush_before_commit = True
        self.flushes = True
        self.awaited: dict[Partition, None] = {}

    def now(self) -> float:
        return self._loop.time()

    def latest_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def was_deleted(self, topic: str) -> bool:
        return False

    def broker_epoch(self) -> int:
        return BROKER.broker_epoch

    def brokers(self) -> dict[int, BrokerState]:
        return {1: BROKER}

    def request_flush(self, partition: Partition) -> None:
        if self.flushes:
            self._loop.call_soon(self.flush, partition)

    def flush(self, partition: Partition) -> None:
        ticket = partition.log.begin_flush()
        if ticket is not None:
            ticket.run()
            partition.log.complete_flush(ticket)
        partition.note_flushed(partition.log.flushed_end_offset)

    def touch(self, partition: Partition) -> None:
        pass

    def wake_waiters(self, partition: Partition) -> None:
        self._loop.call_soon(partition.wake_parked)

    def heard_of_leader_at(self, partition: Partition) -> float:
        return self._loop.time()

    def fetch_soon(self, partition: Partition) -> None:
        raise AssertionError("no consumer reads from a coordinator's follower here")

    def submit_isr_change(self, partition: Partition) -> None:
        raise AssertionError("a single replica has no ISR to change")

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        partition.go_offline()

    def log_damaged(self, partition: Partition) -> None:
        raise AssertionError("no test damages a coordinator's log")

    def log_event(self, event: str, partition: Partition, **facts: object) -> None:
        """The timeline is not looked at."""


class Replicas:
    """This broker's replicas of the coordinators' topic."""

    def __init__(self, topic: str, now: Callable[[], float]) -> None:
        self.topic = topic
        self.partitions: dict[int, Partition] = {}
        self.role_listeners: list[Callable[[], None]] = []
        self.deleted_topics = DeletedTopics(now)
        self.was_deleted = self.deleted_topics.has

    def get(self, topic: str, index: int) -> Partition:
        if topic != self.topic or index not in self.partitions:
            raise UnknownTopicOrPartition
        return self.partitions[index]


class GroupBroker:
    """One broker, in one life of its simulated host. Build it inside the host's process."""

    topic = CONSUMER_OFFSETS_TOPIC

    def __init__(self, host: Host, *, with_topic: bool = True, **settings: Any) -> None:
        self.loop = host.loop
        self.partition_host = LoopHost(host.loop)
        self.replicas = Replicas(self.topic, host.loop.time)
        self.leader_epoch = 0
        self.leader = 1
        self.image = MetadataImage(brokers={1: BROKER}, topics={"t": TOPIC}, topic_names={TOPIC_ID: "t"})
        self.submitted: list[Any] = []
        self.asker: int | None = None
        self.connection: Any = None
        """The connection on which requests come; None: this broker asks itself."""
        """The requesting broker, or None for other clients."""
        config = NodeConfig(node_id=1, **{"group_initial_rebalance_delay_ms": 0, **settings})
        self.broker = BrokerContext(
            SimEnv(host), config, lambda: self.image, self.submit, self.replicas  # type: ignore[arg-type]
        )  # fmt: skip
        self.broker.verifier = TransactionVerifier(self.broker)
        self.broker.groups = self.groups = GroupCoordinators(self.broker, self.broker.verifier)
        self.broker.transactions = self.transactions = TransactionCoordinators(self.broker)
        self.share_states = self.broker.share_states
        self.disk = host.disk
        if with_topic:
            self.publish()

    async def submit(self, request: Any, *, timeout: float | None = None) -> CreateTopicsReply:
        """The controller, `AWAY_S` away; the image follows its answer by as much."""
        assert isinstance(request, CreateTopics)
        self.submitted.append(request)
        answer: asyncio.Future[CreateTopicsReply] = self.loop.create_future()
        self.loop.call_later(AWAY_S, answer.set_result, CreateTopicsReply((TopicCreation(self.topic),)))
        reply = await answer
        self.loop.call_later(AWAY_S, self.publish)
        return reply

    def publish(self, *, leader: int | None = None, topics: dict[str, TopicState] | None = None) -> None:
        """Publish an image with the coordinators' topic, here with a new election if `leader` is given."""
        if leader is not None:
            self.leader = leader
            self.leader_epoch += 1
        state = PartitionState((1, 2), (1,), self.leader, self.leader_epoch, self.leader_epoch)
        coordinated = TopicState(self.topic, OFFSETS_ID, (state,) * PARTITIONS)
        others = {"t": TOPIC} if topics is None else topics
        old = self.image
        self.image = MetadataImage(
            brokers={1: BROKER},
            topics={TRANSACTIONS.name: TRANSACTIONS, **others, self.topic: coordinated},
            topic_names={each.topic_id: each.name for each in others.values()},
            topics_offset=old.topics_offset + 1,
        )
        self._reconcile(state)
        self.groups.on_metadata(old, self.image)
        self.transactions.on_metadata(old, self.image)
        self.share_states.on_metadata(old, self.image)

    def _reconcile(self, state: PartitionState) -> None:
        for index in range(PARTITIONS):
            partition = self.replicas.partitions.get(index)
            if partition is None:
                partition = self.replicas.partitions[index] = self._open(index)
            partition.reconcile(state)

    def _open(self, index: int) -> Partition:
        log = Log.open(
            self.disk,
            f"/data/{self.topic}-{index}",
            config=TopicConfig(),
            recovery_point=0,
            clean=False,
            topic_id=OFFSETS_ID,
            now_ms=self.broker.env.wall_clock_ms(),
        )
        name = TopicPartition(self.topic, index)
        return Partition(name, OFFSETS_ID, log=log, host=self.partition_host)

    async def pass_time(self, seconds: float) -> None:
        """Let the simulated clock go on for so many seconds; no real time passes."""
        over = asyncio.Event()
        self.loop.call_later(seconds, over.set)
        await over.wait()

    async def call(self, handler: Any, version: int, **fields: Any) -> Any:
        """Send one request through the wire's bytes to a handler and read the response's bytes back."""
        return await self.call_with(handler, version, request_of(int(handler.API_KEY), version, fields))

    async def call_with(self, handler: Any, version: int, sent: Any) -> Any:
        """The same with the request as an entity."""
        key = int(handler.API_KEY)
        frame = encode_request(RequestHeader(key, version, 3, "client"), sent)
        header, position = decode_header(memoryview(frame)[4:])
        message = decode_request(key, version, memoryview(frame)[4:], position)
        request = RequestContext(*header, "PLAINTEXT", "127.0.0.1", self.asker, self.connection)
        env = self.broker.env
        try:
            demand_needed(self.broker, handler.API.needs, request, message)
            response = await completed(env, handler.API.handle(self.broker, request, message))
        except KafkaError as error:
            response = await completed(env, handler.API.error_response(request, message, error))
        encoded = encode_response(key, version, 3, response)
        _, decoded = decode_response(key, version, memoryview(encoded)[4:])
        return decoded


def request_of(key: int, version: int, fields: dict[str, Any]) -> Any:
    """Build a request; dicts are entities: {"_": entity name, …fields}."""
    from raftlog.protocol.codec import request_type

    make = request_builders(key, version)
    return getattr(make, request_type(key, version).__name__)(
        **{name: _entity(make, value) for name, value in fields.items()}
    )


def _entity(make: Any, value: Any) -> Any:
    if isinstance(value, dict):
        fields = {name: _entity(make, each) for name, each in value.items() if name != "_"}
        return getattr(make, value["_"])(**fields)
    if isinstance(value, (list, tuple)):
        return tuple(_entity(make, each) for each in value)
    return value
