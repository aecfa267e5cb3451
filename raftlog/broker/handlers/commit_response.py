"""The parts that OffsetCommit and TxnOffsetCommit share: how much one may commit, in batches, with a code for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final

from raftlog.base.env import Env
from raftlog.base.errors import InvalidCommitOffsetSize, KafkaError
from raftlog.broker.turns import TurnCounter
from raftlog.coordinator.group_requests import OffsetCommit

MAX_OFFSETS: Final = 10_000
"""Offsets of one request. Apache Kafka has no such bound, but the same error for what is beyond its largest batch:
some ten thousand offsets, by their names.
"""
COMMITS_AT_ONCE: Final = 500
"""Offsets of one batch, decided in one turn of the loop, some 10 µs each.

A response has a code for each offset, so the batches of a request may end differently: after a rebalance, or where a
topic was deleted meanwhile. Each batch is held to the topics that are there.
"""

RequestRow = tuple[int, int]
"""A commit's place in the request: which topic, which of its partitions."""

Codes = Mapping[RequestRow, int]


def check_size(message: Any) -> None:
    """Raises InvalidCommitOffsetSize."""
    count = sum(len(topic.partitions) for topic in message.topics)
    if count > MAX_OFFSETS:
        raise InvalidCommitOffsetSize(f"a request commits {MAX_OFFSETS} offsets at most, not {count}")


async def commit_in_batches(
    commits: Mapping[RequestRow, OffsetCommit],
    commit: Callable[[tuple[OffsetCommit, ...]], Awaitable[tuple[int, ...]]],
) -> dict[RequestRow, int]:
    """Commit offsets, one batch after the other; return the code of each. `commit` returns the codes of one batch."""
    codes: dict[RequestRow, int] = {}
    rows = iter(commits.items())
    while batch := dict(islice(rows, COMMITS_AT_ONCE)):
        try:
            answers = await commit(tuple(batch.values()))
        except KafkaError as error:
            answers = (error.code,) * len(batch)
        codes.update(zip(batch, answers, strict=True))
    return codes


async def answered(
    env: Env,
    message: Any,
    codes: Awaitable[Codes],
    topic_of: Callable[[Any, tuple[Any, ...]], Any],
    make: Any,
) -> tuple[Any, ...]:
    """Return the topics of an answer, in turns: each partition with its code, or with what was raised for all.

    `make`: what partitions are told in, `topic_of`: a topic that was asked for, with these.
    """
    try:
        found = await codes
    except KafkaError as error:
        found = defaultdict(lambda code=error.code: code)  # type: ignore[misc]
    pace, topics = TurnCounter(env), []
    for row, asked in enumerate(message.topics):
        partitions = []
        for column, each in enumerate(asked.partitions):
            partitions.append(make(partition_index=each.partition_index, error_code=found[row, column]))
            await pace.did()
        topics.append(topic_of(asked, tuple(partitions)))
        await pace.did()  # a topic is something, too
    return tuple(topics)
