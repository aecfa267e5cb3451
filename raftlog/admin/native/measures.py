"""Offsets and sizes of partitions, which only brokers know, for one topic's grid or for the list of all topics."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from raftlog.admin.broker_questions import Where, list_offsets, of_all_brokers
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.route import CLUSTER, FILTERED, TOPIC, Call, Route
from raftlog.base.turns import batches, each_part
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TOPICS: Final = 500
MAX_PARTITIONS: Final = 1_000
"""Partitions in one request to brokers. A page of topics ends with the topic that reaches it."""


class Measured(NamedTuple):
    """Answers of brokers: (begin, next) of partitions, and (size, lag) of partitions on a broker."""

    offsets: dict[Where, tuple[int | None, int | None]]
    replicas: dict[tuple[Where, int], tuple[int, int]]


class MeasuresPage(msgspec.Struct, forbid_unknown_fields=True):
    """A page of topics by name: up to `most` after the topic `after`, or only `topic`."""

    after: Annotated[str, msgspec.Meta(max_length=249)] = ""
    most: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOPICS)] = 200
    topic: Annotated[str, msgspec.Meta(max_length=249)] = ""


class TopicMeasure(msgspec.Struct):
    """A topic in numbers. Partitions without a responding leader are left out, and counted in `unknown_partitions`.

    `records` counts offsets, so compacted records and transaction markers are in it. `end_offsets` is the sum of all
    end offsets: its growth is the rate. `size_bytes` has one replica of each partition, the leader's; it is null if
    the caller may not describe the cluster.
    """

    topic_name: str
    records: int
    end_offsets: int
    size_bytes: int | None
    unknown_partitions: int


class TopicMeasures(msgspec.Struct):
    """A page. `next` is the next page's `after`, null on the last page. `at_ms`: wall clock of the measurement."""

    at_ms: int
    data: list[TopicMeasure]
    next: str | None


async def list_topic_measures(call: Call) -> TopicMeasures:
    """Measure a page of the topics that the caller may see. Pages end early at topics of many partitions."""
    image, query = call.node.image(), call.query
    later = (name for name in image.topics if name > query.after and query.topic in ("", name))
    names = sorted(await call.among(Operation.DESCRIBE, TOPIC, later))
    page, partitions = [], 0
    for name in islice(names, query.most):
        page.append(name)
        partitions += len(image.topics[name].partitions)
        if partitions >= MAX_PARTITIONS:
            break
    at_ms = int(call.node.wall_clock_ms())
    found = await measure(call, {name: range(len(image.topics[name].partitions)) for name in page})
    sees_sizes = call.may(Operation.DESCRIBE, CLUSTER)
    by_topic = await each_part(
        call,
        page,
        lambda name: _measure_of(image, name, found, sees_sizes=sees_sizes),
        size_of=lambda name: len(image.topics[name].partitions),
    )
    return TopicMeasures(at_ms, by_topic, page[-1] if page and len(page) < len(names) else None)


def _measure_of(image: MetadataImage, name: str, found: Measured, *, sees_sizes: bool) -> TopicMeasure:
    records = ends = size = unknown = 0
    for index, state in enumerate(image.topics[name].partitions):
        begin, end = found.offsets.get((name, index), (None, None))
        if begin is None or end is None:
            unknown += 1
            continue
        records += end - begin
        ends += end
        size += found.replicas.get(((name, index), state.leader), (0, 0))[0]
    return TopicMeasure(name, records, ends, size if sees_sizes else None, unknown)


async def measure(call: Call, wanted: Mapping[str, Sequence[int]]) -> Measured:
    """Ask leaders for offsets and all brokers for sizes. Partitions of brokers that do not answer have none.

    A request has up to `MAX_PARTITIONS`; the next follows when it is answered.
    """
    measured = Measured({}, {})
    every = [(topic, index) for topic, indexes in wanted.items() for index in indexes]
    for some in batches(every, MAX_PARTITIONS):
        begins, ends = await asyncio.gather(
            *(list_offsets(call, dict.fromkeys(some, each)) for each in (EARLIEST, LATEST))
        )
        for where in some:
            measured.offsets[where] = _offset(begins.get(where)), _offset(ends.get(where))
        if call.may(Operation.DESCRIBE, CLUSTER):  # the right that DescribeLogDirs needs
            await _measure_replicas(call, some, measured.replicas)
    return measured


async def _measure_replicas(
    call: Call, wanted: Sequence[Where], replicas: dict[tuple[Where, int], tuple[int, int]]
) -> None:
    make = builders_for(ApiKey.DESCRIBE_LOG_DIRS)
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in wanted:
        by_topic[topic].append(index)
    topics = tuple(
        make.DescribableLogDirTopic(topic=topic, partitions=tuple(indexes))
        for topic, indexes in by_topic.items()
    )
    try:
        answers = await of_all_brokers(
            call, ApiKey.DESCRIBE_LOG_DIRS, make.DescribeLogDirsRequest(topics=topics)
        )
    except BrokerUnreachable:
        return

    def add(part: tuple[int, Any]) -> None:
        broker_id, topic = part
        for each in topic.partitions:
            if not each.is_future_key:
                where = topic.name, each.partition_index
                replicas[where, broker_id] = each.partition_size, each.offset_lag

    parts = (
        (broker_id, topic)
        for broker_id, answer in answers
        for directory in answer.results
        for topic in directory.topics
    )
    await each_part(call, parts, add, size_of=lambda part: len(part[1].partitions))


def _offset(answer: tuple[int, int] | None) -> int | None:
    error_code, offset = answer or (1, -1)
    return None if error_code else offset


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topic-measures",
        list_topic_measures,
        "Measure a page of topics: records, sizes and end offsets",
        query=MeasuresPage,
        rights=FILTERED,
    ),
)
