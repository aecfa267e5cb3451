"""ConsumerGroupHeartbeat 0-1: join, stay in, change or leave a consumer group (KIP-848; by regular expression: v1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from raftlog.base.config import group_config
from raftlog.base.errors import InvalidRequest
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.group_heartbeats import assignment_field, check_subscription
from raftlog.broker.rights import viewer
from raftlog.coordinator.consumer.consumer_membership import Partitions
from raftlog.coordinator.consumer.decision_builder import MAX_SUBSCRIBED_TOPICS
from raftlog.coordinator.consumer.heartbeat_requests import LEAVE_EPOCHS, ConsumerGroupHeartbeat
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.metadata.features import check_group_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT

FIRST_OWN_ID_VERSION: Final = 1
"""Since it members choose their ids themselves (KIP-1082)."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once the changes of the heartbeat are committed."""
    check_group_version(broker.image())
    if not message.group_id:
        raise InvalidRequest("group_id must not be empty")
    if not message.member_id and (request.api_version >= FIRST_OWN_ID_VERSION or message.member_epoch != 0):
        raise InvalidRequest("member_id must not be empty")
    await check_subscription(broker, request, message.subscribed_topic_names)
    heard = await broker.groups.ask(
        GroupCoordinator.consumer_group_heartbeat, _beat(broker, request, message)
    )
    configs = group_config(broker.config, broker.image().config("group", message.group_id))
    make = response_builders(API_KEY, request.api_version)
    return build_response(
        API_KEY,
        request.api_version,
        member_id=heard.member_id,
        member_epoch=heard.epoch,
        heartbeat_interval=0
        if message.member_epoch in LEAVE_EPOCHS
        else configs.consumer_heartbeat_interval_ms,
        assignment=assignment_field(make, heard.assignment),
    )


def _beat(broker: BrokerContext, request: RequestContext, message: Any) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout,
        topics=message.subscribed_topic_names,
        regex=getattr(message, "subscribed_topic_regex", None),
        assignor=message.server_assignor,
        owned=None if message.topic_partitions is None else _partitions(message.topic_partitions),
        client_id=request.client_id or "",
        client_host=f"/{request.peer_host}",
        viewer=viewer(broker, request),
    )


def _partitions(topics: Sequence[Any]) -> Partitions:
    if len(topics) > MAX_SUBSCRIBED_TOPICS:
        raise InvalidRequest(f"topic_partitions has at most {MAX_SUBSCRIBED_TOPICS} topics")
    found: dict[UUID, set[int]] = {}
    for each in topics:
        if each.topic_id is not None and each.partitions:
            found.setdefault(each.topic_id, set()).update(each.partitions)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded(
        (Right(Operation.READ, ResourceType.GROUP, "group_id"),),
        by_part=(Right(Operation.DESCRIBE, ResourceType.TOPIC),),
    ),
    max_parts=IN_TURNS,  # at once; the topics among them have a limit of their own
    audit=NoChange(),
    controllers=False,
    prepared=(1,),
)
