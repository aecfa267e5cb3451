"""DeleteRecords 0-2: move the log start offset of a partition forward (KIP-107).

The response waits until every replica in service has done so too. A leader elected right after it must not bring the
records back. Followers learn the new start from a fetch response, and confirm it with the next fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import InvalidTopic, KafkaError, PolicyViolation, RequestTimedOut
from raftlog.base.types import INTERNAL_TOPICS
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audited_changes import named_partitions
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import MAX_TIMEOUT_S, noting_images
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.partition_lookup import locate
from raftlog.broker.rights import TOPIC, demand
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

if TYPE_CHECKING:
    from raftlog.base.env import Env
    from raftlog.replication.partition import Partition

API_KEY: Final = 21
NO_LOW_WATERMARK: Final = -1


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond with the least log start offset of all replicas of each partition."""
    rows = ((topic.name, wanted) for topic in message.topics for wanted in topic.partitions)
    deletions = await each_part(broker.env, rows, lambda row: Deletion(broker, request, *row))
    await _wait(broker, message, deletions)
    return _answer(request, message, deletions)


class Deletion:
    """The deletion of records of one partition, and its progress."""

    def __init__(self, broker: BrokerContext, request: RequestContext, topic: str, wanted: Any) -> None:
        self.index: int = wanted.partition_index
        self.error_code = 0
        self.low_watermark = NO_LOW_WATERMARK
        self._target = 0
        self.partition: Partition | None = None
        """None once it has failed."""
        try:
            demand(broker, request, Operation.DELETE, TOPIC, topic)
            partition = locate(broker, topic, self.index)
            if partition.topic in INTERNAL_TOPICS:
                raise InvalidTopic(f"records of {partition.topic} can only be deleted by brokers")
            if partition.config.cleanup_policy == ("compact",):
                raise PolicyViolation("records of a topic that is only compacted cannot be deleted")
            self._target = partition.delete_records(wanted.offset)
            self.partition = partition
        except KafkaError as error:
            self.error_code = error.code

    def is_done(self) -> bool:
        """Check again; an error ends it too."""
        if self.partition is None:
            return True
        try:
            self.low_watermark = self.partition.low_watermark()
        except KafkaError as error:
            self.error_code, self.low_watermark = error.code, NO_LOW_WATERMARK
            self.partition = None
            return True
        return self.low_watermark >= self._target

    def expire(self) -> None:
        """Time out, since the leader is done, but not all followers are."""
        self.error_code = RequestTimedOut.code


async def _wait(broker: BrokerContext, message: Any, deletions: list[Deletion]) -> None:
    """Wait until all are done or have failed, or the request's timeout is over."""
    env, moved = broker.env, asyncio.Event()
    waiting = await _undone(env, deletions)
    if not waiting:
        return
    note = moved.set
    watched = {each.partition for each in waiting if each.partition is not None}
    try:
        for partition in watched:
            partition.low_watermark_waiters += (note,)
        # A follower that is fenced is not waited for any more, which only an image says.
        with noting_images(broker, note):
            async with asyncio.timeout(min(max(0, message.timeout) / 1000, MAX_TIMEOUT_S)):
                while waiting := await _undone(env, waiting):
                    await moved.wait()
                    moved.clear()
    except TimeoutError:
        for each in await _undone(env, waiting):
            each.expire()
    finally:
        for partition in watched:
            others = (each for each in partition.low_watermark_waiters if each is not note)
            partition.low_watermark_waiters = tuple(others)


async def _undone(env: Env, deletions: list[Deletion]) -> list[Deletion]:
    done = await each_part(env, deletions, lambda each: each.is_done())
    return [each for each, is_done in zip(deletions, done, strict=True) if not is_done]


def _answer(request: RequestContext, message: Any, deletions: list[Deletion]) -> Any:
    make = response_builders(API_KEY, request.api_version)
    rest = iter(deletions)

    def partitions(topic: Any) -> Iterator[Any]:
        for each in islice(rest, len(topic.partitions)):
            yield make.DeleteRecordsPartitionResult(
                partition_index=each.index, low_watermark=each.low_watermark, error_code=each.error_code
            )

    return make.DeleteRecordsResponse(
        topics=(
            make.DeleteRecordsTopicResult(name=topic.name, partitions=partitions(topic))
            for topic in message.topics
        )
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.DELETE, ResourceType.TOPIC),)),
    max_parts=IN_TURNS,
    audit=Change(
        lambda _, response: named_partitions(response.topics, "name", "partitions", "partition_index")
    ),
    controllers=False,
)
