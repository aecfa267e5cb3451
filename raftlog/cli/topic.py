"""`raftlog topic …`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from raftlog.base.types import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from raftlog.cli import exits
from raftlog.cli.client_settings import read_settings
from raftlog.cli.cluster_command import Topic, Topics, noun, verb
from raftlog.cli.effective_settings import change_settings, settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Target, print_results
from raftlog.client.metadata import PartitionKey
from raftlog.protocol.apis import ApiKey

topic = noun("Create, list, describe, alter, trim and delete topics.")

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", "--add-config", metavar="NAME=VALUE", help="a topic config"),
]
LOST_WITH: Final = {
    CONSUMER_OFFSETS_TOPIC: "every group's committed offsets and members",
    SHARE_GROUP_STATE_TOPIC: "what every share group has done with its records",
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
    settings = read_settings(config or [])
    if if_not_exists:
        there = target.topics()
        names = [name for name in names if name not in there]
    if not names:
        return 0

    def build(make: Any) -> Any:
        configs = tuple(
            make.CreatableTopicConfig(name=setting, value=value) for setting, value in settings.items()
        )
        topics = tuple(
            make.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                assignments=(),
                configs=configs,
            )
            for name in names
        )
        return make.CreateTopicsRequest(topics=topics, timeout=_timeout_ms(target), validate_only=dry_run)

    found = {each.name: each for each in target.ask(ApiKey.CREATE_TOPICS, build).topics}
    done = "could be created" if dry_run else "created"
    return print_results([(name, found[name], f"{name} {done}") for name in names], needs="CREATE")


@verb(topic, "list", prints_rows=True)
def list_topics(
    target: Target,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="internal topics, too")] = False,
    form: Form,
) -> None:
    """List topics with their partitions and replication factors; internal topics on request."""
    rows = [
        {
            "topic": name,
            "partitions": len(found.partitions),
            "replication_factor": found.replication_factor,
        }
        for name, found in sorted(target.topics().items())
        if internal or name not in INTERNAL_TOPICS
    ]
    print_rows(rows, form, ("topic", "partitions", "replication_factor"))


@verb(topic, "describe", prints_rows=True)
def describe(target: Target, name: Topic, *, form: Form) -> None:
    """Show a topic's partitions with leader, replicas and in-sync replicas, and the configs that were set."""
    found = target.topic(name)
    if form is Form.TABLE:
        set_here = [
            f"{each['name']}={each['value']}"
            for each in settings_of(target, "topic", name)
            if each["source"] == "topic"
        ]
        print(
            f"{name}  partitions {len(found.partitions)}  replication factor {found.replication_factor}",
            *set_here,
            sep="\n  ",
        )
        print()
    rows = [
        {
            "topic": name,
            "partition": each.id,
            "leader": each.leader,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
        }
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
        typer.Option("--delete-config", metavar="NAME", help="a config to set back to its default"),
    ] = None,
) -> None:
    """Set and unset configs of a topic, all or none."""
    changes: dict[str, str | None] = {**read_settings(config or []), **dict.fromkeys(delete_config or [])}
    if not changes:
        raise Failure("no config given: add -c NAME=VALUE or --delete-config NAME", exits.USAGE)
    change_settings(target, "topic", name, changes)


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
        raise Failure("use --num to add partitions, or --partitions to set their total", exits.USAGE)
    total = total or by + len(target.topic(name).partitions)

    def build(make: Any) -> Any:
        wanted = make.CreatePartitionsTopic(name=name, count=total, assignments=None)
        return make.CreatePartitionsRequest(
            topics=(wanted,), timeout=_timeout_ms(target), validate_only=dry_run
        )

    found = target.ask(ApiKey.CREATE_PARTITIONS, build).results
    done = "could have" if dry_run else "has"
    return print_results([(name, each, f"{name} {done} {total} partitions") for each in found], needs="ALTER")


@verb(topic, "trim")
def trim(
    target: Target,
    name: Topic,
    *,
    offset: Annotated[str, typer.Option("--offset", help="the first offset to keep, or end for none")],
    partition: Annotated[int, typer.Option("--partition", "-p", help="-1: all of them")] = -1,
) -> int:
    """Delete a topic's records before an offset."""
    before = -1 if offset == "end" else _whole_number("--offset", offset)
    chosen: list[PartitionKey] = [(name, each) for each in partitions_of(target, name, partition)]

    def build(make: Any, topics: dict[str, list[int]]) -> Any:
        wanted = tuple(
            make.DeleteRecordsTopic(
                name=topic,
                partitions=tuple(
                    make.DeleteRecordsPartition(partition_index=each, offset=before) for each in numbers
                ),
            )
            for topic, numbers in topics.items()
        )
        return make.DeleteRecordsRequest(topics=wanted, timeout=_timeout_ms(target))

    with target.failures(needs="DELETE"):
        found = target.cluster.ask_leaders(chosen, ApiKey.DELETE_RECORDS, build)
    results = [
        (f"{name} {number}", each, f"{name} {number} begins at {each.low_watermark}")
        for (_, number), each in sorted(found.items())
    ]
    return print_results(results, needs="DELETE")


@verb(topic, "delete")
def delete(
    target: Target,
    names: Topics,
    *,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="succeed if the topic does not exist")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="also what the cluster itself keeps in one")] = False,
) -> int:
    """Delete topics and all that is in them."""
    for name in names:
        if name in LOST_WITH and not force:
            raise Failure(f"deleting {name} loses {LOST_WITH[name]}; --force deletes it anyway")
    if if_exists:
        there = target.topics()
        names = [name for name in names if name in there]
    if not names:
        return 0

    def build(make: Any) -> Any:
        return make.DeleteTopicsRequest(
            topics=tuple(make.DeleteTopicState(name=name, topic_id=None) for name in names),
            topic_names=tuple(names),
            timeout=_timeout_ms(target),
        )

    found = {each.name: each for each in target.ask(ApiKey.DELETE_TOPICS, build).responses}
    return print_results([(name, found[name], f"{name} deleted") for name in names], needs="DELETE")


def partitions_of(target: Target, name: str, partition: int = -1) -> list[int]:
    """Return the numbers of a topic's partitions, or the one asked for. Raise Failure when it is not there."""
    there = sorted(target.topic(name).partitions)
    if partition < 0:
        return there
    if partition not in there:
        known = f"0 to {len(there) - 1}" if len(there) > 1 else "0 alone"
        raise Failure(
            f"topic {name} has no partition {partition}; its partitions are {known}", exits.NOT_FOUND
        )
    return [partition]


def _timeout_ms(target: Target) -> int:
    return int(target.timeout_s * 1000)


def _whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise Failure(f"{option} must be a whole number of at least 0, or end, not {text}", exits.USAGE)
    return int(text)
