"""Consumer groups for lists: how many members each has, which topics it reads, and how far it is behind in each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from raftlog.admin.broker_questions import Where, list_offsets
from raftlog.admin.errors import ApiError, check
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.groups import (
    DEAD,
    STATES,
    assigned_to,
    committed_offsets,
    coordinators_of_groups,
    describe_groups,
    described_group,
)
from raftlog.admin.native.measures import LATEST, MAX_PARTITIONS
from raftlog.admin.route import FILTERED, TOPIC, Call, Route, of_group
from raftlog.base.errors import KafkaError
from raftlog.base.turns import batches, each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

MAX_GROUPS: Final = 200


class GroupsPage(msgspec.Struct, forbid_unknown_fields=True):
    """A page of groups by id: up to `most` after the group `after`, only readers of `topic`, or only `group`."""

    after: Annotated[str, msgspec.Meta(max_length=1_024)] = ""
    most: Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUPS)] = 50
    topic: Annotated[str, msgspec.Meta(max_length=249)] = ""
    group: Annotated[str, msgspec.Meta(max_length=1_024)] = ""


class TopicOfGroup(msgspec.Struct):
    """A topic that a group reads or has offsets of. `lag`: of partitions with a committed offset and a responding
    leader, null if there is none.
    """

    topic_name: str
    assigned_partitions: int
    committed_partitions: int
    lag: int | None = None


class GroupLine(msgspec.Struct):
    """A group. `lag` is the sum over its topics, null if no topic has one."""

    consumer_group_id: str
    state: str
    partition_assignor: str
    coordinator_id: int
    members: int
    lag: int | None
    topics: list[TopicOfGroup]


class GroupLines(msgspec.Struct):
    """A page. `next` is the next page's `after`, null on the last page."""

    data: list[GroupLine]
    next: str | None


async def list_group_lines(call: Call) -> GroupLines:
    """Ask the coordinators for a page of groups and their offsets, then the leaders for the ends of the logs."""
    query = call.query
    found = await coordinators_of_groups(call)
    later = sorted(each for each in found if each > query.after and query.group in ("", each))
    page = list(islice(later, query.most))
    by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
    for group_id in page:
        by_coordinator[found[group_id]].append(group_id)
    answers = await asyncio.gather(*(_of_coordinator(call, *each) for each in by_coordinator.items()))
    lines = sorted((line for some in answers for line in some), key=lambda each: each.line.consumer_group_id)
    await _add_lags(call, lines)
    data = [each.line for each in lines if not query.topic or each.line.topics]
    return GroupLines(data, page[-1] if page and len(page) < len(later) else None)


class _Line:
    """A line, and the committed offsets of its group."""

    def __init__(self, line: GroupLine, committed: Mapping[Where, int]) -> None:
        self.line = line
        self.committed = committed


async def _of_coordinator(call: Call, broker_id: int, group_ids: list[str]) -> list[_Line]:
    described = await describe_groups(call, broker_id, group_ids)

    async def line(group: Any) -> _Line | None:
        if group.error_code or group.group_state == DEAD:
            return None  # it moved or was deleted since it was listed
        try:
            committed = await committed_offsets(call, group.group_id, broker_id)
        except (ApiError, BrokerUnreachable, KafkaError):
            return None
        return await _line(call, group, broker_id, committed)

    found: list[_Line | None] = await each_part(call, described, line)
    return [each for each in found if each is not None]


async def _line(call: Call, group: Any, broker_id: int, committed: Mapping[Where, int]) -> _Line:
    assigned = await each_part(call, group.members, lambda member: assigned_to(group, member))
    names = {topic for topic, _ in committed} | {topic for some in assigned for topic, _ in some}
    seen = await call.among(Operation.DESCRIBE, TOPIC, names & call.node.image().topics.keys())
    topics = {name: TopicOfGroup(name, 0, 0) for name in sorted(seen) if call.query.topic in ("", name)}
    for some in assigned:
        for topic, _ in some:
            if topic in topics:
                topics[topic].assigned_partitions += 1
    kept = {where: offset for where, offset in committed.items() if where[0] in topics}
    for topic, _ in kept:
        topics[topic].committed_partitions += 1
    assignor = group.assignor_name if hasattr(group, "assignor_name") else group.protocol_data
    state = STATES.get(group.group_state, "UNKNOWN")
    line = GroupLine(
        group.group_id, state, assignor, broker_id, len(group.members), None, list(topics.values())
    )
    return _Line(line, kept)


async def _add_lags(call: Call, lines: list[_Line]) -> None:
    """Ask for each partition once, however many groups read it."""
    wanted = sorted({where for each in lines for where in each.committed})
    ends: dict[Where, tuple[int, int]] = {}
    for some in batches(wanted, MAX_PARTITIONS):
        ends |= await list_offsets(call, dict.fromkeys(some, LATEST))

    def add(each: _Line) -> None:
        topics = {topic.topic_name: topic for topic in each.line.topics}
        for where, offset in each.committed.items():
            error_code, end = ends[where]
            if not error_code:
                topic = topics[where[0]]
                topic.lag = (topic.lag or 0) + max(0, end - offset)
        lags = [topic.lag for topic in each.line.topics if topic.lag is not None]
        each.line.lag = sum(lags) if lags else None

    await each_part(call, lines, add, size_of=lambda each: len(each.committed))


async def delete_group(call: Call) -> None:
    """Delete a group without members, and its offsets; 409 if it has members."""
    group, broker_id = await described_group(call)
    group_id = group.group_id
    call.audit.update(group=group_id)
    request = builders_for(ApiKey.DELETE_GROUPS).DeleteGroupsRequest(groups_names=(group_id,))
    response = await call.asker.ask(ApiKey.DELETE_GROUPS, request, broker_id=broker_id)
    (result,) = response.results
    check(result.error_code, about=f"group {group_id[:249]}")


ROUTES: Final = (
    Route(
        "GET",
        "/v1/consumer-groups",
        list_group_lines,
        "List a page of consumer groups with members, topics and lag",
        query=GroupsPage,
        rights=FILTERED,
    ),
    Route(
        "DELETE",
        "/v1/consumer-groups/{consumer_group_id}",
        delete_group,
        "Delete a consumer group without members",
        status=204,
        rights=of_group(Operation.DELETE),
    ),
)
