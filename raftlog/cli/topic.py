"""`raftlog topic …`, on librdkafka's admin client."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from raftlog.cli import exits
from raftlog.cli.cluster_command import Topic, Topics, noun, verb
from raftlog.cli.effective_settings import change_settings, settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import client_settings, confluent_kafka
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Admin, Target, settle

topic = noun("Create, list, describe, alter, trim and delete topics.")

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", "--add-config", metavar="NAME=VALUE", help="a topic config"),
]
LOST_WITH: Final = {
    CONSUMER_OFFSETS_TOPIC: "every group's committed offsets and members",
    TRANSACTION_STATE_TOPIC: "every transactional id, and what their open transactions are to become",
}
"""The content of internal topics, as a warning before a deletion."""
DryRun = Annotated[bool, typer.Option("--dry-run", "-d", help="have it checked, and not done")]


@verb(topic, "create")
def create(
    target: Target,
    names: Topics,
    *,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: num.partitions")] = -1,
    replicas: Annotated[
        int,
        typer.Option("--replicas", "-r", "--replication-factor", help="-1: default.replication.factor"),
    ] = -1,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="one that exists is fine")] = False,
    dry_run: DryRun = False,
) -> int:
    """Create topics."""
    new_topic = confluent_kafka().admin.NewTopic
    settings = client_settings(config or [])
    admin = target.admin
    if if_not_exists:
        there = admin.topics()
        names = [name for name in names if name not in there]
    if not names:
        return 0
    futures = admin.ask(
        admin.client.create_topics,
        [
            new_topic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
            for name in names
        ],
        operation_timeout=target.timeout_s,
        validate_only=dry_run,
    )
    done = "could be created" if dry_run else "created"
    return settle(admin, futures, lambda name, _: print(f"{name} {done}"), needs="CREATE")


@verb(topic, "list", prints_rows=True)
def list_topics(target: Target, *, form: Form) -> None:
    """List topics with their partitions and replication factors."""
    rows = [
        {
            "topic": name,
            "partitions": len(found.partitions),
            "replication_factor": _replication_factor(found),
        }
        for name, found in sorted(target.admin.topics().items())
    ]
    print_rows(rows, form, ("topic", "partitions", "replication_factor"))


@verb(topic, "describe", prints_rows=True)
def describe(target: Target, name: Topic, *, form: Form) -> None:
    """Show a topic's partitions with leader, replicas and in-sync replicas, and the configs that were set."""
    admin = target.admin
    found = admin.topic(name)
    if form is Form.TABLE:
        set_here = [
            f"{each['name']}={each['value']}"
            for each in settings_of(admin, "topic", name)
            if each["source"] == "topic"
        ]
        print(
            f"{name}  partitions {len(found.partitions)}  replication factor {_replication_factor(found)}",
            *set_here,
            sep="\n  ",
        )
        print()
    rows = [
        {"partition": each.id, "leader": each.leader, "replicas": list(each.replicas), "isr": list(each.isrs)}
        for each in sorted(found.partitions.values(), key=lambda each: each.id)
    ]
    print_rows(rows, form, ("partition", "leader", "replicas", "isr"))


@verb(topic, "alter")
def alter(
    target: Target,
    name: Topic,
    *,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", "-d", metavar="NAME", help="a config that is to be the default again"
        ),
    ] = None,
) -> None:
    """Set and unset configs of a topic, all or none."""
    changes: dict[str, str | None] = {**client_settings(config or []), **dict.fromkeys(delete_config or [])}
    if not changes:
        raise Failure("nothing to alter: say -c NAME=VALUE or -d NAME", exits.USAGE)
    change_settings(target.admin, "topic", name, changes)


@verb(topic, "add-partitions")
def add_partitions(
    target: Target,
    name: Topic,
    *,
    by: Annotated[int, typer.Option("--num", "-n", min=0, help="how many to add")] = 0,
    total: Annotated[int, typer.Option("--partitions", "-p", min=0, help="how many there are to be")] = 0,
    dry_run: DryRun = False,
) -> int:
    """Add partitions to a topic. Keys may go to other partitions from then on."""
    if bool(by) == bool(total):
        raise Failure("say how many: either --num to add, or --partitions in all", exits.USAGE)
    admin = target.admin
    total = total or by + len(admin.topic(name).partitions)
    futures = admin.ask(
        admin.client.create_partitions,
        [confluent_kafka().admin.NewPartitions(name, total)],
        operation_timeout=target.timeout_s,
        validate_only=dry_run,
    )
    done = "could have" if dry_run else "has"
    return settle(admin, futures, lambda topic, _: print(f"{topic} {done} {total} partitions"), needs="ALTER")


@verb(topic, "trim")
def trim(
    target: Target,
    name: Topic,
    *,
    offset: Annotated[str, typer.Option("--offset", help="the first offset to keep, or end for none")],
    partition: Annotated[int, typer.Option("--partition", "-p", help="-1: all of them")] = -1,
) -> int:
    """Delete a topic's records before an offset."""
    admin = target.admin
    before = -1 if offset == "end" else _whole_number("--offset", offset)
    chosen = partitions_of(admin, name, partition)
    position = confluent_kafka().TopicPartition
    futures = admin.ask(
        admin.client.delete_records,
        [position(name, each, before) for each in chosen],
        operation_timeout=target.timeout_s,
    )
    return settle(
        admin,
        {f"{name} {each.partition}": future for each, future in futures.items()},
        lambda label, deleted: print(f"{label} begins at {deleted.low_watermark}"),
        needs="DELETE",
    )


@verb(topic, "delete")
def delete(
    target: Target,
    names: Topics,
    *,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="one that is not there is fine")] = False,
    force: Annotated[bool, typer.Option("--force", help="also what the cluster itself keeps in one")] = False,
) -> int:
    """Delete topics and all that is in them."""
    for name in names:
        if name in LOST_WITH and not force:
            raise Failure(f"with {name} is lost {LOST_WITH[name]}; --force deletes it all the same")
    admin = target.admin
    if if_exists:
        there = admin.topics()
        names = [name for name in names if name in there]
    if not names:
        return 0
    futures = admin.ask(admin.client.delete_topics, names, operation_timeout=target.timeout_s)
    return settle(admin, futures, lambda name, _: print(f"{name} deleted"), needs="DELETE")


def partitions_of(admin: Admin, name: str, partition: int = -1) -> list[int]:
    """Return the numbers of a topic's partitions, or the one asked for. Raises Failure when it is not there."""
    there = sorted(admin.topic(name).partitions)
    if partition < 0:
        return there
    if partition not in there:
        known = f"0 to {len(there) - 1}" if len(there) > 1 else "0 alone"
        raise Failure(f"topic {name} has no partition {partition}, but {known}", exits.NOT_FOUND)
    return [partition]


def _replication_factor(found: Any) -> int:
    return max((len(each.replicas) for each in found.partitions.values()), default=0)


def _whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise Failure(f"{option} must be a whole number from 0 on, or end; not {text}", exits.USAGE)
    return int(text)
