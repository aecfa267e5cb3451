"""ConsumerGroupDescribe 0-1: members of consumer groups, with their current and target assignments (KIP-848)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.described_groups import (
    DescribedKind,
    describe_groups,
    described_assignment,
)
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership, Partitions
from raftlog.coordinator.consumer.decision_builder import preferred_assignor
from raftlog.coordinator.consumer.reconcile import union
from raftlog.metadata.features import check_group_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    return make.ConsumerGroupDescribeResponse(groups=describe_groups(broker, request, message, _KIND))


def _partitions(membership: ConsumerMembership, member_id: str) -> tuple[Partitions, ...]:
    current = membership.current_assignment_of(member_id)
    return current.assigned, membership.target_assignment_of(member_id)


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


_KIND: Final = DescribedKind(
    "consumer",
    check_group_version,
    membership_of=lambda group: group.consumer,
    assignor_of=lambda broker, membership: preferred_assignor(
        membership, broker.config.group_consumer_assignors
    ),
    partitions_of=_partitions,
    describe_member=_member,
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
