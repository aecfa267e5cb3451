"""`raftlog group …`: consumer groups, their members, and how far they have read."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from operator import methodcaller
from typing import Annotated, Any

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import complete_topic, not_empty, noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.group_lookup import PartitionKey, committed, described, in_use, looked_up, states
from raftlog.cli.group_reset import move, one_rule, plan
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.partition import offsets_at, read_topic_partition
from raftlog.cli.printable import printable
from raftlog.cli.refusals import not_authorized
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import AGAIN_AFTER_S, CODES, Admin, Target, kafka_error, kafka_topic_partition

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
    """List groups with their state."""
    admin = target.admin
    found = admin.ask(admin.client.list_consumer_groups)
    state = states(target, found.valid)
    rows = [
        {"group": each.group_id, "state": state[each.group_id], "type": each.type.name.lower()}
        for each in sorted(found.valid, key=lambda each: str(each.group_id))
    ]
    failures = [admin.failure(error, "a part is missing: ") for error in found.errors]
    if failures and not rows:
        raise failures[0]
    print_rows(rows, form, ("group", "state", "type"))
    for failure in failures:
        print(f"raftlog: {failure}", file=sys.stderr)
    return exits.FAILED if failures else 0


@verb(group, "describe", prints_rows=True)
def describe(target: Target, name: Id, *, form: Form) -> None:
    """Show a group's state, its coordinator, and its members with what each of them reads."""
    found = described(target.admin, name)
    members = [
        {
            "member": each.member_id,
            "instance": each.group_instance_id or None,
            "client": each.client_id,
            "host": each.host,
            "partitions": [f"{tp.topic}-{tp.partition}" for tp in each.assignment.topic_partitions],
        }
        for each in found.members
    ]
    about = {
        "group": name,
        "state": states(target, [found])[name],
        "coordinator": found.coordinator.id if found.coordinator else None,
        "assignor": found.partition_assignor or None,
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
    admin = target.admin
    read_to = committed(admin, name)
    found = looked_up(admin, name) if read_to else described(admin, name)
    topic_partitions = sorted({*read_to, *_unread(admin, read_to, found)})
    end = offsets_at(admin, topic_partitions, confluent_kafka().admin.OffsetSpec.latest())
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


def _unread(admin: Admin, read_to: Mapping[PartitionKey, int], found: Any) -> set[PartitionKey]:
    """Return the existing partitions that a group has or may get: its members' and the others of its topics."""
    there = admin.topics()
    members = found.members if found is not None else ()
    own = {(each.topic, each.partition) for member in members for each in member.assignment.topic_partitions}
    topics = {topic for topic, _ in {*own, *read_to}}
    return {(topic, number) for topic in topics if topic in there for number in there[topic].partitions}


@verb(group, "reset", prints_rows=True)
def reset(
    target: Target,
    name: Id,
    *,
    topics: Topics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="all that it has read")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="to where partitions begin")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to where they end")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="to where it is, but within the log")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0)] = None,
    to_datetime: Annotated[str, typer.Option("--to-datetime", help="as 2026-01-31T12:00:00Z, or ms")] = "",
    by_duration: Annotated[str, typer.Option("--by-duration", help="so long ago, as PT2H")] = "",
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="so many on (or back: negative)")] = None,
    execute: Annotated[bool, typer.Option("--execute/--dry-run", help="do it, or only show it")] = False,
    form: Form,
) -> None:
    """Let a group that has no members go on elsewhere. Shows what would become of it, unless --execute is given."""
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
        raise Failure("say of which topics: --topic TOPIC[:P,P] or --all-topics", exits.USAGE)
    admin = target.admin
    found = looked_up(admin, name) if topics else described(admin, name)
    why_not = in_use(found) if found is not None else ""
    if execute and why_not:
        raise Failure(why_not)
    read_to = committed(admin, name)
    topic_partitions = [tp for each in topics or [] for tp in read_topic_partition(admin, each)] or sorted(
        read_to
    )
    if not topic_partitions:
        raise Failure(f"group {name} has committed nothing: name topics with --topic", exits.NOT_FOUND)
    planned = plan(admin, topic_partitions, read_to, rule)
    if execute:
        move(admin, name, planned)
    rows = [
        {"topic": topic, "partition": number, "offset": read_to.get((topic, number)), "new_offset": to}
        for (topic, number), to in planned.items()
    ]
    print_rows(rows, form, ("topic", "partition", "offset", "new_offset"))
    if not execute:
        new = f"there is no group {name} yet; " if found is None else ""
        print(f"raftlog: {new}nothing was changed; --execute does it", file=sys.stderr)
        if why_not:
            print(f"raftlog: but {why_not}", file=sys.stderr)


@verb(group, "delete")
def delete(target: Target, names: Ids) -> int:
    """Delete groups that have no members, with their offsets."""
    found = _delete(target, names)
    busy = {name: _in_use(target, name) for name, error in found.items() if error == "NonEmptyGroupError"}
    told = {(name,): kafka_error(error) for name, error in found.items() if not busy.get(name)}
    code = _tell(told, "deleted")
    for why_not in filter(None, busy.values()):
        print(f"raftlog: {printable(why_not)}", file=sys.stderr)
        code = exits.FAILED
    return code


def _delete(target: Target, names: list[str]) -> dict[str, str]:
    """Return kafka-python's result for each group; retry while a coordinator is just beginning."""
    deadline = time.monotonic() + target.timeout_s
    found: dict[str, str] = {}
    left = names
    while True:
        # librdkafka aborts the process where DeleteGroups is not served, as by older nodes
        found |= target.ask_kafka_python(methodcaller("delete_groups", left), "DELETE")
        left = [name for name in left if kafka_error(found[name]).retriable]
        if not left or time.monotonic() + AGAIN_AFTER_S > deadline:
            return found
        time.sleep(AGAIN_AFTER_S)


def _in_use(target: Target, name: str) -> str:
    found = looked_up(target.admin, name)
    return "" if found is None else in_use(found)


@verb(group, "delete-offsets")
def delete_offsets(target: Target, name: Id, *, topics: Topics = None) -> int:
    """Forget how far a group has read in some topics."""
    if not topics:
        raise Failure("say of which topics: --topic TOPIC[:P,P]", exits.USAGE)
    described(target.admin, name)
    topic_partitions = [tp for each in topics for tp in read_topic_partition(target.admin, each)]
    found = target.ask_kafka_python(
        lambda client: client.delete_group_offsets(
            name, [kafka_topic_partition(*tp) for tp in topic_partitions]
        ),
        "DELETE",
    )
    return _tell({(name, tp.topic, tp.partition): error for tp, error in found.items()}, "forgotten")


def _tell(found: Mapping[tuple[Any, ...], Any], done: str) -> int:
    """Print what became of each; returns the last failure's exit code. Errors are classes of kafka-python."""
    code = 0
    for words, error in sorted(found.items()):
        what = " ".join(map(str, words))
        if error.errno == 0:
            print(f"{what} {done}")
        else:
            said = not_authorized(error.__name__, "DELETE") or error.description
            print(f"raftlog: {what}: {said}", file=sys.stderr)
            code = CODES.get(error.__name__, exits.FAILED)
    return code
