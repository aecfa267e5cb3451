"""`raftlog share-group …`: share groups, their members, and their start offsets (KIP-932)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from raftlog.base.errors import GroupIdNotFound, UnsupportedVersion, from_code
from raftlog.cli import exits
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.effective_settings import setting_of
from raftlog.cli.exits import Failure
from raftlog.cli.group import Id, Ids, Topics, delete_group, print_groups, report
from raftlog.cli.group_lookup import CONSUMER, Group, GroupMember, in_use, refuse_type
from raftlog.cli.group_reset import one_rule, plan
from raftlog.cli.http_api import HttpApi
from raftlog.cli.http_command import http_verb
from raftlog.cli.partition import read_topic_partition
from raftlog.cli.printable import printable
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import Target
from raftlog.client.metadata import PartitionKey
from raftlog.protocol.apis import ApiKey

share_group = noun("List and describe share groups; reset and delete their offsets.")

OFFSET_COLUMNS = ("topic", "partition", "start_offset", "lag")


@verb(share_group, "list", prints_rows=True)
def list_groups(target: Target, *, form: Form) -> int:
    """List share groups with their state. A broker that does not answer is named, and its groups are missing."""
    return print_groups(target, form, ("group", "state"), types=("share",))


@verb(share_group, "describe", prints_rows=True)
def describe(target: Target, name: Id, *, form: Form) -> None:
    """Show a share group's state, members, dead-letter topic, start offsets and lag.

    A lag is "-" until records are acknowledged.
    """
    found = described(target, name)
    members = [
        {
            "member": each.member_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": [f"{topic}-{number}" for topic, number in each.partitions],
        }
        for each in found.members
    ]
    offsets = [
        {"topic": topic, "partition": number, "start_offset": start_offset, "lag": lag}
        for (topic, number), (start_offset, lag) in sorted(offsets_of(target, name).items())
    ]
    is_table = form is Form.TABLE
    about = {
        "group": name,
        "state": found.state,
        "coordinator": found.coordinator,
        "assignor": found.assignor or None,
        "dead_letters": _dead_letter_topic(target, name),
        "members": len(members) if is_table else members,
        "offsets": len(offsets) if is_table else offsets,
    }
    print_object(about, form)
    for rows in (members, offsets):
        if rows and is_table:
            print()
            print_rows(rows, form, list(rows[0]), fold=True)


@verb(share_group, "reset", prints_rows=True)
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
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0)] = None,
    to_datetime: Annotated[str, typer.Option("--to-datetime", help="as 2026-01-31T12:00:00Z, or ms")] = "",
    by_duration: Annotated[str, typer.Option("--by-duration", help="to this long ago, as PT2H")] = "",
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="set them, or only show the plan")
    ] = False,
    form: Form,
) -> int:
    """Reset the start offsets of a share group without members. Without --execute only the plan is shown."""
    given = {
        "earliest": to_earliest or None,
        "latest": to_latest or None,
        "offset": to_offset,
        "datetime": to_datetime or None,
        "duration": by_duration or None,
    }
    rule = one_rule(given)
    if bool(topics) == all_topics:
        raise Failure("name topics: --topic TOPIC[:P,P] or --all-topics", exits.USAGE)
    found = looked_up(target, name)
    if found is None:
        refuse_type(target, name, CONSUMER, f"raftlog group reset {name}")
    if execute and found is not None and (why_not := in_use(found)):
        raise Failure(why_not)
    there = {} if found is None else offsets_of(target, name)
    named = [tp for each in topics or [] for tp in read_topic_partition(target, each)] or sorted(there)
    if not named:
        raise Failure(f"share group {name} has no offsets: name topics with --topic", exits.NOT_FOUND)
    planned = plan(target, named, {}, rule, is_final=execute)
    code = _move(target, name, planned) if execute else exits.OK
    rows = [
        {"topic": topic, "partition": number, "start_offset": there.get(tp, (None,))[0], "new_offset": to}
        for tp, to in planned.items()
        for topic, number in (tp,)
    ]
    print_rows(rows, form, ("topic", "partition", "start_offset", "new_offset"))
    if not execute:
        new = f"there is no share group {name} yet; " if found is None else ""
        print(f"raftlog: {new}no offset was changed; repeat with --execute to change it", file=sys.stderr)
    return code


@verb(share_group, "delete")
def delete(target: Target, names: Ids) -> int:
    """Delete share groups without members, with the delivery state of their records."""
    code = exits.OK
    for name in names:
        why_not = in_use(described(target, name, "delete"))
        if why_not:
            raise Failure(why_not)
        code = report(name, delete_group(target, name), "deleted") or code
    return code


@verb(share_group, "delete-offsets")
def delete_offsets(target: Target, name: Id, *, topics: Topics = None) -> int:
    """Delete a share group's offsets for whole topics."""
    if not topics or any(":" in each for each in topics):
        raise Failure("name whole topics: --topic TOPIC", exits.USAGE)
    if why_not := in_use(described(target, name, "delete-offsets")):
        raise Failure(why_not)

    def build(make: Any) -> Any:
        named = tuple(make.DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics)
        return make.DeleteShareGroupOffsetsRequest(group_id=name, topics=named)

    with target.failures(f"{name}: ", needs="DELETE"):
        answer = target.cluster.ask_coordinator(name, ApiKey.DELETE_SHARE_GROUP_OFFSETS, build)
    code = exits.OK
    for each in answer.responses:
        error = from_code(each.error_code, each.error_message) if each.error_code else None
        code = report(f"{name} {each.topic_name}", error, "forgotten") or code
    return code


@http_verb(share_group, "why", prints_rows=True)
def why(
    api: HttpApi,
    name: Id,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    *,
    form: Form,
) -> None:
    """Show the state of a record, to whom it was delivered, and how each delivery ended, newest first."""
    group, topic = quote(name, safe=""), quote(topic, safe="")
    found = api.ask(
        "GET", f"/v1/share-groups/{group}/topics/{topic}/partitions/{partition}/records/{offset}/why"
    )
    if form is not Form.TABLE:
        print_object(found, form)
        return
    print(printable(found["summary"]))
    rows = [
        {
            "at": each["when"]["at"],
            "delivery": each["delivery_count"],
            "change": each["message"],
            "because": each["because"],
        }
        for each in found["events"]
    ]
    if rows:
        print()
        print_rows(rows, form, fold=True)


Records = Annotated[str, typer.Argument(metavar="TOPIC:PARTITION[:FIRST[-LAST]]")]


@http_verb(share_group, "release", prints_rows=True)
def release(api: HttpApi, name: Id, records: Records, *, form: Form) -> None:
    """End the locks that members have on records, so that other members get them.

    Without offsets: all that the group has in flight in the partition. The former holders can acknowledge them no more.
    """
    _print_by_hand(api, name, records, "release", form)


@http_verb(share_group, "archive", prints_rows=True)
def archive(api: HttpApi, name: Id, records: Records, *, form: Form) -> None:
    """Archive records for good, as if a member had rejected them: they get dead letters if the group has a topic.

    Without offsets: all that were delivered and are in flight in the partition.
    """
    _print_by_hand(api, name, records, "archive", form)


def _print_by_hand(api: HttpApi, name: str, records: str, action: str, form: Form) -> None:
    topic, partition, offsets = read_records(records)
    path = f"/v1/share-groups/{quote(name, safe='')}/topics/{quote(topic, safe='')}/partitions/{partition}"
    found = api.ask("POST", f"{path}/{action}", offsets)
    counts = ("released", "archived", "available", "pending", "done", "not_fetched")
    print_object({"topic": topic, "partition": partition} | {each: found[each] for each in counts}, form)


def read_records(text: str) -> tuple[str, int, dict[str, int]]:
    """Return the topic, the partition and the offsets of TOPIC:PARTITION[:FIRST[-LAST]]. Raise Failure."""
    found = re.fullmatch(r"([^:]+):(\d{1,10})(?::(\d{1,19})(?:-(\d{1,19}))?)?", text, re.ASCII)
    if found is None:
        raise Failure(f"{text}: expected TOPIC:PARTITION[:FIRST[-LAST]], as jobs:0:17-19", exits.USAGE)
    topic, partition, *offsets = found.groups()
    named = zip(("first_offset", "last_offset"), offsets, strict=True)
    return topic, int(partition), {field: int(each) for field, each in named if each is not None}


# -- the coordinator -----------------------------------------------------------------------------------------


def described(target: Target, name: str, verb: str = "describe") -> Group:
    """Return a share group. Raise Failure if there is none; for a consumer group it names this verb of `group`."""
    found = looked_up(target, name)
    if found is None:
        refuse_type(target, name, CONSUMER, f"raftlog group {verb} {name}")
        raise Failure(f"there is no share group {name}", exits.NOT_FOUND)
    return found


def looked_up(target: Target, name: str) -> Group | None:
    """Return a share group, None when there is none. Raise Failure."""
    with target.failures(f"{name}: ", needs="DESCRIBE"):
        try:
            (found,) = target.cluster.ask_coordinator(
                name,
                ApiKey.SHARE_GROUP_DESCRIBE,
                lambda make: make.ShareGroupDescribeRequest(
                    group_ids=(name,), include_authorized_operations=False
                ),
                errors=lambda answer: [each.error_code for each in answer.groups],
            ).groups
        except UnsupportedVersion:
            raise Failure("share groups are off: share.version of this cluster is 0") from None
        if found.error_code == GroupIdNotFound.code:
            return None
        if found.error_code:
            raise from_code(found.error_code, found.error_message)
        coordinator = target.cluster.coordinator(name)
    members = tuple(
        GroupMember(each.member_id, None, each.client_id, each.client_host, tuple(_assigned(each)))
        for each in found.members
    )
    return Group(name, found.group_state.lower(), found.assignor_name, coordinator, members)


def _assigned(member: Any) -> Iterator[PartitionKey]:
    for topic in member.assignment.topic_partitions:
        for number in topic.partitions:
            yield topic.topic_name, number


def offsets_of(target: Target, name: str) -> dict[PartitionKey, tuple[int | None, int | None]]:
    """Return the start offset and the lag of each partition that a share group has; None for what is not known."""
    with target.failures(f"{name}: ", needs="DESCRIBE"):
        (found,) = target.cluster.ask_coordinator(
            name,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            lambda make: make.DescribeShareGroupOffsetsRequest(
                groups=(make.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None),)
            ),
            errors=lambda answer: [each.error_code for each in answer.groups],
        ).groups
        if found.error_code:
            raise from_code(found.error_code, found.error_message)
    return {
        (topic.topic_name, each.partition_index): (_known(each.start_offset), _known(each.lag))
        for topic in found.topics
        for each in topic.partitions
    }


def _dead_letter_topic(target: Target, name: str) -> str | None:
    """Return the topic that gets dead letters of a share group; None without, and without the right to know it."""
    try:
        return setting_of(target, "group", name, "errors.deadletterqueue.topic.name") or None
    except Failure:
        return None


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _move(target: Target, name: str, planned: Mapping[PartitionKey, int]) -> int:
    """Set these start offsets; report the partitions that failed, and return the exit code."""

    def build(make: Any) -> Any:
        return make.AlterShareGroupOffsetsRequest(
            group_id=name,
            topics=tuple(
                make.AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=tuple(
                        make.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=to)
                        for number, to in offsets
                    ),
                )
                for topic, offsets in _by_topic(planned.items()).items()
            ),
        )

    with target.failures(f"{name}: ", needs="READ"):
        answer = target.cluster.ask_coordinator(name, ApiKey.ALTER_SHARE_GROUP_OFFSETS, build)
    code = exits.OK
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code:
                error = from_code(each.error_code, each.error_message)
                code = report(f"{name} {topic.topic_name} {each.partition_index}", error, "") or code
    return code


def _by_topic(planned: Iterable[tuple[PartitionKey, int]]) -> dict[str, list[tuple[int, int]]]:
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, number), to in planned:
        topics.setdefault(topic, []).append((number, to))
    return topics
