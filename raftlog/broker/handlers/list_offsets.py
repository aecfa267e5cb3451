"""ListOffsets 1-11: the offset for a timestamp, real or special (KIP-79, 207, 320, 734).

Searching by time reads indexes and unpacks a batch, so it happens away from the loop; who leads is looked at on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError, NotLeaderOrFollower, UnsupportedVersion
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.locate import locate
from raftlog.protocol.shapes import response_shapes

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

API_KEY: Final = 2
READ_COMMITTED: Final = 1
NOT_FOUND: Final = (-1, -1, -1)
MAX_TIMESTAMP: Final = -3

SPECIALS: Final = {-1: 1, -2: 1, MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamps, each with the first version that has it."""

Found = tuple[int, int, int] | None
"""(offset, timestamp, leader epoch)."""


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer each partition; one that is named twice is refused."""
    searches = [
        search
        for topic in message.topics
        for wanted in topic.partitions
        if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP
        if (search := _search(broker, topic.name, wanted)) is not None
    ]
    if searches:
        return _search_then_answer(broker, request, message, searches)
    return _answer(broker, request, message, {})


class Search:
    """The search of one partition for one time. Any thread may `run` it; `found` belongs to the loop."""

    def __init__(self, topic: str, partition: Partition, timestamp_ms: int) -> None:
        self.key = (topic, partition.index)
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._timestamp_ms = timestamp_ms
        self._outcome: Found | KafkaError | OSError = None

    def run(self) -> None:
        log = self._partition.log
        try:
            if self._timestamp_ms == MAX_TIMESTAMP:
                self._outcome = log.max_timestamp()
            else:
                self._outcome = log.offset_for_timestamp(self._timestamp_ms)
        except (KafkaError, OSError) as error:
            self._outcome = error

    def found(self) -> Found:
        """Return what was found. NotLeaderOrFollower (ask again) if the log may have changed under the search."""
        if self._partition.leader_epoch != self._leader_epoch:
            raise NotLeaderOrFollower()
        if isinstance(self._outcome, FileNotFoundError):
            raise NotLeaderOrFollower("the segment was dropped meanwhile")
        if isinstance(self._outcome, KafkaError | OSError):
            raise self._outcome
        return self._outcome


def _search(broker: BrokerContext, topic: str, wanted: Any) -> Search | None:
    """Return the search to make, None where there is only an error to tell."""
    try:
        partition = locate(broker, topic, wanted.partition_index)
    except KafkaError:
        return None
    return Search(topic, partition, wanted.timestamp) if partition.is_leader else None


async def _search_then_answer(
    broker: BrokerContext, request: RequestContext, message: Any, searches: list[Search]
) -> Any:
    def run_all() -> None:
        for each in searches:
            each.run()

    await broker.env.offload(run_all)
    return _answer(broker, request, message, {each.key: each.found for each in searches})


def _answer(
    broker: BrokerContext,
    request: RequestContext,
    message: Any,
    found: dict[tuple[str, int], Callable[[], Found]],
) -> Any:
    make = response_shapes(API_KEY, request.api_version)
    named = Counter(
        (topic.name, each.partition_index) for topic in message.topics for each in topic.partitions
    )
    replica = message.replica_id >= 0 and message.replica_id == request.peer_broker_id
    read_committed = getattr(message, "isolation_level", 0) == READ_COMMITTED

    def list_one(topic: str, wanted: Any) -> Any:
        try:
            if named[topic, wanted.partition_index] > 1:
                raise InvalidRequest("the partition is named twice")
            _check_timestamp(wanted.timestamp, request.api_version)
            listed = locate(broker, topic, wanted.partition_index).offset_for_timestamp(
                wanted.timestamp,
                current_leader_epoch=getattr(wanted, "current_leader_epoch", -1),
                read_committed=read_committed,
                replica=replica,
                search=found.get((topic, wanted.partition_index)),
            )
        except KafkaError as error:
            return make.ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index, error_code=error.code, offset=-1, timestamp=-1
            )
        offset, timestamp, leader_epoch = listed or NOT_FOUND
        return make.ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=leader_epoch,
        )

    return make.ListOffsetsResponse(
        topics=tuple(
            make.ListOffsetsTopicResponse(
                name=topic.name, partitions=tuple(list_one(topic.name, each) for each in topic.partitions)
            )
            for topic in message.topics
        )
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < SPECIALS.get(timestamp, version + 1):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {version}")
