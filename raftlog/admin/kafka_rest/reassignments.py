"""Moving partitions to other brokers (KIP-455): list, start and cancel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Final

import msgspec

from raftlog.admin.audit import record_parts
from raftlog.admin.broker_questions import REQUEST_TIMEOUT_MS, Where
from raftlog.admin.errors import check, not_found
from raftlog.admin.kafka_rest.partitions import partition_of
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
from raftlog.admin.route import Call, Route
from raftlog.base.turns import each_part
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import ALTER_CLUSTER, DESCRIBE_CLUSTER

INT32_MAX: Final = 2**31 - 1
MAX_MOVES: Final = 1000

Int32 = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
Replicas = Annotated[list[Int32], msgspec.Meta(min_length=1, max_length=1000)]


class Reassignment(msgspec.Struct, kw_only=True):
    """A partition that is being moved: `adding_replicas` catch up, then `removing_replicas` go."""

    kind: str = "KafkaReassignment"
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    partition_id: int
    adding_replicas: list[int]
    removing_replicas: list[int]
    replicas: Related


class ReassignmentList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaReassignmentList"
    metadata: ListMetadata
    data: list[Reassignment]


class Target(msgspec.Struct, forbid_unknown_fields=True):
    """The brokers that are to hold a partition; the first is preferred as leader."""

    replica_ids: Replicas


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """A partition, and the brokers that are to hold it; null cancels its reassignment."""

    topic_name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    partition_id: Int32
    replica_ids: Replicas | None


class Moves(msgspec.Struct, forbid_unknown_fields=True):
    """Several partitions to be moved; each succeeds or fails by itself."""

    data: Annotated[list[Move], msgspec.Meta(min_length=1, max_length=MAX_MOVES)]


class MoveResult(msgspec.Struct):
    """The outcome for one partition: `error_code` is Kafka's, 0 for success."""

    topic_name: str
    partition_id: int
    error_code: int
    message: str = ""


class MoveResults(msgspec.Struct):
    """The outcome for each."""

    data: list[MoveResult]


async def list_reassignments(call: Call) -> ReassignmentList:
    """Return every ongoing reassignment."""
    image = image_of(call)
    return await _page(
        call, image, await _under_way(call, image, sorted(image.topics)), "topics", "-", "partitions", "-"
    )


async def list_topic_reassignments(call: Call) -> ReassignmentList:
    """Return the ongoing reassignments of one topic."""
    image = image_of(call)
    topic = topic_of(call, image).name
    return await _page(
        call, image, await _under_way(call, image, [topic]), "topics", topic, "partitions", "-"
    )


async def get_reassignment(call: Call) -> Reassignment:
    """Return one reassignment; 404 for a partition that is not being moved."""
    image = image_of(call)
    state = partition_of(call, image)
    where = _where(call)
    if not state.is_reassigned:
        raise not_found(f"a reassignment of {where[0]}-{where[1]}")
    return _reassignment(call, image, where)


async def put_reassignment(call: Call) -> tuple[int, Reassignment | None]:
    """Begin; 202 with what is under way, 204 where the replicas were those already."""
    partition_of(call, image_of(call))
    where = _where(call)
    call.audit["replicas"] = call.body.replica_ids
    (result,) = await _alter(call, [Move(*where, call.body.replica_ids)])
    check(result.error_code, result.message, about=f"{where[0]}-{where[1]}")
    image = image_of(call)
    state = image.partition(*where)
    moving = state is not None and state.is_reassigned
    return (202, _reassignment(call, image, where)) if moving else (204, None)


async def cancel_reassignment(call: Call) -> None:
    """Lead back to the replicas with which it began."""
    partition_of(call, image_of(call))
    where = _where(call)
    (result,) = await _alter(call, [Move(*where, None)])
    check(result.error_code, result.message, about=f"{where[0]}-{where[1]}")


async def alter_reassignments(call: Call) -> MoveResults:
    """Begin or cancel reassignments; 207 for any outcome."""
    image_of(call)
    record_parts(call, (), [_named(each) for each in call.body.data])  # until they answer
    results = await _alter(call, call.body.data)
    done = [_named(each) for each in results if not each.error_code]
    record_parts(call, done, [_named(each) for each in results if each.error_code])
    return MoveResults(results)


def _named(each: Move | MoveResult) -> str:
    return f"{each.topic_name}-{each.partition_id}"


async def _alter(call: Call, moves: Sequence[Move]) -> list[MoveResult]:
    make = builders_for(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    topics = defaultdict(list)
    for each in moves:
        replicas = None if each.replica_ids is None else tuple(each.replica_ids)
        topics[each.topic_name].append(
            make.ReassignablePartition(partition_index=each.partition_id, replicas=replicas)
        )
    request = make.AlterPartitionReassignmentsRequest(
        timeout=REQUEST_TIMEOUT_MS,
        allow_replication_factor_change=True,
        topics=tuple(
            make.ReassignableTopic(name=name, partitions=tuple(wanted)) for name, wanted in topics.items()
        ),
    )
    response = await call.asker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    check(response.error_code, response.error_message)
    return [
        MoveResult(topic.name, each.partition_index, each.error_code, each.error_message or "")
        for topic in response.responses
        for each in topic.partitions
    ]


def _where(call: Call) -> Where:
    return call.path["topic_name"], call.path["partition_id"]


async def _under_way(call: Call, image: MetadataImage, topics: Sequence[str]) -> list[Where]:
    def moving(topic: str) -> list[Where]:
        states = image.topics[topic].partitions
        return [(topic, index) for index, state in enumerate(states) if state.is_reassigned]

    return list(chain.from_iterable(await each_part(call, topics, moving)))


async def _page(call: Call, image: MetadataImage, found: list[Where], *parts: object) -> ReassignmentList:
    shown, metadata = page_of(call, found, "clusters", image.cluster_id, *parts, "reassignment")
    return ReassignmentList(
        metadata=metadata, data=await each_part(call, shown, partial(_reassignment, call, image))
    )


def _reassignment(call: Call, image: MetadataImage, where: Where) -> Reassignment:
    topic, index = where
    state = image.topics[topic].partitions[index]
    own = ("topics", topic, "partitions", index)
    return Reassignment(
        metadata=item(call, image, *own, "reassignment", topic=topic, partition=index),
        cluster_id=image.cluster_id,
        topic_name=topic,
        partition_id=index,
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        replicas=Related(call.link("clusters", image.cluster_id, *own, "replicas")),
    )


TOPICS: Final = "/v3/clusters/{cluster_id}/topics"
ALL: Final = f"{TOPICS}/-/partitions/-/reassignment"
ONE: Final = f"{TOPICS}/{{topic_name}}/partitions/{{partition_id:int}}/reassignment"
ROUTES: Final = (
    Route(
        "GET", ALL, list_reassignments, "List all that is being moved", query=Page, rights=DESCRIBE_CLUSTER
    ),
    Route(
        "POST",
        f"{ALL}:alter",
        alter_reassignments,
        "Move partitions, or take that back",
        body=Moves,
        status=207,
        rights=ALTER_CLUSTER,
    ),
    Route(
        "GET",
        f"{TOPICS}/{{topic_name}}/partitions/-/reassignment",
        list_topic_reassignments,
        "List what is being moved of a topic",
        query=Page,
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "GET",
        ONE,
        get_reassignment,
        "Get the reassignment of a partition",
        rights=DESCRIBE_CLUSTER,
    ),
    Route(
        "PUT",
        ONE,
        put_reassignment,
        "Move a partition to other brokers",
        body=Target,
        status=202,
        also={204: None},
        rights=ALTER_CLUSTER,
    ),
    Route(
        "DELETE",
        ONE,
        cancel_reassignment,
        "Take the move of a partition back",
        status=204,
        rights=ALTER_CLUSTER,
    ),
)
