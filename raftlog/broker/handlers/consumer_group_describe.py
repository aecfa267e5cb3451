"""ConsumerGroupDescribe 0-1: members of consumer groups, with their current and target assignments (KIP-848)."""

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
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership
from raftlog.coordinator.consumer.decision_builder import preferred_assignor
from raftlog.coordinator.consumer.reconcile import union
from raftlog.metadata.features import check_group_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    answered = 0

    async def described(group_id: str) -> Any:
        nonlocal answered
        try:
            check_group_version(broker.image())
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
    return make.ConsumerGroupDescribeResponse(groups=groups)


async def _describe(
    broker: BrokerContext, request: RequestContext, make: Any, group_id: str
) -> tuple[Any, int]:
    """Return a group, and its size in parts. Raises KafkaError."""
    if not group_id:
        raise InvalidGroupId("a group id must not be empty")
    group = await broker.groups.read(group_id)
    membership = group.consumer
    if membership is None:
        raise GroupIdNotFound(f"group {group_id} is not a consumer group")
    image, size = broker.image(), 0
    topic_ids: set[UUID] = set()

    async def member(member_id: str) -> Weighed:
        nonlocal size
        has, shall_have = (
            membership.current_assignment_of(member_id).assigned,
            membership.target_assignment_of(member_id),
        )
        topic_ids.update(has, shall_have)
        names = 1 + len(membership.members[member_id].topics) // NAMES_PER_PART
        work = names + len(has) + len(shall_have)
        size += work
        return Weighed(await _member(broker, make, membership, member_id), work)

    members = await drawn(broker.env, (member(each) for each in membership.members))
    assigned = {image.topic_names[each] for each in topic_ids if each in image.topic_names}
    if await among(broker, request, Operation.DESCRIBE, TOPIC, assigned, log_if_denied=True) != assigned:
        raise TopicAuthorizationFailed("the caller may not describe some topics of the group")
    described = make.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=membership.epoch,
        assignment_epoch=membership.target_epoch,
        assignor_name=preferred_assignor(membership, broker.config.group_consumer_assignors),
        members=members,
    )
    return described, size


async def _member(broker: BrokerContext, make: Any, membership: ConsumerMembership, member_id: str) -> Any:
    """A member keeps the partitions that it must revoke, until it has confirmed the revocation."""
    it, current = membership.members[member_id], membership.current_assignment_of(member_id)
    held = union(current.assigned, current.revoking) if current.revoking else current.assigned
    return make.Member(
        member_id=member_id,
        instance_id=it.instance_id,
        rack_id=it.rack_id,
        member_epoch=current.epoch,
        client_id=it.client_id,
        client_host=it.client_host,
        subscribed_topic_names=it.topics,
        subscribed_topic_regex=it.regex or "",
        assignment=await described_assignment(broker, make, held),
        target_assignment=await described_assignment(
            broker, make, membership.target_assignment_of(member_id)
        ),
        member_type=CONSUMER_MEMBER if it.classic is None else CLASSIC_MEMBER,
    )


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
