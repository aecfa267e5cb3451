"""Routes for share groups (KIP-932): list them, describe members and offsets, reset offsets."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from raftlog.admin.broker_questions import coordinator_of
from raftlog.admin.errors import ApiError, check
from raftlog.admin.kafka_rest.groups import STATES
from raftlog.admin.kafka_rest.share_groups import (
    delete_share_group,
    describe_share_group,
    listed_share_groups,
    of_share_group,
    share_offsets,
)
from raftlog.admin.native.reset import NewOffset, NewOffsets, Reset, Whole, named_partitions, new_offsets
from raftlog.admin.route import FILTERED, TOPIC, Call, Route
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation


class ShareGroupName(msgspec.Struct):
    """A share group in the list. `state` is STABLE if the group has members, otherwise EMPTY."""

    share_group_id: str
    state: str
    coordinator: int


class ShareGroupNames(msgspec.Struct):
    data: list[ShareGroupName]


class ShareMember(msgspec.Struct):
    """A member, with the partitions that it reads; other members may read them too."""

    member_id: str
    member_epoch: int
    client_id: str
    host: str
    partitions: list[SharedPartition]


class SharedPartition(msgspec.Struct):
    topic_name: str
    partition_id: int


class ShareOffset(msgspec.Struct):
    """The offset of a group in a partition: all records before `start_offset` are done. Null until it is known."""

    topic_name: str
    partition_id: int
    start_offset: int | None
    lag: int | None


class ShareGroup(msgspec.Struct):
    """A share group."""

    share_group_id: str
    state: str
    coordinator: int
    assignor: str
    epoch: int
    members: list[ShareMember]
    offsets: list[ShareOffset]


class ShareReset(msgspec.Struct, forbid_unknown_fields=True):
    """The new start offset: beginning or end, the first record of a `timestamp` (ms) or later, or an `offset`.

    Without `partition_ids`: all partitions of the topic. An offset beyond a partition's ends becomes that end.
    """

    topic_name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    to: Literal["earliest", "latest", "timestamp", "offset"]
    value: Whole | None = None
    partition_ids: list[Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]] | None = None
    validate_only: bool = False


async def list_share_groups(call: Call) -> ShareGroupNames:
    """Return the groups of all coordinators that answer."""
    found = await listed_share_groups(call)
    return ShareGroupNames(
        [ShareGroupName(each, state, broker_id) for each, (broker_id, state) in sorted(found.items())]
    )


async def get_share_group(call: Call) -> ShareGroup:
    """Return a group, without the topics that the caller may not see."""
    group_id, broker_id, found = await describe_share_group(call)
    members = [
        ShareMember(
            each.member_id,
            each.member_epoch,
            each.client_id,
            each.client_host,
            [
                SharedPartition(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ],
        )
        for each in found.members
    ]
    offsets = await _offsets(call, group_id, broker_id)
    named = {each.topic_name for each in offsets} | {
        p.topic_name for each in members for p in each.partitions
    }
    seen = await call.among(Operation.DESCRIBE, TOPIC, named)
    for member in members:
        member.partitions = [each for each in member.partitions if each.topic_name in seen]
    return ShareGroup(
        group_id,
        STATES.get(found.group_state, "UNKNOWN"),
        broker_id,
        found.assignor_name,
        found.group_epoch,
        members,
        [each for each in offsets if each.topic_name in seen],
    )


async def reset_share_group(call: Call) -> NewOffsets:
    """Set the start offsets of a group, which may be new; 409 while it has members."""
    wanted: ShareReset = call.body
    group_id = call.path["share_group_id"]
    call.audit.update(
        group=group_id, topic=wanted.topic_name, to=wanted.to, validate_only=wanted.validate_only
    )
    call.demand(Operation.READ, TOPIC, wanted.topic_name)
    if wanted.value is None and wanted.to in ("timestamp", "offset"):
        raise ApiError(400, f"value is missing: {wanted.to} needs one")
    reset = Reset(wanted.topic_name, wanted.to, wanted.value, wanted.partition_ids, wanted.validate_only)
    partitions = named_partitions(call, reset)
    broker_id = await coordinator_of(call, group_id)
    at = {
        (each.topic_name, each.partition_id): each.start_offset
        for each in await _offsets(call, group_id, broker_id)
        if each.start_offset is not None
    }
    offsets = await new_offsets(call, reset, partitions, at)
    if not wanted.validate_only:
        await _alter(call, group_id, broker_id, offsets)
    return NewOffsets(group_id, not wanted.validate_only, offsets)


async def delete_share_offsets(call: Call) -> None:
    """Delete a group's offsets of one topic; 409 while it has members."""
    group_id, topic = call.path["share_group_id"], call.path["topic_name"]
    call.audit.update(group=group_id, topic=topic)
    call.demand(Operation.READ, TOPIC, topic)
    make = builders_for(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
    request = make.DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=(make.DeleteShareGroupOffsetsRequestTopic(topic_name=topic),)
    )
    broker_id = await coordinator_of(call, group_id)
    response = await call.asker.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request, broker_id=broker_id)
    check(response.error_code, response.error_message, about=f"group {group_id[:249]}")
    for each in response.responses:
        check(each.error_code, each.error_message, about=f"topic {topic} of group {group_id[:249]}")


# -- the coordinator -----------------------------------------------------------------------------------------


async def _offsets(call: Call, group_id: str, broker_id: int) -> list[ShareOffset]:
    return [
        ShareOffset(
            topic.topic_name, each.partition_index, _known(int(each.start_offset)), _known(int(each.lag))
        )
        for topic in await share_offsets(call, group_id, broker_id)
        for each in topic.partitions
    ]


def _known(number: int) -> int | None:
    return None if number < 0 else number


async def _alter(call: Call, group_id: str, broker_id: int, offsets: list[NewOffset]) -> None:
    if not offsets:
        return
    make = builders_for(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
    rows = tuple(
        make.AlterShareGroupOffsetsRequestPartition(
            partition_index=each.partition_id, start_offset=each.new_offset
        )
        for each in offsets
    )
    topic = make.AlterShareGroupOffsetsRequestTopic(topic_name=offsets[0].topic_name, partitions=rows)
    request = make.AlterShareGroupOffsetsRequest(group_id=group_id, topics=(topic,))
    response = await call.asker.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request, broker_id=broker_id)
    check(response.error_code, response.error_message, about=f"group {group_id[:249]}")
    for it in response.responses:
        for each in it.partitions:
            about = f"{it.topic_name}-{each.partition_index} of group {group_id[:249]}"
            check(each.error_code, each.error_message, about=about)


ONE: Final = "/v1/share-groups/{share_group_id}"

ROUTES: Final = (
    Route("GET", "/v1/share-groups", list_share_groups, "List the share groups", rights=FILTERED),
    Route(
        "GET",
        ONE,
        get_share_group,
        "A share group: its members, its start offsets and lag",
        rights=of_share_group(Operation.DESCRIBE),
    ),
    Route(
        "POST",
        f"{ONE}/reset",
        reset_share_group,
        "Reset a share group's start offsets, or show the result",
        body=ShareReset,
        rights=of_share_group(Operation.READ),
    ),
    Route(
        "DELETE",
        ONE,
        delete_share_group,
        "Delete a share group, with the delivery state of its records",
        status=204,
        rights=of_share_group(Operation.DELETE),
    ),
    Route(
        "DELETE",
        f"{ONE}/topics/{{topic_name}}",
        delete_share_offsets,
        "Delete a share group's offsets of a topic",
        status=204,
        rights=of_share_group(Operation.DELETE),
    ),
)
