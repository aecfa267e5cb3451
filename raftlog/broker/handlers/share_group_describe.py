"""ShareGroupDescribe 1: members of share groups, with their assignments (KIP-932)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidGroupId,
    KafkaError,
    TopicAuthorizationFailed,
)
from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.described_groups import (
    MAX_MEMBERS,
    NAMES_PER_PART,
    described_assignment,
)
from raftlog.broker.long_work.turns import Weighed, drawn
from raftlog.broker.rights import GROUP, TOPIC, among, demand, operations
from raftlog.metadata.features import check_share_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.SHARE_GROUP_DESCRIBE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    answered = 0

    async def described(group_id: str) -> Any:
        nonlocal answered
        try:
            check_share_version(broker.image())
            if answered >= MAX_MEMBERS:
                raise CoordinatorLoadInProgress("the response is full; describe this group again")
            demand(broker, request, Operation.DESCRIBE, GROUP, group_id)
            answer, size = await _describe(broker, request, make, group_id)
            if message.include_authorized_operations:
                answer = replace(answer, authorized_operations=operations(broker, request, GROUP, group_id))
            answered += size
        except KafkaError as error:
            answer = make.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message, members=()
            )
        return answer

    groups = (described(each) for each in dict.fromkeys(message.group_ids))
    return make.ShareGroupDescribeResponse(groups=groups)


async def _describe(
    broker: BrokerContext, request: RequestContext, make: Any, group_id: str
) -> tuple[Any, int]:
    """Return a group, and its size in parts. Raises KafkaError."""
    if not group_id:
        raise InvalidGroupId("a group id must not be empty")
    group = await broker.groups.read(group_id)
    if group.share is None:
        raise GroupIdNotFound(f"group {group_id} is not a share group")
    membership, image, size = group.share.consumer, broker.image(), 0
    topic_ids: set[UUID] = set()

    async def member(member_id: str) -> Weighed:
        nonlocal size
        it, current = membership.members[member_id], membership.current_assignment_of(member_id)
        topic_ids.update(current.assigned)
        work = 1 + len(it.topics) // NAMES_PER_PART + len(current.assigned)
        size += work
        described = make.Member(
            member_id=member_id,
            rack_id=it.rack_id,
            member_epoch=current.epoch,
            client_id=it.client_id,
            client_host=it.client_host,
            subscribed_topic_names=it.topics,
            assignment=await described_assignment(broker, make, current.assigned),
        )
        return Weighed(described, work)

    members = await drawn(broker.env, (member(each) for each in membership.members))
    assigned = {image.topic_names[each] for each in topic_ids if each in image.topic_names}
    if await among(broker, request, Operation.DESCRIBE, TOPIC, assigned, log_if_denied=True) != assigned:
        raise TopicAuthorizationFailed("the caller may not describe some topics of the group")
    described = make.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=membership.epoch,
        assignment_epoch=membership.target_epoch,
        assignor_name=broker.config.group_share_assignors[0],
        members=members,
    )
    return described, size


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.DESCRIBE, ResourceType.GROUP), Right(Operation.DESCRIBE, ResourceType.TOPIC))
    ),
    max_parts=NAMES,
    audit=NoChange(),
    controllers=False,
)
