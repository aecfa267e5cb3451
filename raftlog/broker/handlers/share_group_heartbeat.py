"""ShareGroupHeartbeat 1: join, stay in, or leave a share group (KIP-932).

A group that needs states of partitions gets them before the response leaves: its first response has an assignment.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from raftlog.base.config import group_config
from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.group_heartbeats import assignment_field, check_subscription
from raftlog.broker.handlers.shared.share_changes import NO_RETRY, initialize_states, succeeded
from raftlog.coordinator.consumer.heartbeat_requests import LEAVE_GROUP_MEMBER_EPOCH
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.share.share_heartbeat import (
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareStatesReady,
)
from raftlog.metadata.features import check_share_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.SHARE_GROUP_HEARTBEAT


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once the changes of the heartbeat are committed."""
    check_share_version(broker.image())
    if not message.group_id:
        raise InvalidRequest("group_id must not be empty")
    await check_subscription(broker, request, message.subscribed_topic_names)
    heard = await _beat(broker, request, message)
    make = response_builders(API_KEY, request.api_version)
    configs = group_config(broker.config, broker.image().config("group", message.group_id))
    leaves = message.member_epoch == LEAVE_GROUP_MEMBER_EPOCH
    return build_response(
        API_KEY,
        request.api_version,
        member_id=heard.member_id,
        member_epoch=heard.epoch,
        heartbeat_interval=0 if leaves else configs.share_heartbeat_interval_ms,
        assignment=assignment_field(make, heard.assignment),
    )


async def _beat(broker: BrokerContext, request: RequestContext, message: Any) -> ShareGroupHeartbeatResult:
    """Return the result of a heartbeat; with states to initialize, of another after they are."""
    beat = ShareGroupHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        epoch=message.member_epoch,
        rack_id=message.rack_id,
        topics=message.subscribed_topic_names,
        client_id=request.client_id or "",
        client_host=f"/{request.peer_host}",
    )
    heard: ShareGroupHeartbeatResult = await broker.groups.ask(GroupCoordinator.share_group_heartbeat, beat)
    if heard.work is None:
        return heard
    work = heard.work
    wanted = {topic_id: partitions for topic_id, (partitions, _) in work.topics.items()}
    starts = {
        topic_id: dict.fromkeys(partitions, start) for topic_id, (partitions, start) in work.topics.items()
    }
    try:
        outcomes = await initialize_states(broker, work.group_id, work.state_epoch, starts, pauses_s=NO_RETRY)
        ready = ShareStatesReady(work.group_id, await succeeded(broker, outcomes, wanted))
        await broker.groups.ask(GroupCoordinator.share_states_ready, ready)
        if ready.partitions == wanted:
            again = msgspec.structs.replace(beat, epoch=heard.epoch)
            heard = await broker.groups.ask(GroupCoordinator.share_group_heartbeat, again)
    except KafkaError:
        return heard  # a later heartbeat has it done again
    return heard


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded(
        (Right(Operation.READ, ResourceType.GROUP, "group_id"),),
        by_part=(Right(Operation.DESCRIBE, ResourceType.TOPIC),),
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(1,),
)
