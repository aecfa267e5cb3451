"""ListOffsets 1-11: the offset for a timestamp, real or special (KIP-79, 207, 320, 734).

A search by time reads indexes and decompresses a batch, so it runs in a thread. All requests together search one
partition at a time, so the other threads stay free for syncs. The leader is looked up on the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError, NotLeaderOrFollower, UnsupportedVersion
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import count_parts
from raftlog.broker.partition_lookup import locate
from raftlog.broker.replicas.offset_search import MAX_TIMESTAMP, Found, OffsetSearch, search_all
from raftlog.broker.rights import TOPIC, demand
from raftlog.protocol.message_builders import MessageBuilders, response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = 2
READ_COMMITTED: Final = 1
NOT_FOUND: Final = (-1, -1, -1)

SPECIAL_TIMESTAMPS: Final = {-1: 1, -2: 1, MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamps, each with the first version that has it."""

SEARCHED_TOGETHER: Final = 8
"""Partitions that are searched before the turn of other requests: microseconds each, or two seconds for a large
batch."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per partition. A partition that is named twice is refused, and not searched."""
    make = response_builders(API_KEY, request.api_version)
    named = ((topic.name, each.partition_index) for topic in message.topics for each in topic.partitions)
    times = await count_parts(broker.env, named)

    def partitions(topic: Any) -> Iterator[Any]:
        for begin in range(0, len(topic.partitions), SEARCHED_TOGETHER):
            some = topic.partitions[begin : begin + SEARCHED_TOGETHER]
            listing = PendingListing(broker, request, message, topic.name, times)
            for each in some:
                yield listing.answer(make, each, searched_with=some)

    return make.ListOffsetsResponse(
        topics=(
            make.ListOffsetsTopicResponse(name=topic.name, partitions=partitions(topic))
            for topic in message.topics
        )
    )


class PendingListing:
    """Some partitions of one topic: their searches and their results."""

    def __init__(
        self,
        broker: BrokerContext,
        request: RequestContext,
        message: Any,
        topic: str,
        times: Counter[tuple[str, int]],
    ) -> None:
        self._broker = broker
        self._request = request
        self._topic = topic
        self._times = times
        self._replica = message.replica_id >= 0 and message.replica_id == request.peer_broker_id
        self._read_committed = getattr(message, "isolation_level", 0) == READ_COMMITTED
        self._searches: dict[int, OffsetSearch] | None = None
        """Keyed by partition; None before the search."""

    async def _search_all(self, wanted: Sequence[Any]) -> dict[int, OffsetSearch]:
        """Search the partitions requested by timestamp, unless the client no longer waits for the response."""
        searches = {
            each.partition_index: search
            for each in wanted
            if _is_searched(each) and (search := self._search(each)) is not None
        }
        if searches:
            await search_all(
                self._broker, tuple(searches.values()), is_wanted=lambda: self._request.is_awaited
            )
        return searches

    def _search(self, wanted: Any) -> OffsetSearch | None:
        """Return the search to make, or None where there is only an error to report."""
        try:
            self._check(wanted)
            partition = locate(self._broker, self._topic, wanted.partition_index)
        except KafkaError:
            return None
        return OffsetSearch(partition, wanted.timestamp) if partition.is_leader else None

    def _check(self, wanted: Any) -> None:
        demand(self._broker, self._request, Operation.DESCRIBE, TOPIC, self._topic)
        if self._times[self._topic, wanted.partition_index] > 1:
            raise InvalidRequest("the partition is named twice")
        version = self._request.api_version
        if wanted.timestamp < 0 and version < SPECIAL_TIMESTAMPS.get(wanted.timestamp, version + 1):
            raise UnsupportedVersion(f"timestamp {wanted.timestamp} has no meaning in version {version}")

    async def answer(self, make: MessageBuilders, wanted: Any, *, searched_with: Sequence[Any]) -> Any:
        """Return the result of a partition, which is searched together with some others."""
        if self._searches is None:
            self._searches = await self._search_all(searched_with)
        index = wanted.partition_index
        search = self._searches[index].found if index in self._searches else None
        if search is None and _is_searched(wanted):
            search = _ask_again  # it does not lead, or only since the search began
        try:
            self._check(wanted)
            listed = locate(self._broker, self._topic, index).offset_for_timestamp(
                wanted.timestamp,
                current_leader_epoch=getattr(wanted, "current_leader_epoch", -1),
                read_committed=self._read_committed,
                replica=self._replica,
                search=search,
            )
        except KafkaError as error:
            return make.ListOffsetsPartitionResponse(
                partition_index=index, error_code=error.code, offset=-1, timestamp=-1
            )
        offset, timestamp, leader_epoch = listed or NOT_FOUND
        return make.ListOffsetsPartitionResponse(
            partition_index=index, offset=offset, timestamp=timestamp, leader_epoch=leader_epoch
        )


def _is_searched(wanted: Any) -> bool:
    return bool(wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP)


def _ask_again() -> Found:
    raise NotLeaderOrFollower("the partition's leader changed during this request")


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.DESCRIBE, ResourceType.TOPIC),)),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(11, 7),
)
