"""The parts that OffsetCommit and TxnOffsetCommit share: how much one may commit, and a response of one code each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from raftlog.base.env import Env
from raftlog.base.errors import InvalidCommitOffsetSize, KafkaError
from raftlog.broker.turns import TurnCounter

MAX_OFFSETS: Final = 10_000
"""Offsets of one request: they are one batch, decided in one turn of the loop, some 4 µs each.

Apache Kafka has no such bound, but the same error for what is beyond its largest batch: some ten thousand offsets, by
their names. To commit slice by slice instead would let a topic be deleted between two slices, and its successor be
read from the old one's positions.
"""

RequestRow = tuple[int, int]
"""A commit's place in the request: which topic, which of its partitions."""

Codes = Mapping[RequestRow, int]


def check_size(message: Any) -> None:
    """Raises InvalidCommitOffsetSize."""
    count = sum(len(topic.partitions) for topic in message.topics)
    if count > MAX_OFFSETS:
        raise InvalidCommitOffsetSize(f"a request commits {MAX_OFFSETS} offsets at most, not {count}")


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
