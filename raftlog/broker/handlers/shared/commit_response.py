"""Shared parts of OffsetCommit and TxnOffsetCommit: the commit limits, the batches, and a code for each offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from raftlog.base.errors import InvalidCommitOffsetSize, KafkaError
from raftlog.coordinator.group_requests import OffsetCommit

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
    message: Any,
    codes: Awaitable[Codes],
    topic_of: Callable[[Any, Iterator[Any]], Any],
    make: Any,
) -> Iterator[Any]:
    """Return the topics of a response: each partition with its code, or with the error raised for all.

    `make` builds partitions of the response. `topic_of` builds a topic from a requested topic and its partitions.
    """
    try:
        found = await codes
    except KafkaError as error:
        found = defaultdict(lambda code=error.code: code)  # type: ignore[misc]

    def partitions(row: int, asked: Any) -> Iterator[Any]:
        for column, each in enumerate(asked.partitions):
            yield make(partition_index=each.partition_index, error_code=found[row, column])

    return (topic_of(asked, partitions(row, asked)) for row, asked in enumerate(message.topics))
