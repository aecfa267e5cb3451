"""Routes for the deliveries of a share group (KIP-932): what is in flight, and the history of one record.

Each broker returns what it remembers. The leader knows the state of now, and former leaders the ends of their
deliveries. The share coordinator has the written state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from raftlog.admin.broker_questions import SPECIAL, list_offsets, of_all_brokers
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError
from raftlog.admin.kafka_rest.share_groups import describe_share_group, of_share_group, share_offsets
from raftlog.admin.native.group_sentences import duration
from raftlog.admin.native.group_why import GroupMoment, moment
from raftlog.admin.native.why import as_sentence
from raftlog.admin.route import GROUP, TOPIC, Call, Route
from raftlog.base.share_deliveries import (
    DeliveriesAnswer,
    DeliveriesQuestion,
    DeliveryEvent,
    LedPartition,
    RecordNow,
)
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Demanded, Operation, Right

NEVER_DELIVERED: Final = frozenset({"available", "not_fetched"})
"""The states in which a record may have had no delivery."""


class DeliveryMember(msgspec.Struct):
    """A member. Client id and host are empty if no broker remembers it."""

    member_id: str
    client_id: str
    host: str


class DeliveredRecords(msgspec.Struct):
    """The number of records that were delivered so often and are not done."""

    delivery_count: int
    records: int


class SharePartitionInFlight(msgspec.Struct):
    """A partition by its leader's memory; it is missing while no member reads it. Offsets are counted as records.

    `in_flight`: from the start offset to the end of what was fetched. `held`: locked by members. `done`: accepted,
    rejected or given up, behind records that are not. `full`: members get no more until the first records are done.
    `archiving`: rejected or given up, and waiting for their dead letters. `letters_failed`: why these can't be written.
    """

    topic_name: str
    partition_id: int
    leader: int
    start_offset: int
    end_offset: int
    in_flight: int
    held: int
    done: int
    lag: int
    oldest_lock_ms: int
    full: bool
    deliveries: list[DeliveredRecords]
    archiving: int
    letters_failed: str | None


class ShareGroupInFlight(msgspec.Struct):
    """A share group's partitions in their leaders' memory, and the limits that its deliveries have.

    `dead_letter_topic` gets a dead letter for each record that is given up; null if there is none.
    """

    share_group_id: str
    delivery_count_limit: int
    record_lock_duration_ms: int
    dead_letter_topic: str | None
    data: list[SharePartitionInFlight]


_FINAL: Final = frozenset({"accepted", "archived", "rejected"})
"""Words of changes after which a record is not delivered again."""


class RecordChange(msgspec.Struct):
    """The begin or the end of a delivery. `what` has stable words."""

    when: GroupMoment
    what: list[str]
    message: str
    because: str
    delivery_count: int
    member: DeliveryMember


class ShareRecordWhy(msgspec.Struct):
    """A record of a share group. `state`: available, acquired, acknowledged, archiving, archived, done (acknowledged or
    archived), or not_fetched. `leader` is null while no member reads the partition; then the state is what is written.

    `held_by`, `held_since` and `held_until` are null unless it is acquired. `complete`: every delivery is in `events`,
    of which the newest come first.
    """

    share_group_id: str
    topic_name: str
    partition_id: int
    offset: int
    state: str
    delivery_count: int
    delivery_count_limit: int
    leader: int | None
    held_by: DeliveryMember | None
    held_since: GroupMoment | None
    held_until: GroupMoment | None
    known_since: GroupMoment
    summary: str
    events: list[RecordChange]
    complete: bool


async def get_in_flight(call: Call) -> ShareGroupInFlight:
    """Return what the leaders of a group's partitions have in flight, without topics that the caller may not see."""
    group_id, _, _ = await describe_share_group(call)
    answers = await _ask(call, DeliveriesQuestion(group_id))
    names = call.node.image().topic_names
    seen = await call.among(Operation.DESCRIBE, TOPIC, set(names.values()))
    rows = [
        _in_flight(names[each.topic_id], broker_id, each)
        for broker_id, answer in answers
        for each in answer.partitions
        if names.get(each.topic_id) in seen
    ]
    first = answers[0][1]
    rows.sort(key=lambda each: (each.topic_name, each.partition_id))
    return ShareGroupInFlight(
        group_id, first.delivery_limit, first.lock_ms, first.dead_letter_topic or None, rows
    )


async def get_record_why(call: Call) -> ShareRecordWhy:
    """Return the state of one record for a share group, and its deliveries as far as brokers remember them."""
    group_id, coordinator, described = await describe_share_group(call)
    topic_name, index, offset = call.path["topic_name"], call.path["partition_id"], call.path["offset"]
    topic_id = await _find_record(call, topic_name, index, offset=offset)
    answers = await _ask(call, DeliveriesQuestion(group_id, topic_id, index, offset))
    if not any(each.record or each.events or each.stored for _, each in answers):
        read = {each.topic_name for each in await share_offsets(call, group_id, coordinator)}
        read.update(name for each in described.members for name in each.subscribed_topic_names)
        if topic_name not in read:
            raise ApiError(404, f"share group {group_id} does not read topic {topic_name}, and never did")
    clients = {name: client for _, answer in answers for name, client in answer.clients.items()}
    clients |= {
        each.member_id: (each.client_id, each.client_host.removeprefix("/")) for each in described.members
    }
    members = {name: DeliveryMember(name, *client) for name, client in clients.items()}
    leader, now = _now(answers)
    known = {each.delivery_count for _, answer in answers for each in answer.events}
    changes = [
        change
        for broker_id, answer in answers
        for each in answer.events
        for change in _changes(each, members, answer, broker_id)
    ]
    held_by = _member(now.member_id, members) if now.member_id else None
    count = max((now.delivery_count, *known), default=0)
    if held_by is not None:
        known.add(now.delivery_count)
        changes.append(_delivered(now.acquired_ms, now.delivery_count, held_by))
    changes.sort(
        key=lambda each: (each.when.at_ms, each.delivery_count, each.what[0] != "delivered"), reverse=True
    )
    limit = answers[0][1].delivery_limit
    return ShareRecordWhy(
        share_group_id=group_id,
        topic_name=topic_name,
        partition_id=index,
        offset=offset,
        state=now.state,
        delivery_count=count,
        delivery_count_limit=limit,
        leader=leader,
        held_by=held_by,
        held_since=moment(now.acquired_ms) if held_by else None,
        held_until=moment(now.expires_ms) if held_by else None,
        known_since=moment(min(answer.evicted_ms or answer.known_since_ms for _, answer in answers)),
        summary=_summary(offset, now, (count, limit), changes=changes, held_by=held_by),
        events=changes,
        complete=known == set(range(1, count + 1)) and (count > 0 or now.state in NEVER_DELIVERED),
    )


async def _find_record(call: Call, topic_name: str, index: int, *, offset: int) -> UUID:
    """Return the id of a record's topic. Raise ApiError 404 if the partition has no record of this offset yet.

    While the leader does not answer, the end of the partition is unknown, and every offset passes.
    """
    topic = call.node.image().topics.get(topic_name)
    if topic is None:
        raise ApiError(404, f"there is no topic {topic_name[:249]}", code=UNKNOWN_PARTITION)
    if not 0 <= index < len(topic.partitions):
        known = f"0 to {len(topic.partitions) - 1}" if len(topic.partitions) > 1 else "0 alone"
        raise ApiError(
            404,
            f"topic {topic_name} has no partition {index}; its partitions are {known}",
            code=UNKNOWN_PARTITION,
        )
    where = topic_name, index
    error_code, end_offset = (await list_offsets(call, {where: SPECIAL["latest"]}))[where]
    if offset < 0 or (not error_code and offset >= end_offset):
        end = f": it ends at offset {end_offset}" if not error_code else ""
        raise ApiError(404, f"partition {topic_name}-{index} has no record {offset}{end}")
    return topic.topic_id


async def _ask(call: Call, question: DeliveriesQuestion) -> list[tuple[int, DeliveriesAnswer]]:
    """Return the answers of all brokers that give one. Raise ApiError 501 if all are of an older release."""
    request = builders_for(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS).DescribeShareGroupOffsetsRequest(
        groups=(), about_deliveries=msgspec.json.encode(question)
    )
    found = [
        (broker_id, msgspec.json.decode(response.deliveries, type=DeliveriesAnswer))
        for broker_id, response in await of_all_brokers(call, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request)
        if response.deliveries
    ]
    if not found:
        raise ApiError(501, "the brokers run a release without this API")
    return found


def _in_flight(topic_name: str, broker_id: int, each: LedPartition) -> SharePartitionInFlight:
    return SharePartitionInFlight(
        topic_name=topic_name,
        partition_id=each.partition,
        leader=broker_id,
        start_offset=each.start_offset,
        end_offset=each.end_offset,
        in_flight=each.end_offset - each.start_offset,
        held=each.held,
        done=each.done,
        lag=each.lag,
        oldest_lock_ms=each.oldest_lock_ms,
        full=each.full,
        deliveries=[DeliveredRecords(*pair) for pair in sorted(each.deliveries.items())],
        archiving=each.archiving,
        letters_failed=each.letters_failed or None,
    )


def _now(answers: Iterable[tuple[int, DeliveriesAnswer]]) -> tuple[int | None, RecordNow]:
    """Return the leader and the state of now; without a leader, the written state."""
    stored = None
    for broker_id, answer in answers:
        if answer.record is not None:
            return broker_id, answer.record
        stored = stored or answer.stored
    return None, stored or RecordNow("not_fetched")


def _member(member_id: str, members: Mapping[str, DeliveryMember]) -> DeliveryMember:
    return members.get(member_id) or DeliveryMember(member_id, "", "")


def _name(member: DeliveryMember) -> str:
    if not member.client_id:
        return f"member {member.member_id}"
    return f"{member.client_id} ({member.host})"


def _changes(
    event: DeliveryEvent, members: Mapping[str, DeliveryMember], answer: DeliveriesAnswer, broker_id: int
) -> Iterable[RecordChange]:
    member = _member(event.member_id, members)
    yield _delivered(event.acquired_ms, event.delivery_count, member)
    what, message, because = _end(event, member, answer, broker_id)
    yield RecordChange(moment(event.ended_ms), what, message, because, event.delivery_count, member)


def _delivered(at_ms: int, delivery_count: int, member: DeliveryMember) -> RecordChange:
    message = f"delivery {delivery_count}, to {_name(member)}"
    return RecordChange(moment(at_ms), ["delivered"], message, "", delivery_count, member)


def _end(
    event: DeliveryEvent, member: DeliveryMember, answer: DeliveriesAnswer, broker_id: int
) -> tuple[list[str], str, str]:
    """Return what ended a delivery: stable words, what happened, and why."""
    name, is_archived = _name(member), event.state in ("archiving", "archived")
    is_last = event.delivery_count >= answer.delivery_limit
    failed = f"all of its {answer.delivery_limit} deliveries failed (share.delivery.count.limit)"
    given_up = ", and the record is given up" if is_archived else ""
    if event.end == "lock_over":
        took = duration(event.ended_ms - event.acquired_ms)
        why = (
            failed
            if is_archived
            else f"it was not acknowledged in time (share.record.lock.duration.ms, {took})"
        )
        return _words("lock_over", is_archived), f"the lock of {name} was over{given_up}", why
    if event.end == "session_over":
        why = failed if is_archived else "it closed its share session or its connection"
        return _words("session_over", is_archived), f"{name} was gone{given_up}", why
    if event.end == "by_hand":
        taken = f"an operator took it from {name}{', and it is archived' if is_archived else ''}"
        return _words("by_hand", is_archived), taken, ""
    if event.end == "leader_over":
        return ["leader_over"], f"the lock of {name} was void", f"broker {broker_id} gave up the partition"
    if event.state == "acknowledged":
        return ["accepted"], f"{name} accepted it", ""
    if not is_archived:
        return ["released"], f"{name} released it", ""
    if is_last:
        last = (
            f"it was delivery {answer.delivery_limit} of {answer.delivery_limit} (share.delivery.count.limit)"
        )
        return ["archived"], f"{name} released or rejected it, and the record is given up", last
    return ["rejected"], f"{name} rejected it, or reported that there is no record", ""


def _words(end: str, is_archived: bool) -> list[str]:
    return [end, "archived"] if is_archived else [end]


def _summary(
    offset: int,
    now: RecordNow,
    deliveries: tuple[int, int],
    *,
    changes: list[RecordChange],
    held_by: DeliveryMember | None,
) -> str:
    """Return the state of a record in words. `deliveries`: how many there were, and the limit."""
    count, limit = deliveries
    times = f"{count} of {limit} deliveries"
    if held_by is not None:
        until = f"until {moment(now.expires_ms).at}"
        if now.is_pending:
            until = "and has acknowledged it, which is being written"
        return (
            f"{_name(held_by)} holds offset {offset}, {until}, in delivery {now.delivery_count} of {limit}."
        )
    states = {
        "available": f"Offset {offset} is available, after {times}.",
        "not_fetched": f"Offset {offset} was not delivered yet: the group has not come so far.",
        "acknowledged": f"Offset {offset} was accepted.",
        "archiving": f"Offset {offset} was rejected or given up, after {times}, and waits for its dead letter.",
        "archived": f"Offset {offset} was rejected or given up, after {times}; it is not delivered again.",
    }
    known = states.get(now.state)
    if known is None:
        says_how = changes and _FINAL.intersection(changes[0].what)
        known = f"Offset {offset} is done{'' if says_how else ': accepted, rejected or given up'}."
    if not changes:
        return known if now.state == "not_fetched" else f"{known} No broker remembers a delivery of it."
    return f"{known} {as_sentence(changes[0].when.at, changes[0].message, changes[0].because)}"


ROUTES: Final = (
    Route(
        "GET",
        "/v1/share-groups/{share_group_id}/in-flight",
        get_in_flight,
        "What a share group has in flight in each partition: locks, deliveries, lag",
        rights=of_share_group(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        "/v1/share-groups/{share_group_id}/topics/{topic_name}/partitions/{partition_id:int}/records/{offset:int}/why",
        get_record_why,
        "The state of one record for a share group, and what became of its deliveries",
        rights=Demanded(
            (
                Right(Operation.DESCRIBE, GROUP, "share_group_id"),
                Right(Operation.DESCRIBE, TOPIC, "topic_name"),
            )
        ),
    ),
)
