"""`raftlog group …`: consumer groups, their members, and how far they have read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from raftlog.base.errors import KafkaError, NonEmptyGroup, from_code
from raftlog.cli import exits
from raftlog.cli.cluster_command import complete_topic, not_empty, noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.group_lookup import (
    Group,
    committed,
    described,
    in_use,
    looked_up,
    refuse_share_group,
)
from raftlog.cli.group_reset import move, one_rule, plan
from raftlog.cli.partition import offsets_at, read_topic_partition
from raftlog.cli.printable import printable
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import Target, code_of, with_name, words_of
from raftlog.client.metadata import LATEST, PartitionKey
from raftlog.protocol.apis import ApiKey

group = noun("List and describe groups; show, reset and delete their offsets.")

Id = Annotated[str, typer.Argument(metavar="GROUP", callback=not_empty)]
Ids = Annotated[list[str], typer.Argument(metavar="GROUP", callback=not_empty)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:P,P]", help="may be repeated", autocompletion=complete_topic
    ),
]


@verb(group, "list", prints_rows=True)
def list_groups(target: Target, *, form: Form) -> int:
    """List groups with their state. A broker that does not answer is named, and its groups are missing."""
    return print_groups(target, form, ("group", "state", "type"))


def print_groups(target: Target, form: Form, columns: Sequence[str], *, types: Sequence[str] = ()) -> int:
    """Print the groups of these types, by default of all; return the exit code. Raise Failure if no broker answers."""
    rows: list[dict[str, str]] = []
    failures: list[Failure] = []
    brokers = target.brokers()
    for broker in brokers:
        try:
            rows += groups_of(target, int(broker.broker_id), types)
        except Failure as failure:
            failures.append(failure)
    if failures and len(failures) == len(brokers):
        raise failures[0]
    print_rows(sorted(rows, key=lambda row: row["group"]), form, columns)
    for each in failures:
        print(f"raftlog: some groups are missing: {each}", file=sys.stderr)
    return failures[0].code if failures else exits.OK


def groups_of(target: Target, broker: int, types: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return the groups that a broker coordinates, by default of all types. Raise Failure."""
    answer = target.ask(
        ApiKey.LIST_GROUPS,
        lambda make: make.ListGroupsRequest(states_filter=(), types_filter=tuple(types)),
        broker=broker,
        needs="DESCRIBE",
    )
    return [
        {
            "group": each.group_id,
            "state": getattr(each, "group_state", "").lower() or "unknown",
            "type": getattr(each, "group_type", "").lower() or "classic",
        }
        for each in answer.groups
    ]


@verb(group, "describe", prints_rows=True)
def describe(target: Target, name: Id, *, form: Form) -> None:
    """Show a group's state, its coordinator, and its members with what each of them reads."""
    found = described(target, name)
    members = [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": [f"{topic}-{number}" for topic, number in each.partitions],
        }
        for each in found.members
    ]
    about = {
        "group": name,
        "state": found.state,
        "coordinator": found.coordinator,
        "assignor": found.assignor or None,
        "members": len(members) if form is Form.TABLE else members,
    }
    print_object(about, form)
    if members and form is Form.TABLE:
        print()
        static = any(each["instance"] for each in members)  # few groups have such members
        columns = [each for each in members[0] if static or each != "instance"]
        print_rows(members, form, columns, fold=True)


@verb(group, "offsets", prints_rows=True)
def offsets(target: Target, name: Id, *, form: Form) -> None:
    """Show a group's committed offsets and lag; "-" without a committed offset."""
    read_to = committed(target, name)
    found = looked_up(target, name) if read_to else described(target, name)
    topic_partitions = sorted({*read_to, *_unread(target, read_to, found)})
    end = offsets_at(target, topic_partitions, LATEST)
    rows = [
        {
            "topic": topic,
            "partition": number,
            "offset": read_to.get((topic, number)),
            "end": end[topic, number],
            "lag": max(0, end[topic, number] - read_to[topic, number])
            if (topic, number) in read_to
            else None,
        }
        for topic, number in topic_partitions
    ]
    print_rows(rows, form, ("topic", "partition", "offset", "end", "lag"))


def _unread(target: Target, read_to: Mapping[PartitionKey, int], found: Group | None) -> set[PartitionKey]:
    """Return the existing partitions that a group has or may get: its members' and the others of its topics."""
    there = target.topics()
    own = {key for member in (found.members if found is not None else ()) for key in member.partitions}
    topics = {topic for topic, _ in {*own, *read_to}}
    return {(topic, number) for topic in topics if topic in there for number in there[topic].partitions}


@verb(group, "reset", prints_rows=True)
def reset(
    target: Target,
    name: Id,
    *,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="all topics that it has offsets for")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="to the log start offsets")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to the ends of the partitions")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="to its committed offsets, but within the log")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0)] = None,
    to_datetime: Annotated[str, typer.Option("--to-datetime", help="as 2026-01-31T12:00:00Z, or ms")] = "",
    by_duration: Annotated[str, typer.Option("--by-duration", help="to this long ago, as PT2H")] = "",
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="move by this many offsets")] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="set them, or only show the plan")
    ] = False,
    form: Form,
) -> None:
    """Reset the committed offsets of a group without members. Without --execute only the plan is shown."""
    given = {
        "earliest": to_earliest or None,
        "latest": to_latest or None,
        "current": to_current or None,
        "offset": to_offset,
        "datetime": to_datetime or None,
        "duration": by_duration or None,
        "shift": shift_by,
    }
    rule = one_rule(given)
    if bool(topics) == all_topics:
        raise Failure("name topics: --topic TOPIC[:P,P] or --all-topics", exits.USAGE)
    found = looked_up(target, name) if topics else described(target, name, "reset")
    if found is None:
        refuse_share_group(target, name, "reset")
    why_not = in_use(found) if found is not None else ""
    if execute and why_not:
        raise Failure(why_not)
    read_to = committed(target, name)
    topic_partitions = [tp for each in topics or [] for tp in read_topic_partition(target, each)] or sorted(
        read_to
    )
    if not topic_partitions:
        raise Failure(f"group {name} has no committed offsets: name topics with --topic", exits.NOT_FOUND)
    planned = plan(target, topic_partitions, read_to, rule, is_final=execute)
    if execute:
        move(target, name, planned)
    rows = [
        {"topic": topic, "partition": number, "offset": read_to.get((topic, number)), "new_offset": to}
        for (topic, number), to in planned.items()
    ]
    print_rows(rows, form, ("topic", "partition", "offset", "new_offset"))
    if not execute:
        new = f"there is no group {name} yet; " if found is None else ""
        print(f"raftlog: {new}no offset was changed; repeat with --execute to change it", file=sys.stderr)
        if why_not:
            print(f"raftlog: but {why_not}", file=sys.stderr)


@verb(group, "delete")
def delete(target: Target, names: Ids) -> int:
    """Delete groups that have no members, with their offsets."""
    code = 0
    for name in names:
        refuse_share_group(target, name, "delete")
        error = delete_group(target, name)
        found = looked_up(target, name) if isinstance(error, NonEmptyGroup) else None
        if found is not None and (why_not := in_use(found)):
            print(f"raftlog: {printable(why_not)}", file=sys.stderr)
            code = exits.FAILED
        else:
            code = report(name, error, "deleted") or code
    return code


def delete_group(target: Target, name: str) -> KafkaError | None:
    """Delete a group; return the coordinator's error, if any."""
    with target.failures(f"{name}: ", needs="DELETE"):
        (result,) = target.cluster.ask_coordinator(
            name,
            ApiKey.DELETE_GROUPS,
            lambda make: make.DeleteGroupsRequest(groups_names=(name,)),
            errors=lambda answer: [each.error_code for each in answer.results],
        ).results
    return from_code(result.error_code) if result.error_code else None


@verb(group, "delete-offsets")
def delete_offsets(target: Target, name: Id, *, topics: Topics = None) -> int:
    """Delete a group's committed offsets for some topics or partitions."""
    if not topics:
        raise Failure("name topics: --topic TOPIC[:P,P]", exits.USAGE)
    described(target, name, "delete-offsets")
    numbers: dict[str, list[int]] = {}
    for topic, number in (key for each in topics for key in read_topic_partition(target, each)):
        numbers.setdefault(topic, []).append(number)

    def build(make: Any) -> Any:
        wanted = tuple(
            make.OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(make.OffsetDeleteRequestPartition(partition_index=each) for each in there),
            )
            for topic, there in numbers.items()
        )
        return make.OffsetDeleteRequest(group_id=name, topics=wanted)

    with target.failures(f"{name}: ", needs="DELETE"):
        answer = target.cluster.ask_coordinator(name, ApiKey.OFFSET_DELETE, build)
    code = 0
    for topic in answer.topics:
        for each in topic.partitions:
            error = from_code(each.error_code) if each.error_code else None
            code = report(f"{name} {topic.name} {each.partition_index}", error, "forgotten") or code
    return code


def report(what: str, error: KafkaError | None, done: str) -> int:
    """Print what became of something; return the exit code."""
    if error is None:
        print(f"{what} {done}")
        return 0
    print(f"raftlog: {printable(with_name(what, words_of(error, 'DELETE')))}", file=sys.stderr)
    return code_of(error)
