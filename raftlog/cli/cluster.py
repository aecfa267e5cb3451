"""`raftlog cluster …`: what the cluster is made of, and whether it is healthy."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.health import GREEN, Partition, Seen, Verdict, judge
from raftlog.cli.quorum import quorum_of
from raftlog.cli.rows import Form, print_object, print_table
from raftlog.cli.settings_in_force import settings_of
from raftlog.cli.target import Admin, Target
from raftlog.cli.verb import noun, verb

LOOK_EVERY_S: Final = 1.0

cluster = noun("Describe the cluster; is it healthy?")


@verb(cluster, "describe", prints_rows=True)
def describe(target: Target, *, form: Form) -> None:
    """Show the cluster's id, its controller, its brokers, and how much it holds."""
    admin = target.admin
    about = admin.ask(admin.client.describe_cluster)
    metadata = admin.metadata()
    partitions = partitions_in(metadata)
    found = {
        "cluster": about.cluster_id,
        "controller": about.controller.id if about.controller else None,
        "brokers": len(about.nodes),
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "without_a_leader": sum(each.leader < 0 for each in partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
    }
    nodes = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "leads": sum(each.leader == node.id for each in partitions),
            "replicas": sum(node.id in each.replicas for each in partitions),
        }
        for node in sorted(about.nodes, key=lambda node: int(node.id))
    ]
    if form is not Form.TABLE:
        print_object({**found, "nodes": nodes}, form)
        return
    print_object(found, form)
    print()
    print_table(nodes, ("broker", "host", "port", "rack", "leads", "replicas"))


@verb(cluster, "health", prints_rows=True)
def health(
    target: Target,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="look every second, tell each change")] = False,
    exit_when_healthy: Annotated[
        bool, typer.Option("--exit-when-healthy", "-e", help="with -w: stop when it is green")
    ] = False,
    form: Form,
) -> int:
    """Say whether the cluster is healthy: green, or yellow or red with reasons. Exit code 7 when it is not green.

    Red: something can't be read or written. Yellow: one more failure could make it so.
    """
    if not watch:
        verdict = judge(_look(target))
        _print(verdict, form)
        return 0 if verdict.status == GREEN else exits.UNHEALTHY
    told: Verdict | str | None = None
    try:
        while True:
            try:
                found: Verdict | str = judge(_look(target))
            except Failure as failure:
                found = str(failure)
            if found != told:
                told = found
                _tell_change(found, form)
            if exit_when_healthy and isinstance(found, Verdict) and found.status == GREEN:
                return 0
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _tell_change(found: Verdict | str, form: Form) -> None:
    if form is Form.TABLE:
        print(time.strftime("%H:%M:%S", time.gmtime()), end="  ")
    if isinstance(found, str):
        print(found, file=sys.stderr if form is not Form.TABLE else sys.stdout, flush=True)
    else:
        _print(found, form)
        sys.stdout.flush()


def _print(verdict: Verdict, form: Form) -> None:
    if form is Form.TABLE:
        print(verdict.status, *verdict.reasons, sep="\n  ")
    else:
        print(json.dumps({"status": verdict.status, "reasons": list(verdict.reasons)}))


def _look(target: Target) -> Seen:
    admin = target.admin
    metadata = admin.metadata()
    partitions = partitions_in(metadata)
    short = {each.topic for each in partitions if len(each.isr) < len(each.replicas)}
    try:
        quorum = quorum_of(target)
    except Failure:
        return Seen(list(metadata.brokers), partitions, _min_isr(admin, short))
    return Seen(
        brokers=list(metadata.brokers),
        partitions=partitions,
        min_isr=_min_isr(admin, short),
        voter_lag_ms={each.node: each.caught_up_ms_ago or 0 for each in quorum.replicas if each.votes},
        quorum_leader=quorum.leader,
    )


def partitions_in(metadata: Any) -> list[Partition]:
    """Return all partitions of all topics."""
    return [
        Partition(name, each.id, each.leader, tuple(each.replicas), tuple(each.isrs))
        for name, topic in sorted(metadata.topics.items())
        for each in sorted(topic.partitions.values(), key=lambda each: int(each.id))
    ]


def _min_isr(admin: Admin, topics: set[str]) -> dict[str, int]:
    found = {}
    for topic in topics:
        settings = {each["name"]: each["value"] for each in settings_of(admin, "topic", topic)}
        found[topic] = int(settings.get("min.insync.replicas") or 1)
    return found
