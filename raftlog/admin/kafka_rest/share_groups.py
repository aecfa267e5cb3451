"""Share groups (KIP-932): their members, and the partitions that each member reads, in Confluent's words.

Start offsets, lag, resets and deliveries have no words there; `native/share_groups.py` has them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final

import msgspec

from raftlog.admin.broker_questions import Where, coordinator_of, of_all_brokers
from raftlog.admin.errors import ApiError, check, not_found
from raftlog.admin.kafka_rest.groups import DEAD, STATES, all_of, describe_groups
from raftlog.admin.kafka_rest.shared import ItemMetadata, ListMetadata, Page, Related, image_of, item, page_of
from raftlog.admin.route import CLUSTER, FILTERED, GROUP, TOPIC, Call, Route
from raftlog.base.errors import GroupIdNotFound
from raftlog.base.turns import each_part
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Demanded, Operation, Right

SHARE: Final = "share"
OWN: Final = "share-groups"


class ShareTopicPartition(msgspec.Struct, kw_only=True):
    """A partition that a share group has read or is to read."""

    kind: str = "KafkaShareGroupTopicPartition"
    metadata: ItemMetadata
    topic_name: str
    partition_id: int
    partition: Related


class KafkaShareGroup(msgspec.Struct, kw_only=True):
    """A share group. `partition_count`: the partitions that its members read, without topics hidden from the caller.

    `assigned_topic_partitions`: also partitions with a start offset that no member reads now. Lists leave it out.
    """

    kind: str = "KafkaShareGroup"
    metadata: ItemMetadata
    cluster_id: str
    share_group_id: str
    state: str
    coordinator: Related
    consumers: Related
    consumer_count: int
    partition_count: int
    assigned_topic_partitions: list[ShareTopicPartition] | msgspec.UnsetType = msgspec.UNSET


class KafkaShareGroupList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaShareGroupList"
    metadata: ListMetadata
    data: list[KafkaShareGroup]


class ShareConsumer(msgspec.Struct, kw_only=True):
    """A member of a share group."""

    kind: str = "KafkaShareGroupConsumer"
    metadata: ItemMetadata
    cluster_id: str
    group_id: str
    consumer_id: str
    client_id: str
    assignments: Related


class ShareConsumerList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaShareConsumerList"
    metadata: ListMetadata
    data: list[ShareConsumer]


class ShareAssignment(msgspec.Struct, kw_only=True):
    """A partition that a member of a share group reads; other members may read it too."""

    kind: str = "KafkaShareGroupConsumerAssignment"
    metadata: ItemMetadata
    cluster_id: str
    group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related


class ShareAssignmentList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaConsumerAssignmentList"
    metadata: ListMetadata
    data: list[ShareAssignment]


async def list_kafka_share_groups(call: Call) -> KafkaShareGroupList:
    """Return the share groups of all coordinators that answer."""
    image = image_of(call)
    found = await listed_share_groups(call)
    shown, metadata = page_of(call, sorted(found), "clusters", image.cluster_id, OWN)
    by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
    for group_id in shown:
        by_coordinator[found[group_id][0]].append(group_id)
    answers = await asyncio.gather(*(_describe(call, *each) for each in by_coordinator.items()))
    data = []
    for broker_id, groups in zip(by_coordinator, answers, strict=True):
        for each in groups:
            if each.error_code == GroupIdNotFound.code:
                continue  # it was deleted since it was listed
            check(each.error_code, each.error_message, about=f"group {each.group_id}")
            data.append(await _group(call, image, each, broker_id))
    return KafkaShareGroupList(metadata=metadata, data=sorted(data, key=attrgetter("share_group_id")))


async def get_kafka_share_group(call: Call) -> KafkaShareGroup:
    """Return a group, without the topics that the caller may not see."""
    image = image_of(call)
    group_id, broker_id, found = await describe_share_group(call)
    group = await _group(call, image, found, broker_id)
    offsets = await share_offsets(call, group_id, broker_id)
    there = await _read_by(call, found.members)
    there.update((topic.topic_name, each.partition_index) for topic in offsets for each in topic.partitions)

    def part(where: Where) -> ShareTopicPartition:
        topic, index = where
        own = (OWN, group_id, "assigned-topic-partitions", topic, index)
        return ShareTopicPartition(
            metadata=item(call, image, *own, share_group=group_id, topic_partition=f"{topic}:{index}"),
            topic_name=topic,
            partition_id=index,
            partition=_partition(call, image, where),
        )

    group.assigned_topic_partitions = await each_part(call, await _seen(call, there), part)
    return group


async def list_share_consumers(call: Call) -> ShareConsumerList:
    """Return the members that the coordinator knows."""
    image = image_of(call)
    group_id, _, found = await describe_share_group(call)
    members = sorted(found.members, key=attrgetter("member_id"))
    parts = ("clusters", image.cluster_id, OWN, group_id, "consumers")
    shown, metadata = page_of(call, members, *parts, key=attrgetter("member_id"))
    data = await each_part(call, shown, lambda each: _consumer(call, image, group_id, each))
    return ShareConsumerList(metadata=metadata, data=data)


async def get_share_consumer(call: Call) -> ShareConsumer:
    image = image_of(call)
    group_id, _, found = await describe_share_group(call)
    return _consumer(call, image, group_id, _member(call, found))


async def list_share_assignments(call: Call) -> ShareAssignmentList:
    """Return the partitions of a member."""
    image = image_of(call)
    group_id, _, found = await describe_share_group(call)
    member = _member(call, found)
    own = (OWN, group_id, "consumers", member.member_id, "assignments")
    seen = await _seen(call, _assigned(member))
    shown, metadata = page_of(call, seen, "clusters", image.cluster_id, *own)

    def assignment(where: Where) -> ShareAssignment:
        topic, index = where
        named = {
            "share_group": group_id,
            "consumer": member.member_id,
            "assignment": topic,
            "partition": index,
        }
        return ShareAssignment(
            metadata=item(call, image, *own, topic, "partitions", index, **named),
            cluster_id=image.cluster_id,
            group_id=group_id,
            consumer_id=member.member_id,
            topic_name=topic,
            partition_id=index,
            partition=_partition(call, image, where),
        )

    return ShareAssignmentList(metadata=metadata, data=await each_part(call, shown, assignment))


async def delete_kafka_share_group(call: Call) -> None:
    """Delete a group; 409 while it has members."""
    image_of(call)
    await delete_share_group(call)


# -- the resources -------------------------------------------------------------------------------------------


async def _group(call: Call, image: MetadataImage, found: Any, broker_id: int) -> KafkaShareGroup:
    own = (OWN, found.group_id)
    read = await _seen(call, await _read_by(call, found.members))
    return KafkaShareGroup(
        metadata=item(call, image, *own, share_group=found.group_id),
        cluster_id=image.cluster_id,
        share_group_id=found.group_id,
        state=STATES.get(found.group_state, "UNKNOWN"),
        coordinator=Related(call.link("clusters", image.cluster_id, "brokers", broker_id)),
        consumers=Related(call.link("clusters", image.cluster_id, *own, "consumers")),
        consumer_count=len(found.members),
        partition_count=len(read),
    )


def _consumer(call: Call, image: MetadataImage, group_id: str, member: Any) -> ShareConsumer:
    own = (OWN, group_id, "consumers", member.member_id)
    return ShareConsumer(
        metadata=item(call, image, *own, share_group=group_id, consumer=member.member_id),
        cluster_id=image.cluster_id,
        group_id=group_id,
        consumer_id=member.member_id,
        client_id=member.client_id,
        assignments=Related(call.link("clusters", image.cluster_id, *own, "assignments")),
    )


def _partition(call: Call, image: MetadataImage, where: Where) -> Related:
    return Related(call.link("clusters", image.cluster_id, "topics", where[0], "partitions", where[1]))


def _member(call: Call, group: Any) -> Any:
    wanted = call.path["consumer_id"]
    for each in group.members:
        if each.member_id == wanted:
            return each
    raise not_found(f"consumer {wanted[:249]} of share group {group.group_id}")


def _assigned(member: Any) -> Iterable[Where]:
    return [
        (topic.topic_name, index)
        for topic in member.assignment.topic_partitions
        for index in topic.partitions
    ]


async def _read_by(call: Call, members: Iterable[Any]) -> set[Where]:
    """Return the partitions that members read. Each member may read all, so the loop runs other tasks meanwhile."""
    found: set[Where] = set()
    await each_part(call, members, lambda each: found.update(_assigned(each)))
    return found


async def _seen(call: Call, found: Iterable[Where]) -> list[Where]:
    """Return the partitions of topics that the caller may describe, in order."""
    found = list(found)
    topics = await call.among(Operation.DESCRIBE, TOPIC, {topic for topic, _ in found})
    return sorted(where for where in found if where[0] in topics)


# -- the coordinators ----------------------------------------------------------------------------------------


async def listed_share_groups(call: Call) -> dict[str, tuple[int, str]]:
    """Return coordinator and state of each group that the caller may see, of all coordinators that answer."""
    request = builders_for(ApiKey.LIST_GROUPS).ListGroupsRequest(states_filter=(), types_filter=(SHARE,))
    found: dict[str, tuple[int, str]] = {}
    for broker_id, response in await of_all_brokers(call, ApiKey.LIST_GROUPS, request):
        check(response.error_code, about=f"the groups of broker {broker_id}")
        for each in response.groups:
            if each.group_type == SHARE:
                found[each.group_id] = broker_id, STATES.get(each.group_state, "UNKNOWN")
    if call.may(Operation.DESCRIBE, CLUSTER):
        return found
    return {each: found[each] for each in await call.among(Operation.DESCRIBE, GROUP, found)}


async def _describe(call: Call, broker_id: int, group_ids: Iterable[str]) -> tuple[Any, ...]:
    make = builders_for(ApiKey.SHARE_GROUP_DESCRIBE)

    async def ask(ids: tuple[str, ...]) -> tuple[Any, ...]:
        request = make.ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        response = await call.asker.ask(ApiKey.SHARE_GROUP_DESCRIBE, request, broker_id=broker_id)
        return tuple(response.groups)

    return await all_of(tuple(group_ids), ask)


async def describe_share_group(call: Call) -> tuple[str, int, Any]:
    """Return the path's group, its coordinator, and the description. Raise ApiError 404."""
    group_id = call.path["share_group_id"]
    broker_id = await coordinator_of(call, group_id)
    (found,) = await _describe(call, broker_id, [group_id])
    if found.error_code == GroupIdNotFound.code:
        (other,) = await describe_groups(call, broker_id, [group_id])
        if not other.error_code and other.group_state != DEAD:
            raise ApiError(404, f"{group_id[:249]} is a consumer group, and no share group")
        raise not_found(f"share group {group_id[:249]}")
    check(found.error_code, found.error_message, about=f"group {group_id[:249]}")
    return group_id, broker_id, found


async def share_offsets(call: Call, group_id: str, broker_id: int) -> Any:
    """Return the topics with start offsets that a group has, from its coordinator. Raise ApiError."""
    make = builders_for(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    request = make.DescribeShareGroupOffsetsRequest(
        groups=(make.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None),)
    )
    response = await call.asker.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request, broker_id=broker_id)
    (found,) = response.groups
    check(found.error_code, found.error_message, about=f"group {group_id[:249]}")
    return found.topics


async def delete_share_group(call: Call) -> None:
    """Delete a group; 409 while it has members."""
    group_id, broker_id, _ = await describe_share_group(call)
    call.audit.update(group=group_id)
    request = builders_for(ApiKey.DELETE_GROUPS).DeleteGroupsRequest(groups_names=(group_id,))
    response = await call.asker.ask(ApiKey.DELETE_GROUPS, request, broker_id=broker_id)
    for each in response.results:
        check(each.error_code, about=f"group {group_id[:249]}")


def of_share_group(operation: Operation) -> Demanded:
    """Return the right to do something with the share group of the path."""
    return Demanded((Right(operation, GROUP, "share_group_id"),))


BASE: Final = f"/v3/clusters/{{cluster_id}}/{OWN}"
ONE: Final = f"{BASE}/{{share_group_id}}"
MEMBER: Final = f"{ONE}/consumers/{{consumer_id}}"
DESCRIBED: Final = of_share_group(Operation.DESCRIBE)
ROUTES: Final = (
    Route("GET", BASE, list_kafka_share_groups, "List the share groups", query=Page, rights=FILTERED),
    Route("GET", ONE, get_kafka_share_group, "Describe a share group", rights=DESCRIBED),
    Route(
        "DELETE",
        ONE,
        delete_kafka_share_group,
        "Delete a share group, with the delivery state of its records",
        status=204,
        rights=of_share_group(Operation.DELETE),
    ),
    Route(
        "GET",
        f"{ONE}/consumers",
        list_share_consumers,
        "List a share group's members",
        query=Page,
        rights=DESCRIBED,
    ),
    Route("GET", MEMBER, get_share_consumer, "Describe a share group's member", rights=DESCRIBED),
    Route(
        "GET",
        f"{MEMBER}/assignments",
        list_share_assignments,
        "List the partitions that a member of a share group reads",
        query=Page,
        rights=DESCRIBED,
    ),
)
