"""ConsumerGroupDescribe 0-1: members of consumer groups, what they have and what they shall have (KIP-848)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import GroupIdNotFound, InvalidGroupId, KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.coordinator.consumer.draft import preferred_assignor
from raftlog.coordinator.consumer.state import ConsumerMembership, Partitions
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per group."""
    make = response_shapes(API_KEY, request.api_version)
    return make.ConsumerGroupDescribeResponse(
        groups=tuple([await _describe(broker, make, each) async for each in in_turns(message.group_ids)])
    )


async def _describe(broker: BrokerContext, make: Any, group_id: str) -> Any:
    try:
        if not group_id:
            raise InvalidGroupId("a group id must not be empty")
        group = await broker.groups.read(group_id)
        if group.consumer is None:
            raise GroupIdNotFound(f"group {group_id} is not a consumer group")
    except KafkaError as error:
        return make.DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.message, members=()
        )
    return make.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.consumer.epoch,
        assignment_epoch=group.consumer.target_epoch,
        assignor_name=preferred_assignor(group.consumer, broker.config.group_consumer_assignors),
        members=_members(make, group.consumer, broker.image()),
    )


def _members(make: Any, membership: ConsumerMembership, image: MetadataImage) -> tuple[Any, ...]:
    return tuple(
        make.Member(
            member_id=member_id,
            instance_id=it.instance_id,
            rack_id=it.rack_id,
            member_epoch=membership.current_of(member_id).epoch,
            client_id=it.client_id,
            client_host=it.client_host,
            subscribed_topic_names=it.topics,
            subscribed_topic_regex=it.regex,
            assignment=_assignment(make, membership.current_of(member_id).assigned, image),
            target_assignment=_assignment(make, membership.target_of(member_id), image),
            member_type=CONSUMER_MEMBER if it.classic is None else CLASSIC_MEMBER,
        )
        for member_id, it in membership.members.items()
    )


def _assignment(make: Any, partitions: Partitions, image: MetadataImage) -> Any:
    """A topic that was deleted has no name any longer, and is left out."""
    return make.Assignment(
        topic_partitions=tuple(
            make.TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topic_names[topic_id],
                partitions=tuple(sorted(indexes)),
            )
            for topic_id, indexes in partitions.items()
            if topic_id in image.topic_names
        )
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Answer each group with the same failure."""
    make = response_shapes(API_KEY, request.api_version)
    return make.ConsumerGroupDescribeResponse(
        groups=tuple(
            make.DescribedGroup(group_id=each, error_code=error.code, error_message=error.message, members=())
            for each in message.group_ids
        )
    )
