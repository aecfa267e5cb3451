"""ShareGroupDescribe 1: members of share groups, with their assignments (KIP-932)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.described_groups import (
    DescribedKind,
    describe_groups,
    described_assignment,
)
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership
from raftlog.metadata.features import check_share_version
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.SHARE_GROUP_DESCRIBE


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    return make.ShareGroupDescribeResponse(groups=describe_groups(broker, request, message, _KIND))


async def _member(broker: BrokerContext, make: Any, membership: ConsumerMembership, member_id: str) -> Any:
    it, current = membership.members[member_id], membership.current_assignment_of(member_id)
    return make.Member(
        member_id=member_id,
        rack_id=it.rack_id,
        member_epoch=current.epoch,
        client_id=it.client_id,
        client_host=it.client_host,
        subscribed_topic_names=it.topics,
        assignment=await described_assignment(broker, make, current.assigned),
    )


_KIND: Final = DescribedKind(
    "share",
    check_share_version,
    membership_of=lambda group: None if group.share is None else group.share.consumer,
    assignor_of=lambda broker, _: broker.config.group_share_assignors[0],
    partitions_of=lambda membership, member_id: (membership.current_assignment_of(member_id).assigned,),
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
