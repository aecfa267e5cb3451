"""`raftlog partition …`: where partitions are and how far they reach; elections and moves."""

from __future__ import annotations

import sys
import time as time_module
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from raftlog.base.errors import ElectionNotNeeded, KafkaError, from_code
from raftlog.cli import exits
from raftlog.cli.broker import log_dirs_of
from raftlog.cli.cluster_command import Topic, Topics, complete_topic, noun, verb
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.move_throttle import read_rate, remove_throttles
from raftlog.cli.move_throttle import throttle as hold_back
from raftlog.cli.partition_view import Partition, ongoing_moves, partitions_in
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import Target, code_of, words_of
from raftlog.cli.topic import partitions_of
from raftlog.client.metadata import EARLIEST, LATEST, PartitionKey
from raftlog.protocol.apis import ApiKey

partition = noun("List and describe partitions; offsets, elections, moves.")

POLL_INTERVAL_S: Final = 0.3
MAX_PARTITIONS: Final = 2_000
"""Partitions that one response describes."""

Number = Annotated[int, typer.Argument(metavar="PARTITION", min=0)]
OneOrAll = Annotated[int, typer.Option("--partition", "-p", help="-1: all")]
TopicPartitions = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC[:P,P]", help="default: all there are", autocompletion=complete_topic),
]


@verb(partition, "list", prints_rows=True)
def list_partitions(
    target: Target,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)
    ] = None,
    *,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated", "--under-replicated-partitions", help="those with replicas not in sync"
        ),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", "--unavailable-partitions", help="those without a leader")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr", "--under-min-isr-partitions", help="only partitions that refuse acks=all"
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr", "--at-min-isr-partitions", help="only partitions at min.insync.replicas"
        ),
    ] = False,
    form: Form,
) -> None:
    """List partitions with leader, replicas and in-sync replicas."""
    metadata = target.metadata()
    for name in topics or []:
        if name not in metadata.topics:
            raise Failure(f"there is no topic {name}", exits.NOT_FOUND)
    found = [each for each in partitions_in(metadata) if not topics or each.topic in topics]
    if under_replicated:
        found = [each for each in found if len(each.isr) < len(each.replicas)]
    if unavailable:
        found = [each for each in found if each.leader < 0]
    if under_min_isr or at_min_isr:
        found = _by_min_isr(target, found, under=under_min_isr, at=at_min_isr)
    rows = [
        {
            "topic": each.topic,
            "partition": each.number,
            "leader": each.leader if each.leader >= 0 else None,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
        }
        for each in found
    ]
    print_rows(rows, form, ("topic", "partition", "leader", "replicas", "isr"))


def _by_min_isr(target: Target, found: list[Partition], *, under: bool, at: bool) -> list[Partition]:
    """Return the partitions that refuse acks=all (`under`), and the partitions that would after one more loss
    (`at`).
    """
    limits = {name: _min_isr(target, name) for name in {each.topic for each in found}}
    reassigned = ongoing_moves(target)
    healths = [(each, each.stand(limits[each.topic], reassigned)) for each in found]
    return [
        each for each, health in healths if (under and health.under_min_isr) or (at and health.at_min_isr)
    ]


def _min_isr(target: Target, topic: str) -> int:
    (found,) = (
        each["value"] for each in settings_of(target, "topic", topic) if each["name"] == "min.insync.replicas"
    )
    return int(found)


@verb(partition, "describe", prints_rows=True)
def describe(target: Target, name: Topic, number: Number, *, form: Form) -> None:
    """Show a partition: its leader and replicas, its offsets, and its bytes on each broker."""
    partitions_of(target, name, number)
    seen = target.topic(name).partitions[number]
    (row,) = _offsets(target, name, [number])
    (topic,) = target.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda make: make.DescribeTopicPartitionsRequest(
            topics=(make.TopicRequest(name=name),), response_partition_limit=MAX_PARTITIONS, cursor=None
        ),
    ).topics
    detail = next((each for each in topic.partitions if each.partition_index == number), None)
    sizes = {
        broker: part.partition_size
        for broker in seen.replicas
        if broker in {each.broker_id for each in target.brokers()}
        for folder in log_dirs_of(target, broker)
        for there in folder.topics
        if there.name == name
        for part in there.partitions
        if part.partition_index == number
    }
    print_object(
        {
            "topic": name,
            "partition": number,
            "leader": seen.leader if seen.leader >= 0 else None,
            "leader_epoch": seen.leader_epoch,
            "replicas": list(seen.replicas),
            "isr": list(seen.isr),
            "eligible_leaders": list((detail and detail.eligible_leader_replicas) or []),
            "beginning": row["beginning"],
            "end": row["end"],
            "offsets": row["offsets"],
            "bytes": [f"{broker}:{size}" for broker, size in sorted(sizes.items())]
            if form is Form.TABLE
            else {str(broker): size for broker, size in sorted(sizes.items())},
        },
        form,
    )


@verb(partition, "offsets", prints_rows=True)
def offsets(
    target: Target,
    name: Topic,
    *,
    number: OneOrAll = -1,
    time: Annotated[
        str,
        typer.Option("--time", help="also the first offset at or after this time (ms, or ISO 8601)"),
    ] = "",
    form: Form,
) -> None:
    """Show where partitions begin and end."""
    from raftlog.cli.timestamps import read_moment

    chosen = partitions_of(target, name, number)
    rows = _offsets(target, name, chosen)
    if time:
        moment_ms = read_moment("--time", time)
        at = offsets_at(target, [(name, each) for each in chosen], moment_ms)
        for row in rows:
            row["at_time"] = None if at[name, row["partition"]] < 0 else at[name, row["partition"]]
    print_rows(rows, form)


def _offsets(target: Target, name: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    keys = [(name, number) for number in numbers]
    first, end = offsets_at(target, keys, EARLIEST), offsets_at(target, keys, LATEST)
    return [
        {
            "partition": key[1],
            "beginning": first[key],
            "end": end[key],
            "offsets": end[key] - first[key],
        }
        for key in keys
    ]


def offsets_at(
    target: Target, topic_partitions: Iterable[PartitionKey], timestamp: int
) -> dict[PartitionKey, int]:
    """Return the offset of a time in ms, EARLIEST or LATEST in each partition; -1 if there is none. Raise Failure."""
    from raftlog.client.fetching import list_offsets

    with target.failures(needs="DESCRIBE"):
        return list_offsets(target.cluster, topic_partitions, timestamp)


@verb(partition, "elect")
def elect(
    target: Target,
    topic_partitions: TopicPartitions = None,
    *,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="elect a replica that may lack records, if no other can lead")
    ] = False,
) -> int:
    """Let the preferred (first) replica lead again, where it is in sync."""
    chosen: dict[str, list[int]] = {}
    for each in topic_partitions or []:
        for topic, number in read_topic_partition(target, each):
            chosen.setdefault(topic, []).append(number)
    if unclean and not chosen:
        raise Failure("--unclean loses records: name the partitions", exits.USAGE)

    code = 0
    for (topic, number), error in elect_leaders(target, chosen, unclean=unclean):
        if isinstance(error, ElectionNotNeeded):
            print(f"{topic} {number} is led as it should be")
        elif error is None:
            print(f"{topic} {number} elected")
        else:
            print(f"raftlog: {topic} {number}: {words_of(error, 'ALTER')}", file=sys.stderr)
            code = code_of(error)
    return code


def elect_leaders(
    target: Target, chosen: Mapping[str, Sequence[int]] | None = None, *, unclean: bool = False
) -> list[tuple[PartitionKey, KafkaError | None]]:
    """Have leaders elected, by default of all partitions; return the error of each partition."""

    def build(make: Any) -> Any:
        wanted = tuple(
            make.TopicPartitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in (chosen or {}).items()
        )
        return make.ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=wanted or None,
            timeout=int(target.timeout_s * 1000),
        )

    answer = target.ask(ApiKey.ELECT_LEADERS, build, needs="ALTER")
    return [
        (
            (topic.topic, each.partition_id),
            from_code(each.error_code, each.error_message) if each.error_code else None,
        )
        for topic in sorted(answer.replica_election_results, key=lambda topic: str(topic.topic))
        for each in sorted(topic.partition_result, key=lambda each: int(each.partition_id))
    ]


def read_topic_partition(target: Target, text: str) -> list[tuple[str, int]]:
    """Return the partitions that TOPIC or TOPIC:P,P means. Raises Failure when they are not there."""
    name, colon, numbers = text.partition(":")
    if not colon:
        return [(name, each) for each in partitions_of(target, name)]
    if not all(each.isdecimal() for each in numbers.split(",")):
        raise Failure(f"{text}: expected TOPIC or TOPIC:P,P with whole numbers", exits.USAGE)
    return [
        (name, number) for each in numbers.split(",") for number in partitions_of(target, name, int(each))
    ]


def replicas_of(
    target: Target, topic_partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], list[int]]:
    """Return the brokers of each partition that is there."""
    there = {(each.topic, each.number): list(each.replicas) for each in partitions_in(target.metadata())}
    return {tp: there[tp] for tp in topic_partitions if tp in there}


@verb(partition, "reassign")
def move(
    target: Target,
    topic_partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:P,P]", autocompletion=complete_topic)
    ],
    *,
    replicas: Annotated[
        str,
        typer.Option("--replicas", "-r", metavar="ID,ID,...", help="the first one is the preferred leader"),
    ] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="leave them where they were")] = False,
    throttle: Annotated[
        str,
        typer.Option("--throttle", metavar="RATE", help="bytes a second and broker, such as 10MB"),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="until they are there")] = False,
) -> int:
    """Move partitions to other brokers, or cancel their moves. See partition reassignments for those under way.

    A throttle holds until the end of --wait, else until partition unthrottle.
    """
    if throttle and cancel:
        raise Failure("--throttle cannot be combined with --cancel", exits.USAGE)
    if bool(replicas) == cancel:
        raise Failure("name the replicas: --replicas ID,ID,... (or use --cancel)", exits.USAGE)
    if replicas and not all(each.isdecimal() for each in replicas.split(",")):
        raise Failure(f"--replicas {replicas}: must be broker ids, separated by commas", exits.USAGE)
    rate = read_rate(throttle) if throttle else 0
    chosen = [tp for each in topic_partitions for tp in read_topic_partition(target, each)]
    to = None if cancel else [int(each) for each in replicas.split(",")]
    if rate and to:
        hold_back(target, replicas_of(target, chosen), to, rate)
    code = 0
    moving = set()
    for key, error in reassign(target, dict.fromkeys(chosen, to)):
        where = f"{key[0]} {key[1]}"
        if error is None:
            moving.add(key)
            print(f"{where} " + ("stays" if cancel else f"moves to {replicas}"))
        else:
            print(f"raftlog: {where}: {words_of(error, 'ALTER')}", file=sys.stderr)
            code = code_of(error)
    if wait:
        _wait(target, moving)
    if rate and (wait or not moving):
        remove_throttles(target, {topic for topic, _ in chosen})
    elif rate:
        print("throttled until: raftlog partition unthrottle", *sorted({topic for topic, _ in chosen}))
    return code


def reassign(
    target: Target, wanted: Mapping[PartitionKey, Sequence[int] | None]
) -> list[tuple[PartitionKey, KafkaError | None]]:
    """Ask for the moves, or with None for their end; return the error of each partition."""
    by_topic: dict[str, dict[int, Sequence[int] | None]] = {}
    for (topic, number), replicas in wanted.items():
        by_topic.setdefault(topic, {})[number] = replicas

    def build(make: Any) -> Any:
        topics = tuple(
            make.ReassignableTopic(
                name=topic,
                partitions=tuple(
                    make.ReassignablePartition(
                        partition_index=number, replicas=None if replicas is None else tuple(replicas)
                    )
                    for number, replicas in there.items()
                ),
            )
            for topic, there in by_topic.items()
        )
        return make.AlterPartitionReassignmentsRequest(timeout=int(target.timeout_s * 1000), topics=topics)

    answer = target.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, build, needs="ALTER")
    return [
        (
            (topic.name, each.partition_index),
            from_code(each.error_code, each.error_message) if each.error_code else None,
        )
        for topic in sorted(answer.responses, key=lambda topic: str(topic.name))
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    ]


@verb(partition, "unthrottle")
def unthrottle(target: Target, topics: Topics) -> None:
    """Let moves of these topics take all bandwidth, and remove the brokers' rates when no partition is moved."""
    for name in topics:
        target.topic(name)
    whole = remove_throttles(target, topics)
    print(
        "no move is throttled" if whole else "no more throttled; the rates stay, since partitions are moving"
    )


def _wait(target: Target, moving: set[PartitionKey]) -> None:
    """Show how many moves are done until all are; Ctrl-C leaves them to go on."""
    from raftlog.cli.demo.screen import Screen

    with Screen(quiet=not sys.stderr.isatty()) as screen:
        screen.phase("partitions moved", len(moving))
        while left := moving & ongoing_moves(target).keys():
            screen.progress(len(moving) - len(left))
            time_module.sleep(POLL_INTERVAL_S)


@verb(partition, "reassignments", prints_rows=True)
def reassignments(target: Target, *, form: Form) -> None:
    """List the moves that are under way."""
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for (topic, number), move in sorted(ongoing_moves(target).items())
    ]
    print_rows(rows, form, ("topic", "partition", "replicas", "adding", "removing"))
