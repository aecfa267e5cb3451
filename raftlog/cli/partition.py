"""`raftlog partition …`: where partitions are and how far they reach; elections and moves."""

from __future__ import annotations

import sys
import time as time_module
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import Topic, Topics, complete_topic, noun, verb
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.move_throttle import let_go, read_rate
from raftlog.cli.move_throttle import throttle as hold_back
from raftlog.cli.partition_view import Added, Partition, partitions_in
from raftlog.cli.refusals import not_authorized
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import CODES, Admin, Target, kafka_error_of, kafka_topic_partition
from raftlog.cli.topic import partitions_of

partition = noun("List and describe partitions; offsets, elections, moves.")

_ELECTION_NOT_NEEDED: Final = 84
LOOK_EVERY_S: Final = 0.3

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
        bool, typer.Option("--under-min-isr", "--under-min-isr-partitions", help="those that refuse acks=all")
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option("--at-min-isr", "--at-min-isr-partitions", help="those that would after one more loss"),
    ] = False,
    form: Form,
) -> None:
    """List partitions with leader, replicas and in-sync replicas."""
    admin = target.admin
    for name in topics or []:
        admin.topic(name)
    found = [each for each in partitions_in(admin.metadata()) if not topics or each.topic in topics]
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
    limits = {name: _min_isr(target.admin, name) for name in {each.topic for each in found}}
    reassigned = _reassigned(target)
    healths = [(each, each.stand(limits[each.topic], reassigned)) for each in found]
    return [
        each for each, health in healths if (under and health.under_min_isr) or (at and health.at_min_isr)
    ]


def _reassigned(target: Target) -> Added:
    moves = target.ask_kafka_python(lambda client: client.list_partition_reassignments(), "DESCRIBE")
    return {
        (tp.topic, tp.partition): (tuple(each["adding_replicas"]), tuple(each["removing_replicas"]))
        for tp, each in moves.items()
    }


def _min_isr(admin: Admin, topic: str) -> int:
    (found,) = (
        each["value"] for each in settings_of(admin, "topic", topic) if each["name"] == "min.insync.replicas"
    )
    return int(found)


@verb(partition, "describe", prints_rows=True)
def describe(target: Target, name: Topic, number: Number, *, form: Form) -> None:
    """Show a partition: its leader and replicas, its offsets, and its bytes on each broker."""
    admin = target.admin
    partitions_of(admin, name, number)
    seen = admin.topic(name).partitions[number]
    (row,) = _offsets(admin, name, [number])
    (topic,) = target.ask_kafka_python(lambda client: client.describe_topic_partitions([name]))["topics"]
    folders = target.ask_kafka_python(lambda client: client.describe_log_dirs())
    (detail,) = (each for each in topic["partitions"] if each["partition_index"] == number)
    sizes = {
        each["broker"]: part["partition_size"]
        for each in folders
        for folder in each["log_dirs"]
        for there in folder["topics"]
        if there["name"] == name
        for part in there["partitions"]
        if part["partition_index"] == number
    }
    print_object(
        {
            "topic": name,
            "partition": number,
            "leader": seen.leader if seen.leader >= 0 else None,
            "leader_epoch": detail["leader_epoch"],
            "replicas": list(seen.replicas),
            "isr": list(seen.isrs),
            "eligible_leaders": list(detail["eligible_leader_replicas"] or []),
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

    admin = target.admin
    chosen = partitions_of(admin, name, number)
    rows = _offsets(admin, name, chosen)
    if time:
        spec = confluent_kafka().admin.OffsetSpec.for_timestamp(read_moment("--time", time))
        at = offsets_at(admin, [(name, each) for each in chosen], spec)
        for row in rows:
            row["at_time"] = None if at[name, row["partition"]] < 0 else at[name, row["partition"]]
    print_rows(rows, form)


def _offsets(admin: Admin, name: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    spec = confluent_kafka().admin.OffsetSpec
    topic_partitions = [(name, number) for number in numbers]
    first, end = (
        offsets_at(admin, topic_partitions, spec.earliest()),
        offsets_at(admin, topic_partitions, spec.latest()),
    )
    return [
        {
            "partition": tp[1],
            "beginning": first[tp],
            "end": end[tp],
            "offsets": end[tp] - first[tp],
        }
        for tp in topic_partitions
    ]


def offsets_at(
    admin: Admin, topic_partitions: Iterable[tuple[str, int]], spec: Any
) -> dict[tuple[str, int], int]:
    """Return the offset that `spec` means in each partition; -1 where there is none. Raises Failure."""
    position = confluent_kafka().TopicPartition
    asked = {position(*tp): spec for tp in topic_partitions}
    if not asked:
        return {}
    found = {}
    for each, future in admin.ask(admin.client.list_offsets, asked).items():
        where = f"{each.topic} {each.partition}: "
        offset = found[each.topic, each.partition] = int(admin.wait(future, where, needs="DESCRIBE").offset)
        if offset == confluent_kafka().OFFSET_INVALID:  # no error to librdkafka where other leaders answered
            raise Failure(f"{where}its leader does not answer", exits.UNREACHABLE)
    return found


@verb(partition, "elect")
def elect(
    target: Target,
    topic_partitions: TopicPartitions = None,
    *,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="let a replica lead that may lack records, where no other can")
    ] = False,
) -> int:
    """Let the preferred (first) replica lead again, where it is in sync."""
    chosen: dict[str, list[int]] = {}
    for each in topic_partitions or []:
        for topic, number in read_topic_partition(target.admin, each):
            chosen.setdefault(topic, []).append(number)
    if unclean and not chosen:
        raise Failure("--unclean loses records: say which partitions", exits.USAGE)
    found = target.ask_kafka_python(  # confluent-kafka 2.16 fails to pass its arguments on
        lambda client: client.elect_leaders(int(unclean), chosen or None, raise_errors=False)
    )
    results = sorted(
        (each.topic, result.partition_id, result.error_code, result.error_message)
        for each in found.replica_election_results
        for result in each.partition_result
    )
    code = 0
    for topic, number, error, message in results:
        if error == _ELECTION_NOT_NEEDED:
            print(f"{topic} {number} is led as it should be")
        elif not error:
            print(f"{topic} {number} elected")
        else:
            refused = kafka_error_of(error)
            said = not_authorized(refused.__name__, "ALTER") or message or refused.description
            print(f"raftlog: {topic} {number}: {said}", file=sys.stderr)
            code = CODES.get(refused.__name__, exits.FAILED)
    return code


def read_topic_partition(admin: Admin, text: str) -> list[tuple[str, int]]:
    """Return the partitions that TOPIC or TOPIC:P,P means. Raises Failure when they are not there."""
    name, colon, numbers = text.partition(":")
    if not colon:
        return [(name, each) for each in partitions_of(admin, name)]
    if not all(each.isdecimal() for each in numbers.split(",")):
        raise Failure(f"{text}: expected TOPIC or TOPIC:P,P with whole numbers", exits.USAGE)
    return [(name, number) for each in numbers.split(",") for number in partitions_of(admin, name, int(each))]


def replicas_of(
    admin: Admin, topic_partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], list[int]]:
    """Return the brokers of each partition that is there."""
    there = {(each.topic, each.number): list(each.replicas) for each in partitions_in(admin.metadata())}
    return {tp: there[tp] for tp in topic_partitions if tp in there}


@verb(partition, "reassign")
def reassign(
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
    wait: Annotated[bool, typer.Option("--wait", "-w", help="until they are there")] = False,
) -> int:
    """Move partitions to other brokers, or cancel their moves. See partition reassignments for those under way.

    A throttle holds until the end of --wait, else until partition unthrottle.
    """
    if throttle and cancel:
        raise Failure("--throttle is for moves, not for taking them back", exits.USAGE)
    if bool(replicas) == cancel:
        raise Failure("say where to: --replicas ID,ID,... (or --cancel)", exits.USAGE)
    if replicas and not all(each.isdecimal() for each in replicas.split(",")):
        raise Failure(f"--replicas {replicas}: broker ids with commas between", exits.USAGE)
    rate = read_rate(throttle) if throttle else 0
    chosen = [tp for each in topic_partitions for tp in read_topic_partition(target.admin, each)]
    to = None if cancel else [int(each) for each in replicas.split(",")]
    if rate and to:
        hold_back(target.admin, replicas_of(target.admin, chosen), to, rate)
    found = target.ask_kafka_python(
        lambda client: client.alter_partition_reassignments(
            {kafka_topic_partition(*tp): to for tp in chosen}
        ),
        "ALTER",
    )
    code = 0
    for tp, error in sorted(found.items()):
        if error is None:
            print(f"{tp.topic} {tp.partition} " + ("stays" if cancel else f"moves to {replicas}"))
        else:
            print(f"raftlog: {tp.topic} {tp.partition}: {error.description}", file=sys.stderr)
            code = exits.NOT_FOUND if error.message == "NO_REASSIGNMENT_IN_PROGRESS" else exits.FAILED
    moving = {tp for tp, error in found.items() if error is None}
    if wait:
        _wait(target, moving)
    if rate and (wait or not moving):
        let_go(target, {topic for topic, _ in chosen})
    elif rate:
        print("throttled until: raftlog partition unthrottle", *sorted({topic for topic, _ in chosen}))
    return code


@verb(partition, "unthrottle")
def unthrottle(target: Target, topics: Topics) -> None:
    """Let moves of these topics take all bandwidth, and remove the brokers' rates when no partition is moved."""
    for name in topics:
        target.admin.topic(name)
    whole = let_go(target, topics)
    print(
        "nothing is throttled" if whole else "no more throttled; the rates stay, since partitions are moving"
    )


def _wait(target: Target, moving: set[Any]) -> None:
    """Show how many moves are done until all are; Ctrl-C leaves them to go on."""
    from raftlog.cli.demo_screen import Screen

    with Screen(quiet=not sys.stderr.isatty()) as screen:
        screen.phase("partitions moved", len(moving))
        while (
            left := moving
            & target.ask_kafka_python(lambda client: client.list_partition_reassignments(), "DESCRIBE").keys()
        ):
            screen.progress(len(moving) - len(left))
            time_module.sleep(LOOK_EVERY_S)


@verb(partition, "reassignments", prints_rows=True)
def reassignments(target: Target, *, form: Form) -> None:
    """List the moves that are under way."""
    found = target.ask_kafka_python(lambda client: client.list_partition_reassignments(), "DESCRIBE")
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": each["replicas"],
            "adding": each["adding_replicas"],
            "removing": each["removing_replicas"],
        }
        for tp, each in sorted(found.items())
    ]
    print_rows(rows, form, ("topic", "partition", "replicas", "adding", "removing"))
