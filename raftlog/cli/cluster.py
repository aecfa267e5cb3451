"""`raftlog cluster …`: what the cluster is made of, and whether it is healthy."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Final, NamedTuple

import typer

from raftlog.cli import exits
from raftlog.cli.broker import FENCED, broker_rows
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.exits import Failure
from raftlog.cli.feature_levels import MetadataLevels, metadata_levels, upgrade_metadata
from raftlog.cli.http_api import HttpApi
from raftlog.cli.http_command import http_verb
from raftlog.cli.node import Margin, Wait
from raftlog.cli.partition_view import counts_of, partitions_in
from raftlog.cli.rows import Form, in_bytes, print_object, print_rows, print_table
from raftlog.cli.target import Target

POLL_INTERVAL_S: Final = 1.0
RESTART_WAIT_S: Final = 1800.0
"""For a node to catch up, which may have much to copy."""
GREEN: Final = "green"
NO_CONTROLLER: Final = "no_controller"
"""The code of the reason that no active controller answers."""
SHOWN: Final = 3
"""Partitions named in a reason."""

cluster = noun("Describe the cluster; is it healthy?")


class Verdict(NamedTuple):
    """The health of a cluster, with reasons: green reasons are only for information."""

    status: str
    reasons: tuple[str, ...]
    has_controller: bool = True
    silent: frozenset[int] = frozenset()
    """The brokers that do not answer."""


@verb(cluster, "describe", prints_rows=True)
def describe(target: Target, *, form: Form) -> None:
    """Show the cluster's id, its controller, its brokers, and how much it holds."""
    about = target.describe_cluster(with_fenced=True)
    partitions = partitions_in(target.metadata())
    nodes = broker_rows(about, partitions)
    found = {
        "cluster": about.cluster_id,
        "controller": about.controller_id if about.controller_id >= 0 else None,
        "brokers": len(nodes),
        "fenced_brokers": sum(each["state"] == FENCED for each in nodes),
        **counts_of(partitions),
        "without_a_leader": sum(each.leader < 0 for each in partitions),
        "metadata_version": _finalized(target),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
    }
    if form is not Form.TABLE:
        print_object({**found, "nodes": nodes}, form)
        return
    print_object(found, form)
    print()
    print_table(nodes, ("broker", "state", "host", "port", "rack", "leads", "replicas"))


def _finalized(target: Target) -> int | None:
    """Return the level of raftlog.metadata.version; None in a cluster of other software."""
    try:
        return metadata_levels(target).finalized
    except Failure:
        return None


@verb(cluster, "upgrade", prints_rows=True)
def upgrade(
    target: Target,
    *,
    to: Annotated[
        int | None, typer.Option("--to", metavar="LEVEL", min=0, help="default: the newest one")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-d", help="only validate the request")] = False,
    form: Form,
) -> None:
    """Finalize an upgrade: from then on, nodes write what older releases cannot read.

    Raises raftlog.metadata.version, once all nodes run a release that supports the level. There is no way back.
    """
    before: MetadataLevels = metadata_levels(target)
    level = before.highest if to is None else to
    if level < before.finalized:
        reason = f"--to {level}: the cluster's level is {before.finalized}, and there is no way back"
        raise Failure(reason, exits.USAGE)
    if level > before.finalized:
        upgrade_metadata(target, level, dry_run=dry_run)
    print_object({"before": before.finalized, "after": level, "dry_run": dry_run}, form)


@verb(cluster, "rebalance", prints_rows=True)
def rebalance(
    target: Target,
    *,
    execute: Annotated[
        bool, typer.Option("--execute", help="carry it out; without it, only show what would be done")
    ] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, max=1000, help="partitions that move at a time")
    ] = 20,
    rate: Annotated[
        str, typer.Option("--throttle", metavar="RATE", help="bytes a second and broker, such as 10MB")
    ] = "",
    form: Form,
) -> int:
    """Show what balances the cluster, or carry it out: racks, full disks, replicas, leaders.

    Actions: move replicas, reorder them, elect the first one. So a new broker gets its share. After Ctrl-C, moves
    that have begun go on. Exit code 7 when a broker that is down keeps partitions from moving.
    """
    from raftlog.cli.move_throttle import read_rate
    from raftlog.cli.rebalance import Rebalance, plan_of, print_verdict

    run = Rebalance(target, at_once, read_rate(rate) if rate else 0)
    balance = plan_of(target)
    if execute:
        return run.run(balance)
    rows = balance.rows()
    if form is Form.TABLE:
        rows = [{**row, "bytes": in_bytes(row["bytes"])} for row in rows]
    if rows or form is not Form.TABLE:
        print_rows(rows, form, ("topic", "partition", "action", "leader", "replicas", "to", "bytes"))
    return print_verdict(balance)


@http_verb(cluster, "restart", prints_rows=True)
def restart(
    api: HttpApi,
    *,
    each: Annotated[
        str,
        typer.Option(
            "--each", metavar="COMMAND", help="restarts node {id}, as 'ssh n{id} …'; run by the shell"
        ),
    ],
    node_http: Annotated[
        str,
        typer.Option(
            "--node-http",
            metavar="URL",
            help="HTTP API of node {id}, if its own address is not reached from here",
        ),
    ] = "",
    margin: Margin = 0,
    wait: Wait = RESTART_WAIT_S,
    skip: Annotated[
        str, typer.Option("--skip", metavar="ID,…", help="resume: brokers that have been restarted")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-d", help="print the order and the risks, and restart no broker")
    ] = False,
    form: Form,
) -> int:
    """Restart all brokers, one after the other: drained, only when it is safe, and the next when it has caught up.

    It stops where a restart is not safe within --wait, as when a second node is lost, and prints how to resume.
    """
    from raftlog.cli.rolling_restart import RollingRestart

    try:
        done = {int(number) for number in skip.split(",") if skip}
    except ValueError:
        raise Failure(f"--skip {skip}: must be broker ids, separated by commas", exits.USAGE) from None
    run = RollingRestart(api, each, node_http, margin, wait, done)
    if not dry_run:
        return run.run()
    print_rows(run.plan(), form, ("node", "safe", "blocking", "notes"))
    return exits.OK


@http_verb(cluster, "health", prints_rows=True)
def health(
    api: HttpApi,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="check every second, print each change")
    ] = False,
    exit_when_healthy: Annotated[
        bool, typer.Option("--exit-when-healthy", "-e", help="with -w: stop when it is green")
    ] = False,
    form: Form,
) -> int:
    """Say whether the cluster is healthy: green, or yellow or red with reasons. Exit code 7 when it is not green.

    Red: something can't be read or written. Yellow: one more failure could make it so.
    """
    if not watch:
        verdict = check_health(api)
        _print(verdict, form)
        return 0 if verdict.status == GREEN else exits.UNHEALTHY
    reported: Verdict | str | None = None
    try:
        while True:
            try:
                found: Verdict | str = check_health(api)
            except Failure as failure:
                found = str(failure)
            if found != reported:
                reported = found
                _print_change(found, form)
            if exit_when_healthy and isinstance(found, Verdict) and found.status == GREEN:
                return 0
            time.sleep(POLL_INTERVAL_S)
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _print_change(found: Verdict | str, form: Form) -> None:
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


def check_health(api: HttpApi) -> Verdict:
    """Return what a node says of the cluster's health, the partitions named that it names. Raise Failure."""
    found = api.ask("GET", "/v1/health")
    reasons = []
    for each in found["reasons"]:
        names, more = each["partitions"][:SHOWN], each["count"] - SHOWN
        named = f": {', '.join(names)}" if names else ""
        reasons.append(each["message"] + named + (f" and {more} more" if names and more > 0 else ""))
    codes = {each["code"] for each in found["reasons"]}
    silent = (each["broker_id"] for each in found["brokers"] if each["state"] in ("down", "silent"))
    return Verdict(found["status"], tuple(reasons), NO_CONTROLLER not in codes, frozenset(silent))
