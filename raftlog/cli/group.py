"""`raftlog group …`: consumer groups, their members, and how far they have read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.partition import offsets_at, read_place
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import CODES, Admin, Target, kafka_error, kafka_place
from raftlog.cli.verb import complete_topic, noun, verb

group = noun("List and describe groups; show, reset and delete their offsets.")

Place = tuple[str, int]
Id = Annotated[str, typer.Argument(metavar="GROUP")]
Ids = Annotated[list[str], typer.Argument(metavar="GROUP")]
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
    rows = [
        {"group": each.group_id, "state": each.state.name.lower(), "type": each.type.name.lower()}
        for each in sorted(found.valid, key=lambda each: str(each.group_id))
    ]
    print_rows(rows, form, ("group", "state", "type"))
    for error in found.errors:
        print(f"raftlog: a part is missing: {error}", file=sys.stderr)
    return exits.FAILED if found.errors else 0


@verb(group, "describe", prints_rows=True)
def describe(target: Target, name: Id, *, form: Form) -> None:
    """Show a group's state, its coordinator, and its members with what each of them reads."""
    found = _described(target.admin, name)
    members = [
        {
            "member": each.member_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": [f"{place.topic}-{place.partition}" for place in each.assignment.topic_partitions],
        }
        for each in found.members
    ]
    about = {
        "group": name,
        "state": found.state.name.lower(),
        "coordinator": found.coordinator.id if found.coordinator else None,
        "assignor": found.partition_assignor or None,
        "members": len(members) if form is Form.TABLE else members,
    }
    print_object(about, form)
    if members and form is Form.TABLE:
        print()
        print_rows(members, form)


def _described(admin: Admin, name: str) -> Any:
    (future,) = admin.ask(admin.client.describe_consumer_groups, [name]).values()
    found = admin.wait(future, f"{name}: ")
    if found.state.name == "DEAD":
        raise Failure(f"there is no group {name}", exits.NOT_FOUND)
    return found


@verb(group, "offsets", prints_rows=True)
def offsets(target: Target, name: Id, *, form: Form) -> None:
    """Show how far a group has read, and how far that is behind."""
    admin = target.admin
    committed = _committed(admin, name)
    if not committed:
        _described(admin, name)
    spec = confluent_kafka().admin.OffsetSpec
    end = offsets_at(admin, committed, spec.latest())
    rows = [
        {
            "topic": topic,
            "partition": number,
            "offset": offset,
            "end": end[topic, number],
            "lag": max(0, end[topic, number] - offset),
        }
        for (topic, number), offset in sorted(committed.items())
    ]
    print_rows(rows, form, ("topic", "partition", "offset", "end", "lag"))


def _committed(admin: Admin, name: str) -> dict[Place, int]:
    library = confluent_kafka()
    request = [library.ConsumerGroupTopicPartitions(name)]
    (future,) = admin.ask(admin.client.list_consumer_group_offsets, request).values()
    found = admin.wait(future, f"{name}: ").topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


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
    rules = {rule: value for rule, value in given.items() if value is not None}
    if len(rules) != 1:
        raise Failure(
            "say where to, once: --to-earliest, --to-latest, --to-offset, --shift-by, ...", exits.USAGE
        )
    if bool(topics) == all_topics:
        raise Failure("say of which topics: --topic TOPIC[:P,P] or --all-topics", exits.USAGE)
    admin = target.admin
    committed = _committed(admin, name)
    places = [place for each in topics or [] for place in read_place(admin, each)] or sorted(committed)
    (rule,) = rules.items()
    planned = _plan(admin, places, committed, rule)
    if execute and planned:
        _move(admin, name, planned)
    rows = [
        {"topic": topic, "partition": number, "offset": committed.get((topic, number)), "new_offset": to}
        for (topic, number), to in planned.items()
    ]
    print_rows(rows, form, ("topic", "partition", "offset", "new_offset"))
    if not execute:
        print("raftlog: nothing was changed; --execute does it", file=sys.stderr)


def _plan(
    admin: Admin, places: list[Place], committed: Mapping[Place, int], rule: tuple[str, Any]
) -> dict[Place, int]:
    """Return where each partition is to go on: never outside of what it holds."""
    from raftlog.cli.moments import read_duration_ms, read_moment

    name, value = rule
    spec = confluent_kafka().admin.OffsetSpec
    first, end = offsets_at(admin, places, spec.earliest()), offsets_at(admin, places, spec.latest())
    times: dict[Place, int] = {}
    if name in ("datetime", "duration"):
        import time

        moment_ms = (
            read_moment("--to-datetime", value)
            if name == "datetime"
            else round(time.time() * 1000) - read_duration_ms("--by-duration", value)
        )
        times = offsets_at(admin, places, spec.for_timestamp(moment_ms))
    wanted: Mapping[str, Callable[[Place], int]] = {
        "earliest": lambda place: first[place],
        "latest": lambda place: end[place],
        "current": lambda place: committed.get(place, first[place]),
        "offset": lambda _place: value,
        "shift": lambda place: committed.get(place, first[place]) + value,
        "datetime": lambda place: times[place] if times[place] >= 0 else end[place],
        "duration": lambda place: times[place] if times[place] >= 0 else end[place],
    }
    return {place: max(first[place], min(end[place], wanted[name](place))) for place in places}


def _move(admin: Admin, name: str, planned: Mapping[Place, int]) -> None:
    library = confluent_kafka()
    request = [
        library.ConsumerGroupTopicPartitions(
            name, [library.TopicPartition(*place, offset) for place, offset in planned.items()]
        )
    ]
    (future,) = admin.ask(admin.client.alter_consumer_group_offsets, request).values()
    try:
        done = admin.wait(future, f"{name}: ").topic_partitions
    except Failure as failure:
        if "member" in str(failure).lower() or "not empty" in str(failure).lower():
            raise Failure(f"group {name} has members: stop them first", exits.FAILED) from None
        raise
    refused = [each for each in done if each.error is not None]
    if refused:
        raise Failure(f"{name}: {refused[0].topic} {refused[0].partition}: {refused[0].error.str()}")


@verb(group, "delete")
def delete(target: Target, names: Ids) -> int:
    """Delete groups that have no members, with their offsets."""
    # librdkafka aborts the process where DeleteGroups is not served, as by older nodes
    found = target.ask_kafka_python(lambda client: client.delete_groups(names))
    return _tell({(name,): kafka_error(error) for name, error in found.items()}, "deleted")


@verb(group, "delete-offsets")
def delete_offsets(target: Target, name: Id, *, topics: Topics = None) -> int:
    """Forget how far a group has read in some topics."""
    if not topics:
        raise Failure("say of which topics: --topic TOPIC[:P,P]", exits.USAGE)
    places = [place for each in topics for place in read_place(target.admin, each)]
    found = target.ask_kafka_python(
        lambda client: client.delete_group_offsets(name, [kafka_place(*place) for place in places])
    )
    return _tell({(name, place.topic, place.partition): error for place, error in found.items()}, "forgotten")


def _tell(found: Mapping[tuple[Any, ...], Any], done: str) -> int:
    """Print what became of each; returns the last failure's exit code. Errors are classes of kafka-python."""
    code = 0
    for words, error in sorted(found.items()):
        what = " ".join(map(str, words))
        if error.errno == 0:
            print(f"{what} {done}")
        else:
            print(f"raftlog: {what}: {error.description}", file=sys.stderr)
            code = CODES.get(error.__name__, exits.FAILED)
    return code
