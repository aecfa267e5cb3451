"""Partitions of a topic, their replicas and their offsets."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Literal

import msgspec

from raftlog.admin.broker_questions import list_offsets
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, check, not_found
from raftlog.admin.kafka_rest.shared import (
    ItemMetadata,
    ListMetadata,
    Page,
    Related,
    image_of,
    item,
    page_of,
    topic_of,
)
from raftlog.admin.route import Call, Route, of_topic
from raftlog.base.turns import each_part
from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.security.acls import Operation

EARLIEST: Final = -2
LATEST: Final = -1


class Partition(msgspec.Struct, kw_only=True):
    """A partition. `leader` is null without a leader."""

    kind: str = "KafkaPartition"
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    partition_id: int
    leader: Related | None
    replicas: Related
    reassignment: Related
    leader_id: int | None
    leader_epoch: int
    replica_ids: list[int]
    isr: list[int]


class PartitionList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaPartitionList"
    metadata: ListMetadata
    data: list[Partition]


class Replica(msgspec.Struct, kw_only=True):
    """One replica of a partition."""

    kind: str = "KafkaReplica"
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class ReplicaList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaReplicaList"
    metadata: ListMetadata
    data: list[Replica]


class Offsets(msgspec.Struct, kw_only=True):
    """The offsets where a partition begins and ends: `next_offset` is the first that a consumer cannot read yet."""

    kind: str = "KafkaPartitionOffset"
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    partition_id: int
    beginning_offset: int
    next_offset: int


class OffsetQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`isolation`: committed counts up to the last stable offset."""

    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"


def partition_of(call: Call, image: MetadataImage) -> PartitionState:
    """Return the path's partition. Raises ApiError 40403."""
    topic = topic_of(call, image)
    state = image.partition(topic.name, call.path["partition_id"])
    if state is None:
        raise ApiError(
            404,
            f"partition {call.path['partition_id']} of topic {topic.name} does not exist",
            code=UNKNOWN_PARTITION,
        )
    return state


async def list_partitions(call: Call) -> PartitionList:
    """Return the partitions in the order of their numbers."""
    image = image_of(call)
    topic = topic_of(call, image)
    parts = ("clusters", image.cluster_id, "topics", topic.name, "partitions")
    shown, metadata = page_of(call, range(len(topic.partitions)), *parts)
    return PartitionList(
        metadata=metadata, data=await each_part(call, shown, partial(_partition, call, image, topic.name))
    )


async def get_partition(call: Call) -> Partition:
    image = image_of(call)
    partition_of(call, image)
    return _partition(call, image, call.path["topic_name"], call.path["partition_id"])


def _partition(call: Call, image: MetadataImage, topic: str, index: int) -> Partition:
    state = image.topics[topic].partitions[index]
    own = ("topics", topic, "partitions", index)
    base = ("clusters", image.cluster_id, *own)
    led = state.leader != NO_BROKER
    return Partition(
        metadata=item(call, image, *own, topic=topic, partition=index),
        cluster_id=image.cluster_id,
        topic_name=topic,
        partition_id=index,
        leader=Related(call.link(*base, "replicas", state.leader)) if led else None,
        replicas=Related(call.link(*base, "replicas")),
        reassignment=Related(call.link(*base, "reassignment")),
        leader_id=state.leader if led else None,
        leader_epoch=state.leader_epoch,
        replica_ids=list(state.replicas),
        isr=list(state.isr),
    )


async def list_replicas(call: Call) -> ReplicaList:
    """Return the replicas in the order of preference."""
    image = image_of(call)
    state = partition_of(call, image)
    topic, index = call.path["topic_name"], call.path["partition_id"]
    parts = ("clusters", image.cluster_id, "topics", topic, "partitions", index, "replicas")
    shown, metadata = page_of(call, tuple(enumerate(state.replicas)), *parts)
    return ReplicaList(
        metadata=metadata, data=[replica_at(call, image, topic, index, each) for _, each in shown]
    )


async def get_replica(call: Call) -> Replica:
    """Return one replica; 404 for a broker that has none."""
    image = image_of(call)
    state = partition_of(call, image)
    if call.path["broker_id"] not in state.replicas:
        raise not_found(f"a replica of this partition on broker {call.path['broker_id']}")
    return replica_at(call, image, call.path["topic_name"], call.path["partition_id"], call.path["broker_id"])


def replica_at(call: Call, image: MetadataImage, topic: str, index: int, broker_id: int) -> Replica:
    """Return one replica, which the image must have."""
    state = image.topics[topic].partitions[index]
    own = ("topics", topic, "partitions", index, "replicas", broker_id)
    return Replica(
        metadata=item(call, image, *own, topic=topic, partition=index, replica=broker_id),
        cluster_id=image.cluster_id,
        topic_name=topic,
        partition_id=index,
        broker_id=broker_id,
        is_leader=state.leader == broker_id,
        is_in_sync=broker_id in state.isr,
        broker=Related(call.link("clusters", image.cluster_id, "brokers", broker_id)),
    )


async def get_offsets(call: Call) -> Offsets:
    """Ask the partition's leader."""
    image = image_of(call)
    partition_of(call, image)
    where = (call.path["topic_name"], call.path["partition_id"])
    committed = call.query.isolation == "read_committed"
    answers = await asyncio.gather(
        *(list_offsets(call, {where: each}, read_committed=committed) for each in (EARLIEST, LATEST))
    )
    for each in answers:
        check(each[where][0], about=f"{where[0]}-{where[1]}")
    beginning, following = (each[where][1] for each in answers)
    own = ("topics", where[0], "partitions", where[1], "offset")
    return Offsets(
        metadata=item(call, image, *own, topic=where[0], partition=where[1]),
        cluster_id=image.cluster_id,
        topic_name=where[0],
        partition_id=where[1],
        beginning_offset=beginning,
        next_offset=following,
    )


BASE: Final = "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions"
ONE: Final = f"{BASE}/{{partition_id:int}}"
ROUTES: Final = (
    Route(
        "GET",
        BASE,
        list_partitions,
        "List a topic's partitions",
        query=Page,
        rights=of_topic(Operation.DESCRIBE),
    ),
    Route("GET", ONE, get_partition, "Describe a partition", rights=of_topic(Operation.DESCRIBE)),
    Route(
        "GET",
        f"{ONE}/replicas",
        list_replicas,
        "List a partition's replicas",
        query=Page,
        rights=of_topic(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        f"{ONE}/replicas/{{broker_id:int}}",
        get_replica,
        "Describe a replica",
        rights=of_topic(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        f"{ONE}/offset",
        get_offsets,
        "Get the first and last offsets of a partition",
        query=OffsetQuery,
        rights=of_topic(Operation.DESCRIBE),
    ),
)
