"""Explains a consumer group: its last events, with times and reasons, newest first.

Its coordinator returns its history (`raftlog.base.group_events`). The serving node adds events from the metadata's
history: moves of the group's coordinator, and new partitions of its topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from raftlog.admin.broker_questions import coordinator_of
from raftlog.admin.errors import ApiError, check, not_found
from raftlog.admin.kafka_rest.groups import DEAD, STATES
from raftlog.admin.native.cause_sentences import because
from raftlog.admin.native.group_sentences import GENERATIONS, reason, sentence
from raftlog.admin.native.why import LEADER_CHANGES, BrokerEvent, as_sentence, history_of, partition_event
from raftlog.admin.route import TOPIC, Call, Route, of_group
from raftlog.base.errors import GroupIdNotFound
from raftlog.base.group_events import GroupEvent, GroupHistoryAnswer
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.metadata.history import AppliedBatch, History
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

MAX_PARTITIONS: Final = 10_000
"""Partitions of a group's topics that are checked for their creation."""


class GroupMember(msgspec.Struct):
    """A member, as its client describes it."""

    consumer_id: str
    instance_id: str | None
    client_id: str
    host: str


class GroupMoment(msgspec.Struct):
    """A wall clock: that of the group's coordinator, or of the controller where there is a metadata offset."""

    at_ms: int
    at: str
    metadata_offset: int | None = None


class GroupChange(msgspec.Struct):
    """One event. `what` has stable words. `brokers`: what became of the brokers concerned, where a leader died."""

    when: GroupMoment
    what: list[str]
    message: str
    because: str
    member: GroupMember | None = None
    brokers: list[BrokerEvent] = msgspec.field(default_factory=list)


class GroupWhy(msgspec.Struct):
    """A group, how it came to be so, and since when its coordinator knows: topics that the caller may see are named.

    `type` is "classic", "consumer", or null for a group that is no more. `complete`: all of its events since it began
    are there.
    """

    consumer_group_id: str
    state: str
    type: str | None
    members: int
    generation: int
    coordinator: int
    offsets_partition: int
    known_since: GroupMoment
    summary: str
    events: list[GroupChange]
    complete: bool


async def get_group_why(call: Call) -> GroupWhy:
    """Return the history of one group; deleted and expired groups included, as far as remembered."""
    group_id = call.path["consumer_group_id"]
    broker_id = await coordinator_of(call, group_id)
    answer = await _ask(call, group_id, broker_id)
    if answer.state == DEAD and not answer.events:
        raise not_found(f"group {group_id[:249]}")
    history = history_of(call)
    answer.events = await _seen(call, answer.events)
    complete = bool(answer.events) and answer.events[0].what == "group_created" and not answer.forgotten
    changes = [_change(answer.events, index) for index in range(len(answer.events))]
    since_ms = answer.events[0].at_ms if complete else 0
    around = (*_moves(call, history, answer, broker_id), *await _topics(call, history, answer))
    found = [each for each in around if each.when.at_ms >= since_ms]
    # where times are the same, metadata changed before the group did
    events = sorted((*found, *changes), key=lambda each: each.when.at_ms)[::-1]
    return GroupWhy(
        consumer_group_id=group_id,
        state=STATES.get(answer.state, "UNKNOWN"),
        type=answer.type or None,
        members=answer.members,
        generation=answer.generation,
        coordinator=broker_id,
        offsets_partition=answer.partition,
        known_since=moment(answer.known_since_ms),
        summary=_summary(answer, changes, broker_id),
        events=events,
        complete=complete,
    )


async def _ask(call: Call, group_id: str, broker_id: int) -> GroupHistoryAnswer:
    request = builders_for(ApiKey.DESCRIBE_GROUPS).DescribeGroupsRequest(
        groups=(group_id,), include_authorized_operations=False, tell_history=True
    )
    response = await call.asker.ask(ApiKey.DESCRIBE_GROUPS, request, broker_id=broker_id)
    code = response.groups[0].error_code
    if code != GroupIdNotFound.code:  # an older coordinator says so for groups of the consumer protocol
        check(code, about=f"group {group_id[:249]}")
    if not response.history:
        raise ApiError(501, f"broker {broker_id}, the group's coordinator, runs a release without this API")
    return msgspec.json.decode(response.history, type=GroupHistoryAnswer)


async def _seen(call: Call, events: Sequence[GroupEvent]) -> list[GroupEvent]:
    """Return the events without the names of topics that the caller may not know of."""
    topics = await call.among(Operation.DESCRIBE, TOPIC, {topic for each in events for topic in each.topics})
    return [
        each if topics.issuperset(each.topics) else msgspec.structs.replace(each, detail="", topics=())
        for each in events
    ]


def moment(at_ms: int, metadata_offset: int | None = None) -> GroupMoment:
    """Return a wall clock in ms as the API shows it."""
    at = datetime.fromtimestamp(max(0, at_ms) / 1000, UTC).isoformat(timespec="milliseconds")
    return GroupMoment(at_ms, at, metadata_offset)


def _change(events: list[GroupEvent], index: int) -> GroupChange:
    event = events[index]
    member = None
    if event.member_id:
        instance = event.instance_id or None
        member = GroupMember(event.member_id, instance, event.client_id, event.client_host.removeprefix("/"))
    return GroupChange(moment(event.at_ms), [event.what], sentence(event), reason(events, index), member)


def _moves(call: Call, history: History, answer: GroupHistoryAnswer, broker_id: int) -> list[GroupChange]:
    """Return when other brokers became the coordinator, oldest first, and when the present coordinator had loaded the
    group.
    """
    topic = call.node.image().topics.get(CONSUMER_OFFSETS_TOPIC)
    name = f"{CONSUMER_OFFSETS_TOPIC}-{answer.partition}"
    found = []
    for change in history.partition(topic.topic_id, answer.partition) if topic else ():
        event = partition_event(history, change)
        if LEADER_CHANGES.isdisjoint(event.what) or event.when.at_ms is None:
            continue
        message = (
            f"broker {event.leader} became the coordinator, as the leader of {name}"
            if event.leader is not None
            else f"the group has no coordinator, since {name} has no leader"
        )
        found.append(
            GroupChange(
                moment(event.when.at_ms, event.when.metadata_offset),
                ["coordinator_changed", *event.what],
                message,
                event.because,
                brokers=event.brokers,
            )
        )
    loaded = f"broker {broker_id} loaded the group's partition from its log"
    why = f"it became the leader of {name}, in epoch {answer.leader_epoch}"
    return [*found, GroupChange(moment(answer.loaded_at_ms), ["coordinator_loaded"], loaded, why)]


async def _topics(call: Call, history: History, answer: GroupHistoryAnswer) -> list[GroupChange]:
    """Return when topics that the group reads were created or got partitions, as far as the caller may know of them."""
    image, found, left = call.node.image(), [], MAX_PARTITIONS
    for name in sorted(await call.among(Operation.DESCRIBE, TOPIC, answer.topics)):
        topic = image.topics.get(name)
        if topic is None or len(topic.partitions) > left:
            continue
        left -= len(topic.partitions)
        found += [_of_topic(name, *each) for each in _created(history, topic)]
    return found


def _created(history: History, topic: TopicState) -> Iterable[tuple[AppliedBatch, list[int]]]:
    """Return the batches that made partitions of a topic, with which."""
    found: dict[int, tuple[AppliedBatch, list[int]]] = {}
    for index in range(len(topic.partitions)):
        changes = history.partition(topic.topic_id, index)
        if changes and changes[0].old is None:
            found.setdefault(changes[0].batch.offset, (changes[0].batch, []))[1].append(index)
    return found.values()


def _of_topic(name: str, batch: AppliedBatch, indexes: list[int]) -> GroupChange:
    many = "1 partition" if len(indexes) == 1 else f"{len(indexes)} partitions"
    if 0 in indexes:
        what, message = "topic_created", f"topic {name}, which the group reads, was created with {many}"
    else:
        what, message = "partitions_added", f"topic {name}, which the group reads, got {many} more"
    return GroupChange(moment(batch.at_ms, batch.offset), [what], message, because(batch, (), [what]))


def _summary(answer: GroupHistoryAnswer, changes: list[GroupChange], broker_id: int) -> str:
    members = "1 member" if answer.members == 1 else f"{answer.members or 'no'} members"
    if answer.type:
        now = (
            f"The group has {members}, in generation {answer.generation}; broker {broker_id} coordinates it."
        )
    else:
        now = "The group is no more."
    telling = [each for each in changes if each.what[0] in GENERATIONS] if answer.type else []
    last = (telling or changes)[-1:]
    if not last:
        since = moment(answer.known_since_ms).at
        if answer.known_since_ms > answer.loaded_at_ms:
            return f"{now} Nothing has happened to it since {since}; earlier events were evicted."
        return f"{now} Nothing has happened to it since that broker loaded it, at {since}."
    return f"{now} {as_sentence(last[0].when.at, last[0].message, last[0].because)}"


ROUTES: Final = (
    Route(
        "GET",
        "/v1/consumer-groups/{consumer_group_id}/why",
        get_group_why,
        "What happened to a consumer group, and why: members, rebalances, offsets, its coordinator",
        rights=of_group(Operation.DESCRIBE),
    ),
)
