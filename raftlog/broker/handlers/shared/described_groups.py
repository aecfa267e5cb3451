"""The common part of ConsumerGroupDescribe and ShareGroupDescribe: everything but the fields of a member."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidGroupId,
    KafkaError,
    TopicAuthorizationFailed,
)
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import Weighed, drawn
from raftlog.broker.rights import GROUP, TOPIC, among, demand, operations
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership, Partitions
from raftlog.coordinator.group import Group
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Operation

MAX_MEMBERS: Final = 20_000
"""Limit for the members and their topics in one response. The group that reaches the limit is still included."""

NAMES_PER_PART: Final = 10
"""Subscribed topic names that weigh as much as one part, because they need no lookup."""


class DescribedKind(NamedTuple):
    """One of the two APIs: how it reads a group, and how it describes a member."""

    name: str
    check_version: Callable[[MetadataImage], None]
    """Raises UnsupportedVersion if this kind of group is not enabled in the cluster."""
    membership_of: Callable[[Group], ConsumerMembership | None]
    assignor_of: Callable[[BrokerContext, ConsumerMembership], str]
    partitions_of: Callable[[ConsumerMembership, str], tuple[Partitions, ...]]
    """Returns the assignments of a member that the response contains."""
    describe_member: Callable[[BrokerContext, Any, ConsumerMembership, str], Awaitable[Any]]


def describe_groups(
    broker: BrokerContext, request: RequestContext, message: Any, kind: DescribedKind
) -> Iterator[Awaitable[Any]]:
    """Yield the response part of each group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(request.api_key, request.api_version)
    answered = 0

    async def described(group_id: str) -> Any:
        nonlocal answered
        try:
            kind.check_version(broker.image())
            if answered >= MAX_MEMBERS:
                raise CoordinatorLoadInProgress("the response is full; describe this group again")
            demand(broker, request, Operation.DESCRIBE, GROUP, group_id)
            answer, size = await _describe(broker, request, kind, group_id)
            if message.include_authorized_operations:
                answer = replace(answer, authorized_operations=operations(broker, request, GROUP, group_id))
            answered += size
        except KafkaError as error:
            answer = make.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message, members=()
            )
        return answer

    return (described(each) for each in dict.fromkeys(message.group_ids))


async def _describe(
    broker: BrokerContext, request: RequestContext, kind: DescribedKind, group_id: str
) -> tuple[Any, int]:
    """Return a group, and its size in parts. Raises KafkaError."""
    if not group_id:
        raise InvalidGroupId("a group id must not be empty")
    group = await broker.groups.read(group_id)
    membership = kind.membership_of(group)
    if membership is None:
        raise GroupIdNotFound(f"group {group_id} is not a {kind.name} group")
    make, image, size = response_builders(request.api_key, request.api_version), broker.image(), 0
    topic_ids: set[UUID] = set()

    async def member(member_id: str) -> Weighed:
        nonlocal size
        work = 1 + len(membership.members[member_id].topics) // NAMES_PER_PART
        for each in kind.partitions_of(membership, member_id):
            topic_ids.update(each)
            work += len(each)
        size += work
        return Weighed(await kind.describe_member(broker, make, membership, member_id), work)

    members = await drawn(broker.env, (member(each) for each in membership.members))
    assigned = {image.topic_names[each] for each in topic_ids if each in image.topic_names}
    if await among(broker, request, Operation.DESCRIBE, TOPIC, assigned, log_if_denied=True) != assigned:
        raise TopicAuthorizationFailed("the caller may not describe some topics of the group")
    described = make.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=membership.epoch,
        assignment_epoch=membership.target_epoch,
        assignor_name=kind.assignor_of(broker, membership),
        members=members,
    )
    return described, size


async def described_assignment(broker: BrokerContext, make: Any, partitions: Partitions) -> Any:
    """Return the assignment with topic names. A deleted topic no longer has a name, and is left out."""
    image = broker.image()

    def topic(topic_id: UUID, indexes: Iterable[int]) -> Any:
        name = image.topic_names.get(topic_id)
        if name is None:
            return None
        return make.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=tuple(sorted(indexes)))

    topics = await drawn(broker.env, (topic(*each) for each in partitions.items()))
    return make.Assignment(topic_partitions=topics)
