"""Consumer groups: members, assignments and lag."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from operator import attrgetter
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

import msgspec

from raftlog.admin.broker_questions import Where, coordinator_of, list_offsets, of_all_brokers
from raftlog.admin.errors import ApiError, check, not_found
from raftlog.admin.kafka_rest.shared import (
    ItemMetadata,
    ListMetadata,
    Page,
    Related,
    image_of,
    item,
    page_of,
)
from raftlog.admin.route import CLUSTER, FILTERED, GROUP, TOPIC, Call, Route, of_group, of_topic
from raftlog.base.errors import CoordinatorLoadInProgress, GroupIdNotFound, UnknownTopicOrPartition
from raftlog.base.turns import each_part
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Demanded, Operation

LATEST: Final = -1
DEAD: Final = "Dead"
CONSUMERS: Final = "consumer"
"""The protocol type with readable assignments; Kafka Connect and others have formats of their own."""
STATES: Final = {
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Stable": "STABLE",
    "Empty": "EMPTY",
    DEAD: "DEAD",
    "Assigning": "ASSIGNING",
    "Reconciling": "RECONCILING",
}
_SHORT = Struct(">h")
_INT = Struct(">i")


class Group(msgspec.Struct, kw_only=True):
    """A group. `is_simple`: it has no members, and only stores offsets."""

    kind: str = "KafkaConsumerGroup"
    metadata: ItemMetadata
    cluster_id: str
    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    coordinator: Related
    consumers: Related
    lag_summary: Related


class GroupList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaConsumerGroupList"
    metadata: ListMetadata
    data: list[Group]


class Consumer(msgspec.Struct, kw_only=True):
    """A member of a group."""

    kind: str = "KafkaConsumer"
    metadata: ItemMetadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    assignments: Related


class ConsumerList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaConsumerList"
    metadata: ListMetadata
    data: list[Consumer]


class Assignment(msgspec.Struct, kw_only=True):
    """A partition that a member reads."""

    kind: str = "KafkaConsumerAssignment"
    metadata: ItemMetadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related


class AssignmentList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaConsumerAssignmentList"
    metadata: ListMetadata
    data: list[Assignment]


class Lag(msgspec.Struct, kw_only=True):
    """The lag of a group in one partition. The member is that which reads it, if any."""

    kind: str = "KafkaConsumerLag"
    metadata: ItemMetadata
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: int
    current_offset: int
    log_end_offset: int
    lag: int
    consumer_id: str
    instance_id: str | None
    client_id: str


class LagList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaConsumerLagList"
    metadata: ListMetadata
    data: list[Lag]


class LagSummary(msgspec.Struct, kw_only=True):
    """The largest lag of a group and its partition, and the sum over all partitions with a responding leader.

    `unknown_partitions`: with a committed offset, but without a responding leader. `uncommitted_partitions`: of
    subscribed topics, without a committed offset; they are in no lag.
    """

    kind: str = "KafkaConsumerGroupLagSummary"
    metadata: ItemMetadata
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: int
    max_lag: int
    total_lag: int
    unknown_partitions: int
    uncommitted_partitions: int
    max_lag_partition: Related | None


async def list_groups(call: Call) -> GroupList:
    """Return the groups of all coordinators that answer."""
    image = image_of(call)
    found = await coordinators_of_groups(call)
    shown, metadata = page_of(call, sorted(found), "clusters", image.cluster_id, "consumer-groups")
    by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
    for group_id in shown:
        by_coordinator[found[group_id]].append(group_id)
    answers = await asyncio.gather(*(describe_groups(call, *each) for each in by_coordinator.items()))
    data = []
    for broker_id, groups in zip(by_coordinator, answers, strict=True):
        for each in groups:
            check(each.error_code, about=f"group {each.group_id}")
            if each.group_state != DEAD:  # it was deleted since it was listed
                data.append(_group(call, image, each, broker_id))
    return GroupList(metadata=metadata, data=sorted(data, key=lambda each: each.consumer_group_id))


async def coordinators_of_groups(call: Call) -> dict[str, int]:
    """Return the coordinator of each group that the caller may see, of all coordinators that answer."""
    request = builders_for(ApiKey.LIST_GROUPS).ListGroupsRequest(states_filter=())
    found: dict[str, int] = {}
    for broker_id, response in await of_all_brokers(call, ApiKey.LIST_GROUPS, request):
        check(response.error_code, about=f"the groups of broker {broker_id}")
        for each in response.groups:
            found[each.group_id] = broker_id
    if call.may(Operation.DESCRIBE, CLUSTER):
        return found
    return {each: found[each] for each in await call.among(Operation.DESCRIBE, GROUP, found)}


async def get_group(call: Call) -> Group:
    image = image_of(call)
    described, broker_id = await described_group(call)
    return _group(call, image, described, broker_id)


async def describe_groups(call: Call, broker_id: int, group_ids: list[str]) -> tuple[Any, ...]:
    """Return the groups by one of two APIs: DescribeGroups knows only classic groups (KIP-848)."""
    make = builders_for(ApiKey.DESCRIBE_GROUPS)

    async def ask(ids: tuple[str, ...]) -> tuple[Any, ...]:
        request = make.DescribeGroupsRequest(groups=ids, include_authorized_operations=False)
        response = await call.asker.ask(ApiKey.DESCRIBE_GROUPS, request, broker_id=broker_id)
        return tuple(response.groups)

    groups = await all_of(tuple(group_ids), ask)
    others = [each.group_id for each in groups if each.group_state == DEAD and not each.error_code]
    found = await _describe_consumers(call, broker_id, others) if others else {}
    return tuple(found.get(each.group_id, each) for each in groups)


async def all_of(
    group_ids: tuple[str, ...], ask: Callable[[tuple[str, ...]], Awaitable[tuple[Any, ...]]]
) -> tuple[Any, ...]:
    """Request the remaining groups until there are no more responses with some of them."""
    complete: list[Any] = []
    while True:
        answers = await ask(group_ids)
        left = tuple(each.group_id for each in answers if each.error_code == CoordinatorLoadInProgress.code)
        if not left or len(left) == len(answers):
            return (*complete, *answers)
        complete += [each for each in answers if each.error_code != CoordinatorLoadInProgress.code]
        group_ids = left


async def _describe_consumers(call: Call, broker_id: int, group_ids: list[str]) -> dict[str, Any]:
    """Return the consumer groups among them, by their ids."""
    make = builders_for(ApiKey.CONSUMER_GROUP_DESCRIBE)

    async def ask(ids: tuple[str, ...]) -> tuple[Any, ...]:
        request = make.ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        response = await call.asker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request, broker_id=broker_id)
        return tuple(response.groups)

    groups = await all_of(tuple(group_ids), ask)
    return {each.group_id: each for each in groups if each.error_code != GroupIdNotFound.code}


async def described_group(call: Call) -> tuple[Any, int]:
    """Return the path's group from its coordinator, and the coordinator. Raise ApiError 404."""
    group_id = call.path["consumer_group_id"]
    broker_id = await coordinator_of(call, group_id)
    (found,) = await describe_groups(call, broker_id, [group_id])
    check(found.error_code, about=f"group {group_id[:249]}")
    if found.group_state == DEAD:
        raise not_found(f"group {group_id[:249]}")
    return found, broker_id


def _is_consumer_group(found: Any) -> bool:
    """Return whether it was described as a group of the consumer protocol (KIP-848)."""
    return hasattr(found, "assignor_name")


def _instance_id(member: Any) -> str | None:
    static_id: str | None = getattr(member, "instance_id", None) or getattr(member, "group_instance_id", None)
    return static_id


def _group(call: Call, image: MetadataImage, found: Any, broker_id: int) -> Group:
    own = ("consumer-groups", found.group_id)
    base = ("clusters", image.cluster_id, *own)
    return Group(
        metadata=item(call, image, *own, consumer_group=found.group_id),
        cluster_id=image.cluster_id,
        consumer_group_id=found.group_id,
        is_simple=not getattr(found, "protocol_type", CONSUMERS),
        partition_assignor=found.assignor_name if _is_consumer_group(found) else found.protocol_data,
        state=STATES.get(found.group_state, "UNKNOWN"),
        coordinator=Related(call.link("clusters", image.cluster_id, "brokers", broker_id)),
        consumers=Related(call.link(*base, "consumers")),
        lag_summary=Related(call.link(*base, "lag-summary")),
    )


async def list_consumers(call: Call) -> ConsumerList:
    """Return the members that the coordinator knows."""
    image = image_of(call)
    found, _ = await described_group(call)
    members = sorted(found.members, key=lambda each: each.member_id)
    parts = ("clusters", image.cluster_id, "consumer-groups", found.group_id, "consumers")
    shown, metadata = page_of(call, members, *parts, key=attrgetter("member_id"))
    return ConsumerList(
        metadata=metadata, data=await each_part(call, shown, partial(_consumer, call, image, found.group_id))
    )


async def get_consumer(call: Call) -> Consumer:
    image = image_of(call)
    found, _ = await described_group(call)
    return _consumer(call, image, found.group_id, _member(call, found))


def _member(call: Call, group: Any) -> Any:
    wanted = call.path["consumer_id"]
    for each in group.members:
        if each.member_id == wanted:
            return each
    raise not_found(f"consumer {wanted[:249]} of group {group.group_id}")


def _consumer(call: Call, image: MetadataImage, group_id: str, member: Any) -> Consumer:
    own = ("consumer-groups", group_id, "consumers", member.member_id)
    return Consumer(
        metadata=item(call, image, *own, consumer_group=group_id, consumer=member.member_id),
        cluster_id=image.cluster_id,
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        instance_id=_instance_id(member),
        client_id=member.client_id,
        assignments=Related(call.link("clusters", image.cluster_id, *own, "assignments")),
    )


async def list_assignments(call: Call) -> AssignmentList:
    """Return the member's own assignment."""
    image = image_of(call)
    group, _ = await described_group(call)
    member = _member(call, group)
    own = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
    assigned = await _seen(call, assigned_to(group, member))
    shown, metadata = page_of(call, sorted(assigned), "clusters", image.cluster_id, *own)

    def assignment(where: Where) -> Assignment:
        topic, index = where
        return Assignment(
            metadata=item(call, image, *own, topic, index, topic=topic, partition=index),
            cluster_id=image.cluster_id,
            consumer_group_id=group.group_id,
            consumer_id=member.member_id,
            topic_name=topic,
            partition_id=index,
            partition=Related(call.link("clusters", image.cluster_id, "topics", topic, "partitions", index)),
        )

    return AssignmentList(metadata=metadata, data=await each_part(call, shown, assignment))


def assigned_to(group: Any, member: Any) -> list[Where]:
    """Return a member's decoded assignment; empty for another protocol or format."""
    if _is_consumer_group(group):
        topics = member.assignment.topic_partitions
        return [(topic.topic_name, index) for topic in topics for index in topic.partitions]
    if group.protocol_type != CONSUMERS:
        return []
    try:
        return read_assignment(bytes(member.member_assignment))
    except (ValueError, struct_error):
        return []


def read_assignment(content: bytes) -> list[Where]:
    """Read ConsumerProtocolAssignment: version, topics with partitions. Raises ValueError, struct.error."""
    if not content:
        return []
    position = _SHORT.size  # the version; later versions only append
    (topics,) = _INT.unpack_from(content, position)
    position += _INT.size
    found: list[Where] = []
    for _ in range(_bounded(topics, content, position)):
        (size,) = _SHORT.unpack_from(content, position)
        position += _SHORT.size
        end = position + _bounded(size, content, position)
        topic = content[position:end].decode()
        (partitions,) = _INT.unpack_from(content, end)
        position = end + _INT.size
        count = _bounded(partitions, content, position)
        found += [(topic, _INT.unpack_from(content, position + _INT.size * n)[0]) for n in range(count)]
        position += _INT.size * count
    return found


def _bounded(count: int, content: bytes, position: int) -> int:
    """Return a declared count if the rest can hold it."""
    if not 0 <= count <= len(content) - position:
        raise ValueError(f"{count} items are declared, but {len(content) - position} bytes are left")
    return count


async def _seen(call: Call, found: Iterable[Where]) -> list[Where]:
    """Return the partitions of topics that the caller may describe."""
    found = list(found)
    topics = await call.among(Operation.DESCRIBE, TOPIC, {topic for topic, _ in found})
    return [where for where in found if where[0] in topics]


async def list_lags(call: Call) -> LagList:
    """Return one lag for each partition with a committed offset and a responding leader."""
    image = image_of(call)
    group_id = call.path["consumer_group_id"]
    found = await _behind(call)
    known = sorted(found.ends)
    shown, metadata = page_of(call, known, "clusters", image.cluster_id, "consumer-groups", group_id, "lags")
    return LagList(metadata=metadata, data=await each_part(call, shown, partial(_lag, call, image, found)))


async def get_lag(call: Call) -> Lag:
    """Return one partition's lag; 503 while its leader does not answer."""
    image = image_of(call)
    wanted = (call.path["topic_name"], call.path["partition_id"])
    name = f"{wanted[0][:249]}-{wanted[1]}"
    found = await _behind(call, only=wanted)
    if wanted in found.unknown:
        raise ApiError(503, f"the leader of {name} is unreachable")
    if wanted not in found.ends:
        raise not_found(f"an offset of this group for {name}")
    return _lag(call, image, found, wanted)


async def get_lag_summary(call: Call) -> LagSummary:
    """Return the partition with the largest lag, and the sum of all lags."""
    image = image_of(call)
    group_id = call.path["consumer_group_id"]
    found = await _behind(call)
    if not found.ends and found.unknown:
        raise ApiError(503, f"no partition of group {group_id[:249]} has a reachable leader")
    if not found.ends:
        raise not_found(f"an offset of group {group_id[:249]}")
    lags = [_lag(call, image, found, each) for each in sorted(found.ends)]
    worst = max(lags, key=lambda each: each.lag)
    where = ("clusters", image.cluster_id, "topics", worst.topic_name, "partitions", worst.partition_id)
    return LagSummary(
        metadata=item(call, image, "consumer-groups", group_id, "lag-summary", consumer_group=group_id),
        cluster_id=image.cluster_id,
        consumer_group_id=group_id,
        max_lag_consumer_id=worst.consumer_id,
        max_lag_instance_id=worst.instance_id,
        max_lag_client_id=worst.client_id,
        max_lag_topic_name=worst.topic_name,
        max_lag_partition_id=worst.partition_id,
        max_lag=worst.lag,
        total_lag=sum(each.lag for each in lags),
        unknown_partitions=len(found.unknown),
        uncommitted_partitions=len(_uncommitted(image, found)),
        max_lag_partition=Related(call.link(*where)),
    )


def _uncommitted(image: MetadataImage, found: _Behind) -> set[Where]:
    """Return the partitions without a committed offset, of topics that the group has offsets in or reads."""
    topics = {topic for topic, _ in (*found.committed, *found.readers)} & image.topics.keys()
    there = {(topic, index) for topic in topics for index in range(len(image.topics[topic].partitions))}
    return there - found.committed.keys()


class _Behind(NamedTuple):
    """A group's positions, and the logs' ends: `ends` of partitions with responding leaders."""

    group_id: str
    committed: dict[Where, int]
    ends: dict[Where, int]
    unknown: list[Where]
    readers: dict[Where, Any]
    """The member that reads a partition."""


async def _behind(call: Call, only: Where | None = None) -> _Behind:
    """Ask the group's coordinator, then the leaders of its partitions; skip deleted topics."""
    group, broker_id = await described_group(call)
    offsets = await committed_offsets(call, group.group_id, broker_id)
    committed = {where: offsets[where] for where in await _seen(call, offsets)}
    if only is not None:
        committed = {where: offset for where, offset in committed.items() if where == only}
    answers = await list_offsets(call, dict.fromkeys(committed, LATEST))
    gone = UnknownTopicOrPartition.code
    return _Behind(
        group_id=group.group_id,
        committed=committed,
        ends={where: end for where, (error_code, end) in answers.items() if not error_code},
        unknown=[where for where, (error_code, _) in answers.items() if error_code not in (0, gone)],
        readers={
            where: member
            for member in group.members
            for where in await _seen(call, assigned_to(group, member))
        },
    )


def _lag(call: Call, image: MetadataImage, found: _Behind, where: Where) -> Lag:
    topic, index = where
    offset, end, reader = found.committed[where], found.ends[where], found.readers.get(where)
    own = ("consumer-groups", found.group_id, "lags", topic, "partitions", index)
    return Lag(
        metadata=item(call, image, *own, consumer_group=found.group_id, topic=topic, partition=index),
        cluster_id=image.cluster_id,
        consumer_group_id=found.group_id,
        topic_name=topic,
        partition_id=index,
        current_offset=offset,
        log_end_offset=end,
        lag=max(0, end - offset),
        consumer_id="" if reader is None else reader.member_id,
        instance_id=None if reader is None else _instance_id(reader),
        client_id="" if reader is None else reader.client_id,
    )


async def committed_offsets(call: Call, group_id: str, broker_id: int) -> dict[Where, int]:
    """Return a group's committed offsets from its coordinator. Raise ApiError."""
    make = builders_for(ApiKey.OFFSET_FETCH)
    request = make.OffsetFetchRequest(group_id=group_id, topics=None, require_stable=False)
    response = await call.asker.ask(ApiKey.OFFSET_FETCH, request, broker_id=broker_id)
    check(response.error_code, about=f"group {group_id[:249]}")
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


BASE: Final = "/v3/clusters/{cluster_id}/consumer-groups"
ONE: Final = f"{BASE}/{{consumer_group_id}}"
MEMBER: Final = f"{ONE}/consumers/{{consumer_id}}"
LAG: Final = f"{ONE}/lags/{{topic_name}}/partitions/{{partition_id:int}}"
ROUTES: Final = (
    Route("GET", BASE, list_groups, "List the consumer groups", query=Page, rights=FILTERED),
    Route("GET", ONE, get_group, "Describe a consumer group", rights=of_group(Operation.DESCRIBE)),
    Route(
        "GET",
        f"{ONE}/consumers",
        list_consumers,
        "List a group's members",
        query=Page,
        rights=of_group(Operation.DESCRIBE),
    ),
    Route("GET", MEMBER, get_consumer, "Describe a group's member", rights=of_group(Operation.DESCRIBE)),
    Route(
        "GET",
        f"{MEMBER}/assignments",
        list_assignments,
        "List what a member reads",
        query=Page,
        rights=of_group(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        f"{ONE}/lag-summary",
        get_lag_summary,
        "Get the lag of a group",
        rights=of_group(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        f"{ONE}/lags",
        list_lags,
        "List how far a group is behind where",
        query=Page,
        rights=of_group(Operation.DESCRIBE),
    ),
    Route(
        "GET",
        LAG,
        get_lag,
        "Get the lag of a group in a partition",
        rights=Demanded((*of_group(Operation.DESCRIBE).rights, *of_topic(Operation.DESCRIBE).rights)),
    ),
)
