"""Topics for people: a short list of all, a grid of replicas with sizes, and trimming a partition."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from raftlog.admin.broker_questions import REQUEST_TIMEOUT_MS, Where, of_leader
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, check, of_kafka
from raftlog.admin.native.measures import MAX_PARTITIONS, Measured, measure
from raftlog.admin.route import FILTERED, TOPIC, Call, Route, of_topic
from raftlog.base.config import topic_config
from raftlog.base.errors import LeaderNotAvailable
from raftlog.base.turns import each_part
from raftlog.base.types import INTERNAL_TOPICS, NO_BROKER
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

INT64_MAX: Final = 2**63 - 1

ReplicaState = Literal["leader", "in_sync", "lagging", "offline"]


class TopicLine(msgspec.Struct):
    """A topic in a list. `replication_factor` is that of its first partition.

    `retention_ms` and `retention_bytes` (of a partition) are -1 without a limit, and null if the cleanup policy does
    not delete by them.
    """

    topic_name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    leaderless: int
    cleanup_policy: str
    retention_ms: int | None
    retention_bytes: int | None


class TopicLines(msgspec.Struct):
    """All topics that the caller may see, by name."""

    metadata_offset: int
    data: list[TopicLine]


class Window(msgspec.Struct, forbid_unknown_fields=True):
    """A range of partitions. `measure`: ask brokers for offsets and sizes too, which this node does not know by
    itself.
    """

    first: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    most: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)] = 200
    measure: bool = False


class ReplicaCell(msgspec.Struct):
    """One replica. Its `state` is "offline" if its broker is fenced. `size_bytes` and `lag` (in records) are null if
    they were not measured.
    """

    broker_id: int
    state: ReplicaState
    size_bytes: int | None = None
    lag: int | None = None


class PartitionRow(msgspec.Struct):
    """One partition. Offsets null: not measured, or without a leader."""

    partition_id: int
    leader_id: int | None
    leader_epoch: int
    reassigning: bool
    replicas: list[ReplicaCell]
    beginning_offset: int | None = None
    next_offset: int | None = None


class TopicReplicas(msgspec.Struct):
    """Partitions and replicas of a topic; `partitions`: how many it has altogether."""

    topic_name: str
    topic_id: str
    is_internal: bool
    partitions: int
    metadata_offset: int
    data: list[PartitionRow]


class Trim(msgspec.Struct, forbid_unknown_fields=True):
    """Records below `before_offset` go; -1 stands for all that are committed."""

    before_offset: Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]


class Trimmed(msgspec.Struct):
    """The first offset that the partition has now."""

    topic_name: str
    partition_id: int
    log_start_offset: int


async def list_topic_lines(call: Call) -> TopicLines:
    """Return a line for each topic from this node's own metadata: no other broker is asked."""
    image = call.node.image()
    found = await call.node.survey_of(image)
    seen = await call.among(Operation.DESCRIBE, TOPIC, image.topics)

    def line(name: str) -> TopicLine:
        partitions = image.topics[name].partitions
        cleanup_policy, retention_ms, retention_bytes = _kept(call, image, name)
        return TopicLine(
            name,
            name in INTERNAL_TOPICS,
            len(partitions),
            len(partitions[0].replicas),
            found.under_replicated.by_topic[name],
            found.leaderless.by_topic[name],
            cleanup_policy,
            retention_ms,
            retention_bytes,
        )

    return TopicLines(image.offset, await each_part(call, sorted(seen), line))


def _kept(call: Call, image: MetadataImage, name: str) -> tuple[str, int | None, int | None]:
    """Return a topic's cleanup policy, and its retention in milliseconds and bytes, as in force on this node."""
    brokers = image.broker_configs(call.node.config.node_id)
    found = topic_config(call.node.config, brokers, image.config("topic", name))
    deletes = "delete" in found.cleanup_policy
    limits = (found.retention_ms, found.retention_bytes) if deletes else (None, None)
    return ",".join(sorted(found.cleanup_policy)), *limits


async def list_topic_replicas(call: Call) -> TopicReplicas:
    """Return a part of the grid. Cells of a broker that does not answer are unmeasured."""
    image, name, query = call.node.image(), call.path["topic_name"], call.query
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(404, f"topic {name[:249]} does not exist", code=UNKNOWN_PARTITION)
    indexes = range(query.first, min(query.first + query.most, len(topic.partitions)))
    measured = await measure(call, {name: indexes} if query.measure else {})
    return TopicReplicas(
        topic_name=name,
        topic_id=str(topic.topic_id),
        is_internal=name in INTERNAL_TOPICS,
        partitions=len(topic.partitions),
        metadata_offset=image.offset,
        data=[_row(image, (name, each), measured) for each in indexes],
    )


def _row(image: MetadataImage, where: Where, measured: Measured) -> PartitionRow:
    topic, index = where
    state = image.topics[topic].partitions[index]
    cells = []
    for broker_id in state.replicas:
        size, lag = measured.replicas.get((where, broker_id), (None, None))
        cells.append(ReplicaCell(broker_id, _state(image, state, broker_id), size, lag))
    begin, following = measured.offsets.get(where, (None, None))
    return PartitionRow(
        partition_id=index,
        leader_id=None if state.leader == NO_BROKER else state.leader,
        leader_epoch=state.leader_epoch,
        reassigning=state.is_reassigned,
        replicas=cells,
        beginning_offset=begin,
        next_offset=following,
    )


def _state(image: MetadataImage, state: PartitionState, broker_id: int) -> ReplicaState:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return "offline"
    if state.leader == broker_id:
        return "leader"
    return "in_sync" if broker_id in state.isr else "lagging"


async def trim_partition(call: Call) -> Trimmed:
    """Delete the first records of one partition, as Kafka's DeleteRecords. They do not come back."""
    topic, index, before = call.path["topic_name"], call.path["partition_id"], call.body.before_offset
    call.audit.update(topic=topic, partition=index, before_offset=before)
    state = call.node.image().partition(topic, index)
    if state is None:
        raise ApiError(
            404, f"partition {index} of topic {topic[:249]} does not exist", code=UNKNOWN_PARTITION
        )
    if topic in INTERNAL_TOPICS:
        raise ApiError(409, f"{topic} is an internal topic: its deletion would lose groups or transactions")
    if state.leader == NO_BROKER:
        raise of_kafka(LeaderNotAvailable(), f"{topic}-{index}")
    make = builders_for(ApiKey.DELETE_RECORDS)
    wanted = make.DeleteRecordsTopic(
        name=topic, partitions=(make.DeleteRecordsPartition(partition_index=index, offset=before),)
    )
    request = make.DeleteRecordsRequest(topics=(wanted,), timeout=REQUEST_TIMEOUT_MS)
    response = await call.asker.ask(ApiKey.DELETE_RECORDS, request, broker_id=state.leader)
    (result,) = response.topics[0].partitions
    check(of_leader(result.error_code), about=f"{topic}-{index} before offset {before}")
    return Trimmed(topic, index, result.low_watermark)


ONE: Final = "/v1/topics/{topic_name}"
ROUTES: Final = (
    Route("GET", "/v1/topics", list_topic_lines, "List the topics, a line each", rights=FILTERED),
    Route(
        "GET",
        f"{ONE}/replicas",
        list_topic_replicas,
        "List a topic's partitions with their replicas, offsets and sizes",
        query=Window,
        rights=of_topic(Operation.DESCRIBE),
    ),
    Route(
        "POST",
        f"{ONE}/partitions/{{partition_id:int}}/trim",
        trim_partition,
        "Delete a partition's records below an offset",
        body=Trim,
        rights=of_topic(Operation.DELETE),
    ),
)
