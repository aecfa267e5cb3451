"""Shared parts of OffsetCommit and TxnOffsetCommit: the commit limits, the batches, and a code for each offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from raftlog.base.errors import NONE, InvalidCommitOffsetSize, KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.rights import TOPIC, may, refusal
from raftlog.coordinator.group_requests import OffsetCommit
from raftlog.metadata.image import TopicState
from raftlog.security.acls import Operation

MAX_OFFSETS: Final = 10_000
"""Offsets of one request. Apache Kafka has no such bound, but the same error for what is beyond its largest batch:
some ten thousand offsets, by their names.
"""
COMMITS_PER_BATCH: Final = 500
"""Offsets of one batch, decided in one turn of the loop, some 10 µs each.

A response has a code for each offset, so the batches of a request may end differently. A rebalance or a deleted topic
may come between them. Each batch is checked against the topics that exist."""

RequestRow = tuple[int, int]
"""A commit's place in the request: which topic, which of its partitions."""

Codes = Mapping[RequestRow, int]


def rows_of(message: Any) -> Iterator[tuple[RequestRow, Any]]:
    """Yield the partitions of a request with their places."""
    for row, topic in enumerate(message.topics):
        for column, each in enumerate(topic.partitions):
            yield (row, column), each


def check_size(message: Any) -> None:
    """Raise InvalidCommitOffsetSize."""
    count = sum(len(topic.partitions) for topic in message.topics)
    if count > MAX_OFFSETS:
        raise InvalidCommitOffsetSize(f"a request may commit at most {MAX_OFFSETS} offsets, not {count}")


def topic_of(broker: BrokerContext, asked: Any) -> TopicState | None:
    """Return a topic of a request, by its name or id; None if it does not exist."""
    image = broker.image()
    if hasattr(asked, "name"):
        return image.topics.get(asked.name)
    return None if asked.topic_id is None else image.topic_by_id(asked.topic_id)


def denied_code(broker: BrokerContext, request: RequestContext, asked: Any, topic: TopicState | None) -> int:
    """Return the error code for a topic that the sender may not read, 0 for any other."""
    name = topic.name if topic is not None else getattr(asked, "name", None)
    if name is None or may(broker, request, Operation.READ, TOPIC, name, log_if_denied=True):
        return NONE
    return refusal(TOPIC).code


async def commit_in_batches(
    commits: Mapping[RequestRow, OffsetCommit],
    commit: Callable[[tuple[OffsetCommit, ...]], Awaitable[tuple[int, ...]]],
) -> dict[RequestRow, int]:
    """Commit offsets in batches, one by one; return the code of each. `commit` returns the codes of one batch."""
    codes: dict[RequestRow, int] = {}
    rows = iter(commits.items())
    while batch := dict(islice(rows, COMMITS_PER_BATCH)):
        try:
            answers = await commit(tuple(batch.values()))
        except KafkaError as error:
            answers = (error.code,) * len(batch)
        codes.update(zip(batch, answers, strict=True))
    return codes


async def answered(
    message: Any, codes: Awaitable[Codes], make_topic: Callable[..., Any], make_partition: Callable[..., Any]
) -> Iterator[Any]:
    """Return the topics of a response: each partition with its code, or with the error raised for all."""
    try:
        found = await codes
    except KafkaError as error:
        found = defaultdict(lambda code=error.code: code)  # type: ignore[misc]

    def partitions(row: int, asked: Any) -> Iterator[Any]:
        for column, each in enumerate(asked.partitions):
            yield make_partition(partition_index=each.partition_index, error_code=found[row, column])

    return (
        make_topic(
            name=getattr(asked, "name", None),
            topic_id=getattr(asked, "topic_id", None),
            partitions=partitions(row, asked),
        )
        for row, asked in enumerate(message.topics)
    )
