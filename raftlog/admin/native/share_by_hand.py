"""Routes by which an operator releases or archives records of a share group, whichever members hold them (KIP-932).

Kafka's protocol lets only the member that holds a record acknowledge it. Here the leader of the partition does it for
the operator, and answers once that is committed. Nothing waits for the members: their locks end.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from raftlog.admin.broker_questions import by_leader, of_leader
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, check
from raftlog.admin.kafka_rest.share_groups import describe_share_group
from raftlog.admin.route import GROUP, TOPIC, Call, Route
from raftlog.base.errors import NonEmptyGroup, NotCoordinator
from raftlog.base.share_deliveries import HandAcknowledgement, HandOutcome
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Demanded, Operation, Right

MAX_OFFSETS: Final = 10_000
"""Offsets of a request that names some."""

INT64_MAX: Final = 2**63 - 1

Offset = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class ShareOffsets(msgspec.Struct, forbid_unknown_fields=True):
    """The records from `first_offset` to `last_offset`, which is inclusive and may be at most 9,999 higher.

    Without `last_offset`: one record. Without both: all that the group has in flight in the partition.
    """

    first_offset: Offset | None = None
    last_offset: Offset | None = None


class RecordsByHand(HandOutcome):
    """The numbers of offsets, which together are as many as were named.

    `released`: their locks ended, and they are available. `archived`: they are not delivered again; records that are
    released after their last delivery are among them. `available`: unchanged, as no member held them; to archive, as
    no delivery of them is known. `pending`: unchanged, as their member has acknowledged them just now. `done`: before
    this, they were accepted, rejected or given up. `not_fetched`: the group has not come so far.
    """

    share_group_id: str
    topic_name: str
    partition_id: int


async def release_share_records(call: Call) -> RecordsByHand:
    """End the locks of records, which are then available to all members."""
    return await _acknowledge(call, rejects=False)


async def archive_share_records(call: Call) -> RecordsByHand:
    """Archive records that members hold, or that were delivered before; they get dead letters as if rejected."""
    return await _acknowledge(call, rejects=True)


async def _acknowledge(call: Call, *, rejects: bool) -> RecordsByHand:
    topic_name, index = call.path["topic_name"], call.path["partition_id"]
    offsets = _offsets(call.body)
    call.audit.update(
        group=call.path["share_group_id"],
        topic=topic_name,
        partition=index,
        offsets=None if offsets is None else list(offsets),
    )
    group_id, _, _ = await describe_share_group(call)
    topic = call.node.image().topics.get(topic_name)
    leaders, errors = by_leader(call, [(topic_name, index)])
    where = f"{topic_name[:249]}-{index} of group {group_id[:249]}"
    if topic is None or index >= len(topic.partitions):
        raise ApiError(
            404, f"partition {index} of topic {topic_name[:249]} does not exist", code=UNKNOWN_PARTITION
        )
    for error_code in errors.values():
        check(error_code, about=where)
    (leader,) = leaders
    said = HandAcknowledgement(topic.topic_id, index, rejects, offsets)
    request = builders_for(ApiKey.ALTER_SHARE_GROUP_OFFSETS).AlterShareGroupOffsetsRequest(
        group_id=group_id, topics=(), by_hand=msgspec.json.encode(said)
    )
    response = await call.asker.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request, broker_id=leader)
    found = _outcome(response, leader, about=where)
    call.audit.update(released=found.released, archived=found.archived)
    return RecordsByHand(
        **msgspec.structs.asdict(found), share_group_id=group_id, topic_name=topic_name, partition_id=index
    )


def _outcome(response: Any, leader: int, *, about: str) -> HandOutcome:
    """Return what the leader says. Raise ApiError.

    A build of the leader that does not know the field, though it has share groups, takes the request for a change of no
    offsets. Only the coordinator of a group carries that out, and only without members.
    """
    older = f"broker {leader} runs a release without this API"
    if response.error_code == NonEmptyGroup.code or (not response.error_code and not response.by_hand):
        raise ApiError(501, older)
    message = response.error_message
    if response.error_code == NotCoordinator.code and not message:
        message = f"the coordinator of the records' states is another by now, or {older}"
    check(of_leader(response.error_code), message, about=about)
    return msgspec.json.decode(response.by_hand, type=HandOutcome)


def _offsets(wanted: ShareOffsets) -> tuple[int, int] | None:
    """Return the first and the last offset; None for all in flight. Raise ApiError."""
    first_offset, last_offset = wanted.first_offset, wanted.last_offset
    if first_offset is None:
        if last_offset is not None:
            raise ApiError(400, "first_offset is missing: last_offset needs one")
        return None
    if last_offset is None:
        return first_offset, first_offset
    if last_offset < first_offset:
        raise ApiError(400, f"last_offset {last_offset} is before first_offset {first_offset}")
    if last_offset - first_offset >= MAX_OFFSETS:
        count = last_offset - first_offset + 1
        raise ApiError(
            400, f"first_offset to last_offset are {count} offsets; at most {MAX_OFFSETS} are allowed"
        )
    return first_offset, last_offset


PARTITION: Final = "/v1/share-groups/{share_group_id}/topics/{topic_name}/partitions/{partition_id:int}"

RIGHTS: Final = Demanded(
    (Right(Operation.READ, GROUP, "share_group_id"), Right(Operation.READ, TOPIC, "topic_name"))
)
"""The rights of a member, which may do the same to records that it holds."""

ROUTES: Final = (
    Route(
        "POST",
        f"{PARTITION}/release",
        release_share_records,
        "Release records of a share group by hand: other members get them",
        body=ShareOffsets,
        rights=RIGHTS,
    ),
    Route(
        "POST",
        f"{PARTITION}/archive",
        archive_share_records,
        "Archive records of a share group by hand: no member gets them again",
        body=ShareOffsets,
        rights=RIGHTS,
    ),
)
