"""OffsetDelete 0: delete a group's committed offsets of topics that it does not read (KIP-496)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.errors import NONE, UnknownTopicOrPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.commit_response import check_size
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import DeleteOffsets
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.OFFSET_DELETE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per partition once the tombstones are committed. An error of the whole group has its own field."""
    check_size(message)
    known: list[tuple[str, int]] = []
    allowed = await among(
        broker,
        request,
        Operation.READ,
        TOPIC,
        (topic.name for topic in message.topics),
        log_if_denied=True,
    )

    def look_up(topic: str, index: int) -> None:
        if topic in allowed and _exists(broker, topic, index):
            known.append((topic, index))

    rows = ((topic.name, each.partition_index) for topic in message.topics for each in topic.partitions)
    await each_part(broker.env, rows, lambda row: look_up(*row))
    answers = await broker.groups.ask(
        GroupCoordinator.delete_offsets, DeleteOffsets(message.group_id, tuple(known))
    )
    codes = dict(zip(known, answers, strict=True))
    make = response_builders(API_KEY, request.api_version)

    def partitions(topic: Any) -> Iterator[Any]:
        missing = UnknownTopicOrPartition.code if topic.name in allowed else refusal(TOPIC).code
        for each in topic.partitions:
            code = codes.get((topic.name, each.partition_index), missing)
            yield make.OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)

    return make.OffsetDeleteResponse(
        error_code=NONE,
        throttle_time=0,
        topics=(
            make.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions(topic))
            for topic in message.topics
        ),
    )


def _exists(broker: BrokerContext, name: str, partition: int) -> bool:
    topic = broker.image().topics.get(name)
    return topic is not None and 0 <= partition < len(topic.partitions)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded(
        (Right(Operation.DELETE, ResourceType.GROUP, "group_id"),),
        by_part=(Right(Operation.READ, ResourceType.TOPIC),),
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
