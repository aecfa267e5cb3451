"""A small Kafka client on the running loop: connections, metadata, and one request at a time or several.

It follows leader epochs as KIP-320 clients do: news of an older epoch than already known is not believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from raftlog.protocol.asyncio_connection import AsyncioConnection
from raftlog.protocol.conversation import ConversationLost
from raftlog.protocol.message_builders import request_builders

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 19, 20, 22, 23
CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS = 30, 31, 32
DELETE_GROUPS = 42
ALTER_CLIENT_QUOTAS = 49
INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 44, 45, 46
ALTER_USER_SCRAM_CREDENTIALS = 51
UPDATE_FEATURES, UNREGISTER_BROKER = 57, 64
CONSUMER_GROUP_HEARTBEAT = 68
VERSIONS: Final = {
    PRODUCE: 9,
    FETCH: 12,
    LIST_OFFSETS: 7,
    METADATA: 12,
    OFFSET_COMMIT: 9,
    OFFSET_FETCH: 7,
    FIND_COORDINATOR: 3,
    JOIN_GROUP: 9,
    HEARTBEAT: 4,
    LEAVE_GROUP: 4,
    SYNC_GROUP: 5,
    CREATE_TOPICS: 7,
    DELETE_TOPICS: 6,
    INIT_PRODUCER_ID: 4,
    OFFSET_FOR_LEADER_EPOCH: 4,
    CREATE_ACLS: 3,
    DELETE_ACLS: 3,
    DESCRIBE_CONFIGS: 4,
    INCREMENTAL_ALTER_CONFIGS: 1,
    DELETE_GROUPS: 2,
    ALTER_REASSIGNMENTS: 1,
    LIST_REASSIGNMENTS: 0,
    ALTER_CLIENT_QUOTAS: 1,
    ALTER_USER_SCRAM_CREDENTIALS: 0,
    UPDATE_FEATURES: 1,
    UNREGISTER_BROKER: 0,
    CONSUMER_GROUP_HEARTBEAT: 1,
}
"""The version used of each API: flexible, and topics by name."""

LEASE_S: Final = 1.0
"""How long a client stays with a replica that the leader named, virtual seconds. Stock clients stay five minutes."""
OFFSET_OUT_OF_RANGE: Final = 1

T = TypeVar("T")


class RawConnection(AsyncioConnection):
    """One connection. `closed` once it is lost; every pending request then fails with ConnectionError.

    Bytes that are no response to the request are a bug of the broker: they raise in the loop, which fails the run.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def crash(self, what: str) -> None:
        raise AssertionError(f"the connection of {self.name} failed: {what}")

    def data_received(self, data: bytes) -> None:
        try:
            self.receive_bytes(data)
        except ConversationLost as error:  # as an OSError it would only close the connection
            raise AssertionError(f"the connection of {self.name}: {error}") from error

    def send(self, api_key: int, message: Any, version: int | None = None) -> asyncio.Future[Any]:
        """Send a request now; the future is its response, or ConnectionError."""
        if version is None:
            version = VERSIONS[api_key]
        return self.ask(api_key, version, message, client_id=self.name)


class Leader(NamedTuple):
    """The leader of a partition, as far as this client knows."""

    broker_id: int
    leader_epoch: int


def shapes(api_key: int) -> Any:
    """Return the builders of an API's request, in the version that this client uses."""
    return request_builders(api_key, VERSIONS[api_key])


class Client:
    """The part of a producer or consumer that every Kafka client shares. Raises what `AWAY` lists if a broker is
    away.
    """

    def __init__(
        self, name: str, bootstrap: Sequence[tuple[str, int]], *, timeout_s: float = 1.5, rack: str = ""
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.rack = rack
        """client.rack: `fetch` follows the leader's choice of a replica there (KIP-392)."""
        self.read_from_followers = 0
        """How many fetches brought records from a follower."""
        self._preferred: dict[tuple[str, int], tuple[int, float]] = {}
        """The replica that the leader named, and until when the client stays with it."""
        self._bootstrap = list(bootstrap)
        self._turn = sum(name.encode())
        self._brokers: dict[int, tuple[str, int]] = {}
        self._wires: dict[tuple[str, int], RawConnection] = {}
        self._dialled: dict[tuple[str, int], asyncio.Task[RawConnection]] = {}
        """Pending connections: concurrent callers for an address share a single connection."""
        self.leaders: dict[tuple[str, int], Leader] = {}
        self.topic_ids: dict[str, UUID] = {}

    async def _wire(self, address: tuple[str, int]) -> RawConnection:
        wire = self._wires.get(address)
        if wire is not None and not wire.closed:
            return wire
        dialled = self._dialled.get(address)
        if dialled is None:
            dialled = self._dialled[address] = asyncio.get_running_loop().create_task(self._dial(address))
        return await asyncio.shield(dialled)

    async def _dial(self, address: tuple[str, int]) -> RawConnection:
        try:
            async with asyncio.timeout(self.timeout_s):
                connect = asyncio.get_running_loop().create_connection(
                    lambda: RawConnection(self.name), *address
                )
                _, self._wires[address] = await connect
            return self._wires[address]
        finally:
            del self._dialled[address]

    async def ask(
        self, address: tuple[str, int], api_key: int, message: Any, *, version: int | None = None
    ) -> Any:
        """Ask one broker."""
        wire = await self._wire(address)
        return await self.answer(wire, wire.send(api_key, message, version))

    async def answer(self, wire: RawConnection, asked: asyncio.Future[T]) -> T:
        """Wait for an answer; a connection without an answer in time is closed. Raises what `AWAY` lists."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await asked
        except TimeoutError:
            wire.close()
            raise

    async def ask_reachable(self, api_key: int, message: Any) -> Any:
        """Send a request to a reachable bootstrap broker, as stock clients do."""
        for left in reversed(range(len(self._bootstrap))):
            self._turn += 1
            try:
                wire = await self._wire(self._bootstrap[self._turn % len(self._bootstrap)])
            except AWAY:
                if not left:
                    raise
            else:
                return await self.answer(wire, wire.send(api_key, message))
        raise LookupError("no broker is known")

    async def ask_any(self, api_key: int, message: Any) -> Any:
        """Send a request to the bootstrap brokers in turn."""
        self._turn += 1
        return await self.ask(self._bootstrap[self._turn % len(self._bootstrap)], api_key, message)

    async def refresh(self, *topics: str) -> None:
        """Learn the leaders of the partitions of these topics."""
        make = shapes(METADATA)
        message = make.MetadataRequest(
            topics=tuple(make.MetadataRequestTopic(topic_id=None, name=topic) for topic in topics),
            allow_auto_topic_creation=False,
        )
        response = await self.ask_any(METADATA, message)
        for broker in response.brokers:
            self._brokers[broker.node_id] = (broker.host, broker.port)
        for each in response.topics:
            if each.partitions:
                self.topic_ids[each.name] = each.topic_id
            for partition in each.partitions:
                key = (each.name, partition.partition_index)
                known = self.leaders.get(key)
                if known is None or partition.leader_epoch >= known.leader_epoch:
                    self.leaders[key] = Leader(partition.leader_id, partition.leader_epoch)

    def address_of(self, topic: str, index: int) -> tuple[str, int]:
        """Return the address of a partition's leader. LookupError if no leader is known."""
        leader = self.leaders.get((topic, index))
        if leader is None or leader.broker_id not in self._brokers:
            raise LookupError("no leader is known")
        return self._brokers[leader.broker_id]

    async def leader_wire(self, topic: str, index: int) -> tuple[RawConnection, Leader]:
        """Return a connection to the leader. LookupError if no leader is known."""
        address, leader = self.address_of(topic, index), self.leaders[topic, index]
        return await self._wire(address), leader

    async def ask_leader(
        self, topic: str, index: int, api_key: int, message: Any, *, version: int | None = None
    ) -> Any:
        wire, _ = await self.leader_wire(topic, index)
        return await self.answer(wire, wire.send(api_key, message, version))

    async def fetch(self, topic: str, index: int, message: Any) -> Any:
        """Fetch one partition from the replica that the leader named, or else from the leader, as librdkafka does."""
        where, now = (topic, index), asyncio.get_running_loop().time()
        preferred, until = self._preferred.pop(where, (-1, 0.0))
        if preferred not in self._brokers or now > until:
            answer = await self.ask_leader(topic, index, FETCH, message)
            result = answer.responses[0].partitions[0]
            if result.preferred_read_replica >= 0:
                self._preferred[where] = (result.preferred_read_replica, now + LEASE_S)
            return answer
        answer = await self.ask(self._brokers[preferred], FETCH, message)
        result = answer.responses[0].partitions[0]
        if int(result.error_code) == 0:
            self._preferred[where] = (preferred, until)
            self.read_from_followers += bool(result.records)
        elif int(result.error_code) == OFFSET_OUT_OF_RANGE:
            offset = message.topics[0].partitions[0].fetch_offset
            if offset > result.high_watermark:  # otherwise it would reset by auto.offset.reset
                raise LookupError(f"{self.name}: follower {preferred} does not have offset {offset}")
        return answer

    def close(self) -> None:
        for dialled in self._dialled.values():
            dialled.cancel()
        for wire in self._wires.values():
            wire.close()


AWAY = (OSError, TimeoutError, LookupError)
"""The errors that a client meets when a broker is down, paused or cut off: it looks for the leader again."""


def create_topic_request(
    topic: str, *, partitions: int, replicas: int = 3, configs: Mapping[str, str] | None = None
) -> Any:
    """Return a request for one topic; -1 replicas are as many as the brokers have by default."""
    make = shapes(CREATE_TOPICS)
    wanted = make.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=tuple(
            make.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
        ),
    )
    return make.CreateTopicsRequest(topics=(wanted,), timeout=1000)


async def create_topic(
    client: Client, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic with three replicas; tries until it is there."""
    request = create_topic_request(topic, partitions=partitions, configs=configs)
    while True:
        try:
            response = await client.ask_any(CREATE_TOPICS, request)
            if int(response.topics[0].error_code) in (0, 36):  # none, or it exists already
                return
        except AWAY:
            pass
        await asyncio.sleep(0.1)


async def delete_topic(client: Client, topic: str) -> None:
    """Delete a topic; tries until it is gone."""
    make = shapes(DELETE_TOPICS)
    request = make.DeleteTopicsRequest(
        topics=(make.DeleteTopicState(name=topic, topic_id=None),), timeout=1000
    )
    while True:
        try:
            answer = await client.ask_any(DELETE_TOPICS, request)
            if int(answer.responses[0].error_code) in (0, 3):  # none, or there is no such topic
                return
        except AWAY:
            pass
        await asyncio.sleep(0.1)
