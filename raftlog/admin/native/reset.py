"""Resets a consumer group's offsets while it has no members; `validate_only` shows the result without a change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec

from raftlog.admin.broker_questions import Where, coordinator_of, list_offsets
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, check
from raftlog.admin.kafka_rest.groups import committed_offsets, described_group
from raftlog.admin.route import TOPIC, Call, Route, of_group
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

EARLIEST: Final = -2
LATEST: Final = -1
MAX_PARTITIONS: Final = 10_000
INT64_MAX: Final = 2**63 - 1

Whole = Annotated[int, msgspec.Meta(ge=-INT64_MAX, le=INT64_MAX)]


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """The new offset: beginning or end, the first record of a `timestamp` (ms) or later, an `offset`, or a `shift`.

    Without `partition_ids`: all partitions of the topic. An offset beyond a partition's ends becomes that end.
    """

    topic_name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    to: Literal["earliest", "latest", "timestamp", "offset", "shift"]
    value: Whole | None = None
    partition_ids: list[Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]] | None = None
    validate_only: bool = False


class NewOffset(msgspec.Struct):
    """One partition. `current_offset` null: the group has none. The others: where the partition begins and ends."""

    topic_name: str
    partition_id: int
    current_offset: int | None
    new_offset: int
    beginning_offset: int
    next_offset: int


class NewOffsets(msgspec.Struct):
    """`done` false: it was only shown."""

    consumer_group_id: str
    done: bool
    data: list[NewOffset]


async def reset_offsets(call: Call) -> NewOffsets:
    """Reset a group's offsets; 409 while it has members, which would go on from their own positions."""
    wanted: Reset = call.body
    group_id = call.path["consumer_group_id"]
    call.audit.update(
        group=group_id, topic=wanted.topic_name, to=wanted.to, validate_only=wanted.validate_only
    )
    call.demand(Operation.READ, TOPIC, wanted.topic_name)
    if wanted.value is None and wanted.to in ("timestamp", "offset", "shift"):
        raise ApiError(400, f"value is missing: {wanted.to} needs one")
    partitions = named_partitions(call, wanted)
    found, broker_id = await described_group(call)
    if found.members and not wanted.validate_only:
        many = len(found.members)
        raise ApiError(
            409,
            f"group {group_id[:249]} has {many} {'member' if many == 1 else 'members'}: stop its consumers first",
        )
    committed = await committed_offsets(call, group_id, broker_id)
    offsets = await new_offsets(call, wanted, partitions, committed)
    if not wanted.validate_only:
        await _commit(call, group_id, offsets)
    return NewOffsets(group_id, not wanted.validate_only, offsets)


def named_partitions(call: Call, wanted: Reset) -> list[Where]:
    """Return the partitions that a request is about. Raise ApiError for a topic or partition that does not exist."""
    topic = call.node.image().topics.get(wanted.topic_name)
    if topic is None:
        raise ApiError(404, f"topic {wanted.topic_name} does not exist", code=UNKNOWN_PARTITION)
    count = len(topic.partitions)
    indexes = sorted(set(range(count) if wanted.partition_ids is None else wanted.partition_ids))
    if len(indexes) > MAX_PARTITIONS:
        raise ApiError(400, f"partition_ids: at most {MAX_PARTITIONS}, not {len(indexes)}")
    if indexes and indexes[-1] >= count:
        raise ApiError(
            404,
            f"partition {indexes[-1]} of topic {wanted.topic_name} does not exist",
            code=UNKNOWN_PARTITION,
        )
    return [(wanted.topic_name, each) for each in indexes]


async def new_offsets(
    call: Call, wanted: Reset, partitions: list[Where], committed: dict[Where, int]
) -> list[NewOffset]:
    """Return what a reset makes of each partition. `committed`: the present offsets."""
    begins = await offsets_at(call, partitions, EARLIEST)
    ends = await offsets_at(call, partitions, LATEST)
    at_time: dict[Where, int] = {}
    if wanted.to == "timestamp":
        assert wanted.value is not None, "it was looked at"
        at_time = await offsets_at(call, partitions, max(0, wanted.value))
    found = []
    for where in partitions:
        begin, end, current = begins[where], ends[where], committed.get(where)
        if wanted.to == "timestamp":
            new = end if at_time[where] < 0 else at_time[where]
        else:
            new = _target(wanted, begin=begin, end=end, current=current)
        found.append(NewOffset(*where, current, min(max(new, begin), end), begin, end))
    return found


def _target(wanted: Reset, *, begin: int, end: int, current: int | None) -> int:
    if wanted.to == "earliest":
        return begin
    if wanted.to == "latest":
        return end
    assert wanted.value is not None, "it was looked at"
    if wanted.to == "offset":
        return wanted.value
    return (begin if current is None else current) + wanted.value


async def offsets_at(call: Call, partitions: Iterable[Where], timestamp: int) -> dict[Where, int]:
    answers = await list_offsets(call, dict.fromkeys(partitions, timestamp))
    for (topic, index), (error_code, _) in answers.items():
        check(error_code, about=f"{topic}-{index}")
    return {where: offset for where, (_, offset) in answers.items()}


async def _commit(call: Call, group_id: str, offsets: list[NewOffset]) -> None:
    if not offsets:
        return
    make = builders_for(ApiKey.OFFSET_COMMIT)
    rows = tuple(
        make.OffsetCommitRequestPartition(
            partition_index=each.partition_id,
            committed_offset=each.new_offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for each in offsets
    )
    request = make.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(make.OffsetCommitRequestTopic(name=offsets[0].topic_name, partitions=rows),),
    )
    response = await call.asker.ask(
        ApiKey.OFFSET_COMMIT, request, broker_id=await coordinator_of(call, group_id)
    )
    for topic in response.topics:
        for each in topic.partitions:
            check(each.error_code, about=f"{topic.name}-{each.partition_index} of group {group_id[:249]}")


ROUTES: Final = (
    Route(
        "POST",
        "/v1/consumer-groups/{consumer_group_id}/reset",
        reset_offsets,
        "Reset a consumer group's offsets, or show the result",
        body=Reset,
        rights=of_group(Operation.READ),
    ),
)
