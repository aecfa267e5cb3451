"""DescribeTopicPartitions 0: topics page by page, in the order of their names (KIP-966)."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any, Final

from raftlog.base.errors import (
    NONE,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from raftlog.base.turns import in_slices
from raftlog.base.types import INTERNAL_TOPICS, is_legal_topic_name
from raftlog.broker.api import Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.metadata_view import BrokersView
from raftlog.broker.rights import TOPIC, among, operations
from raftlog.metadata.image import PartitionState, TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_TOPIC_PARTITIONS

PARTITIONS_MAX: Final = 2000
"""The limit of partitions in a response (max.request.partition.size.limit). A missing topic counts as one partition."""

NAMES_AT_ONCE: Final = 5_000
"""Names that are compared with the cursor's between two turns of the loop, some ms."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond from the newest image, up to the limit. The cursor is where to continue."""
    image = broker.image()
    asked = {topic.name for topic in message.topics}
    first, first_partition = _start(message, asked)
    visible = await among(
        broker, request, Operation.DESCRIBE, TOPIC, asked or image.topics, log_if_denied=bool(asked)
    )
    named = [name async for name in in_slices(broker.env, asked or visible, NAMES_AT_ONCE) if name >= first]
    names = sorted(named)[: PARTITIONS_MAX + 1]
    page = _Page(
        BrokersView(image.brokers, request.listener),
        message.response_partition_limit,
        partial(operations, broker, request, TOPIC),
    )

    def add(name: str) -> None:
        topic = image.topics.get(name)
        if page.next_cursor is not None:
            return
        if name not in visible:
            page.add_missing(name, TopicAuthorizationFailed.code)
        elif topic is None:
            legal = is_legal_topic_name(name)
            page.add_missing(name, UnknownTopicOrPartition.code if legal else InvalidTopic.code)
        else:
            page.add(topic, first_partition if name == first else 0)

    await each_part(broker.env, names, add)
    make = page.make
    return make.DescribeTopicPartitionsResponse(
        throttle_time=0, topics=tuple(page.topics), next_cursor=page.next_cursor
    )


def error_response(_request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the same error for each topic."""
    make = response_builders(API_KEY, 0)
    return make.DescribeTopicPartitionsResponse(
        throttle_time=0,
        topics=(
            make.DescribeTopicPartitionsResponseTopic(error_code=error.code, name=name, topic_id=None)
            for name in sorted({topic.name for topic in message.topics})
        ),
    )


def _start(message: Any, asked: Container[str]) -> tuple[str, int]:
    """Return where the response begins.

    Raises InvalidRequest for a cursor that no response to this request could have.
    """
    cursor = message.cursor
    if cursor is None:
        return "", 0
    if cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor's partition_index must be at least 0, not {cursor.partition_index}")
    if asked and cursor.topic_name not in asked:
        raise InvalidRequest(f"the cursor is at topic {cursor.topic_name!r}, which is not in this request")
    return cursor.topic_name, cursor.partition_index


class _Page:
    """A response that is filled up to its limit of partitions."""

    def __init__(self, brokers: BrokersView, limit: int, operations_of: Callable[[str], int]) -> None:
        self.make = response_builders(API_KEY, 0)
        self.topics: list[Any] = []
        self.next_cursor: Any = None
        self._brokers = brokers
        self._operations_of = operations_of
        self._room = max(1, min(limit, PARTITIONS_MAX))

    def add(self, topic: TopicState, first_partition: int) -> None:
        """Add a topic's partitions, beginning with `first_partition`. Set the cursor if the page is full."""
        end = min(len(topic.partitions), first_partition + self._room)
        if self._room:
            self.topics.append(self._topic(topic, range(first_partition, end)))
            self._room -= max(0, end - first_partition)
        if end < len(topic.partitions):
            self.next_cursor = self.make.Cursor(topic_name=topic.name, partition_index=end)

    def add_missing(self, name: str, error_code: int) -> None:
        """Add a topic that has only an error, as one partition. Set the cursor if there is no room for it."""
        if not self._room:
            self.next_cursor = self.make.Cursor(topic_name=name, partition_index=0)
            return
        self._room -= 1
        self.topics.append(
            self.make.DescribeTopicPartitionsResponseTopic(
                error_code=error_code,
                name=name,
                topic_id=None,
                is_internal=name in INTERNAL_TOPICS,
            )
        )

    def _topic(self, topic: TopicState, indexes: range) -> Any:
        return self.make.DescribeTopicPartitionsResponseTopic(
            error_code=NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(self._partition(index, topic.partitions[index]) for index in indexes),
            topic_authorized_operations=self._operations_of(topic.name),
        )

    def _partition(self, index: int, state: PartitionState) -> Any:
        error_code, leader, offline = self._brokers.see(state)
        return self.make.DescribeTopicPartitionsResponsePartition(
            error_code=error_code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            eligible_leader_replicas=state.eligible,
            last_known_elr=(),
            offline_replicas=offline,
        )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=DemandedPerPart((Right(Operation.DESCRIBE, ResourceType.TOPIC),)),
    max_parts=20_000,  # names, sorted at once; the response has a limit of its own
    audit=NoChange(),
    controllers=False,
)
