"""`raftlog broker …`: the brokers, their settings and their disks."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from raftlog.base.config.cordon import ALL_DIRS
from raftlog.cli import exits
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.effective_settings import alter_settings, settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.http_command import http_verb
from raftlog.cli.node import PAUSE_S, Margin, line_of
from raftlog.cli.partition_view import Partition, partitions_in
from raftlog.cli.rows import Form, in_bytes, print_object, print_rows
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey

broker = noun("List and describe brokers, their settings and disks.")

FENCED: Final = "fenced"
BROKER_COLUMNS: Final = (
    "broker",
    "state",
    "host",
    "port",
    "controller",
    "leads",
    "replicas",
    "in_sync",
)
STALLED_S: Final = 30.0
"""A decommission in which nothing moves for this long waits for an operator, in seconds."""

Id = Annotated[int, typer.Argument(metavar="ID")]


class Left(Failure):
    """The broker was decommissioned and is unregistered."""


@verb(broker, "list", prints_rows=True)
def list_brokers(target: Target, *, form: Form) -> None:
    """List the registered brokers, and what each of them leads and holds. A fenced broker is down or cut off."""
    print_rows(_brokers(target), form, BROKER_COLUMNS)


@verb(broker, "describe", prints_rows=True)
def describe(target: Target, number: Id, *, form: Form) -> None:
    """Show a broker: where it is, what it leads, what its folders hold."""
    row = _broker(target, number)
    if row["state"] != FENCED and target.may("DESCRIBE"):
        folders = _folders(target, number)
        total = sum(each["bytes"] for each in folders)
        row["bytes"] = in_bytes(total) if form is Form.TABLE else total
        row["folders"] = [each["folder"] for each in folders]
    print_object(row, form)


@verb(broker, "configs", prints_rows=True)
def configs(
    target: Target,
    number: Id,
    *,
    changed: Annotated[bool, typer.Option("--changed", help="only configs that are not the default")] = False,
    form: Form,
) -> None:
    """Show a broker's settings that are in force, and where each comes from."""
    _broker(target, number)
    rows = settings_of(target, "broker", str(number))
    print_rows(
        [row for row in rows if not (changed and row["source"] == "default")],
        form,
        ("name", "source", "value"),
        fold=True,
    )


@verb(broker, "log-dirs", prints_rows=True)
def log_dirs(
    target: Target,
    number: Annotated[int | None, typer.Argument(metavar="ID", help="default: all brokers")] = None,
    *,
    form: Form,
) -> int:
    """Show what is in the brokers' folders, and what is free there."""
    if number is not None:
        _broker(target, number)
    target.demand("DESCRIBE")  # a refusal would show as no folders
    brokers = [each.broker_id for each in target.brokers()] if number is None else [number]
    rows, failures = [], []
    for each in brokers:
        try:
            rows += _folders(target, each)
        except Failure as failure:
            failures.append(failure)
    if failures and not rows:
        raise failures[0]
    if form is Form.TABLE:
        rows = [{**row, **{name: in_bytes(row[name]) for name in ("bytes", "free")}} for row in rows]
    print_rows(rows, form, ("broker", "replicas", "bytes", "free", "cordoned", "error", "folder"))
    for left_out in failures:
        print(f"raftlog: some folders are missing: {left_out}", file=sys.stderr)
    return failures[0].code if failures else exits.OK


@verb(broker, "cordon")
def cordon(
    target: Target,
    number: Id,
    folders: Annotated[list[str] | None, typer.Argument(metavar="FOLDER...", help="default: all")] = None,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="allow new replicas again")] = False,
) -> None:
    """Give a broker's folders no new replicas until --undo; they keep those they have (cordoned.log.dirs)."""
    _broker(target, number)
    before = {each["folder"]: each["cordoned"] for each in _folders(target, number)}
    named = before.keys() if folders is None else folders
    if unknown := [each for each in named if each not in before]:
        raise Failure(
            f"broker {number} has no folder {unknown[0]}; it has {', '.join(sorted(before))}", exits.NOT_FOUND
        )
    cordoned = sorted(
        each for each in before if (each in named and not undo) or (before[each] and each not in named)
    )
    value = ALL_DIRS if len(cordoned) == len(before) else ",".join(cordoned)
    alter_settings(target, "broker", str(number), {"cordoned.log.dirs": value or None})
    rest = f"new replicas, but not in {', '.join(cordoned)}" if cordoned else "new replicas"
    print(f"broker {number} gets {'no new replicas' if value == ALL_DIRS else rest}")


@verb(broker, "unregister")
def unregister(target: Target, number: Id) -> None:
    """Unregister a broker that will not come back, so that nothing waits for its replicas.

    If it runs, it takes no part until its process restarts. See also decommission, which moves its replicas first.
    """
    target.ask(
        ApiKey.UNREGISTER_BROKER, lambda make: make.UnregisterBrokerRequest(broker_id=number), needs="ALTER"
    )
    print(f"broker {number} is unregistered")


@http_verb(broker, "drain")
def drain(
    api: HttpApi,
    number: Id,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="end the drain")] = False,
) -> None:
    """Hand a broker's leaderships to others, and give it none until --undo: before its host is worked on."""
    api.ask("DELETE" if undo else "POST", f"/v1/brokers/{number}/drain")
    print(
        f"broker {number} may lead again; `raftlog partition elect` gives it its partitions back"
        if undo
        else f"broker {number} leads only partitions that no other broker can lead"
    )


@http_verb(broker, "decommission")
def decommission(
    api: HttpApi,
    number: Id,
    *,
    replace_with: Annotated[
        int | None, typer.Option("--replace-with", metavar="ID", help="the broker that gets its replicas")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until the broker is empty")] = False,
) -> int:
    """Move all of a broker's replicas to other brokers, then unregister it. See also recommission.

    It goes on without this command, whichever node is the controller. Once it is done, stop the broker's process,
    unless its node votes in the metadata quorum.
    """
    query = "" if replace_with is None else f"?replace_with={replace_with}"
    _ask_unless_left(api, "POST", number, query)
    print(f"broker {number} is being decommissioned")
    if wait:
        print(_wait_until_empty(api, number))
    return exits.OK


def _wait_until_empty(api: HttpApi, number: int) -> str:
    """Print the progress, and return what to do in the end. Raise Failure where nothing moves any more."""
    found: dict[str, Any] = {}
    printed, votes = "", False
    last_move_at = time.monotonic()
    while True:
        before, found = found, _progress(api, number) or {}
        if not found:
            break
        votes = found["votes"]
        if before.get("decommissioned") and not found["decommissioned"]:
            raise Failure(f"the decommission of broker {number} was ended, with {found['replicas']} replicas")
        line = progress_line(found, before)
        if line != printed:
            print(line, file=sys.stderr, flush=True)
        if line != printed or found["moving"]:
            printed, last_move_at = line, time.monotonic()
        if time.monotonic() >= last_move_at + STALLED_S:
            raise Failure(f"broker {number}: no replica is moving: {line}", exits.UNHEALTHY)
        time.sleep(PAUSE_S)
    end = "stop its process"
    if votes:
        end = f"its node votes, so keep it running, or end its vote first: raftlog quorum remove {number}"
    return f"broker {number} has no replicas and is unregistered: {end}"


def progress_line(found: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Return a decommission's progress since an earlier look: reasons only if nothing moves or has moved since."""
    line = f"{found['replicas']} replicas left"
    if found["moving"]:
        return f"{line}, {len(found['moving'])} of them move"
    reasons = sorted({each["reason"] for each in found["waiting"]})
    if reasons and before.get("replicas", 0) == found["replicas"]:
        return f"{line}; {'; '.join(reasons)}"
    return line


def _ask_unless_left(api: HttpApi, method: str, number: int, query: str = "") -> Any:
    """Ask about a decommission. Raise Failure, Left for a broker that has been unregistered."""
    try:
        return api.ask(method, f"/v1/brokers/{number}/decommission{query}")
    except Failure as failure:
        if failure.code != exits.NOT_FOUND or _is_registered(api, number):
            raise
    raise Left(
        f"broker {number} has left: it has no replicas and is unregistered; its node registers again if it starts",
        exits.NOT_FOUND,
    )


def _is_registered(api: HttpApi, number: int) -> bool:
    """Whether a broker is registered, or none that the node remembers. Brokers that left are remembered for a while."""
    try:
        return bool(api.ask("GET", f"/v1/brokers/{number}/why")["registered"])
    except Failure:
        return True


def _progress(api: HttpApi, number: int) -> dict[str, Any] | None:
    """Return the progress of a decommission, or None once the broker is unregistered. Retry while no node answers."""
    deadline = time.monotonic() + STALLED_S
    while True:
        try:
            found: dict[str, Any] = api.ask("GET", f"/v1/brokers/{number}/decommission")
        except Failure as failure:
            if failure.code == exits.NOT_FOUND:
                return None
            if failure.code != exits.UNREACHABLE or time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)
        else:
            return found


@http_verb(broker, "recommission")
def recommission(api: HttpApi, number: Id) -> None:
    """End a broker's decommission: it keeps the replicas that have not begun to move."""
    _ask_unless_left(api, "DELETE", number)
    print(f"broker {number} stays")


@http_verb(broker, "decommission-status", prints_rows=True)
def decommission_status(api: HttpApi, number: Id, *, form: Form) -> None:
    """Show which replicas a decommissioned broker still has, at most 100 of each kind, and where they move.

    Exit code 0 without a row: the broker has left. 3: it is not being decommissioned, or not known.
    """
    try:
        found = _ask_unless_left(api, "GET", number)
    except Left as left:
        print(left, file=sys.stderr)
        print_rows([], form)
        return
    if not found["decommissioned"]:
        raise Failure(f"broker {number} is not being decommissioned", exits.NOT_FOUND)
    rows = [{**each, "to": ",".join(map(str, each["to"])), "reason": ""} for each in found["moving"]]
    rows += [{**each, "to": ""} for each in found["waiting"]]
    print_rows(rows, form, ("topic", "partition", "to", "reason"), fold=True)
    if form is Form.TABLE:
        print(f"{found['replicas']} replicas left", file=sys.stderr)


@http_verb(broker, "restart-risks", prints_rows=True)
def restart_risks(api: HttpApi, number: Id, *, margin: Margin = 0, form: Form) -> int:
    """Show what a broker's restart would bring now. Exit code 7 when it is not safe."""
    found = api.ask("GET", f"/v1/brokers/{number}/restart-risks?margin={margin}")
    rows = [
        {"blocking": blocking, "risk": each["code"], "count": each["count"], "message": line_of(each)}
        for blocking, name in ((True, "blocking"), (False, "notes"))
        for each in found[name]
    ]
    print_rows(rows, form, ("blocking", "risk", "count", "message"), fold=True)
    return exits.OK if found["safe"] else exits.UNHEALTHY


def _brokers(target: Target) -> list[dict[str, Any]]:
    return broker_rows(target.describe_cluster(with_fenced=True), partitions_in(target.metadata()))


def broker_rows(about: Any, partitions: Sequence[Partition]) -> list[dict[str, Any]]:
    """Return a row for each broker that a response to DescribeCluster lists, with its state by Kafka's names."""
    return [
        {
            "broker": each.broker_id,
            "state": FENCED if getattr(each, "is_fenced", False) else "unfenced",
            "host": each.host,
            "port": each.port,
            "rack": each.rack,
            "controller": each.broker_id == about.controller_id,
            "leads": sum(partition.leader == each.broker_id for partition in partitions),
            "replicas": sum(each.broker_id in partition.replicas for partition in partitions),
            "in_sync": sum(each.broker_id in partition.isr for partition in partitions),
        }
        for each in sorted(about.brokers, key=lambda each: int(each.broker_id))
    ]


def _broker(target: Target, number: int) -> dict[str, Any]:
    rows = _brokers(target)
    for row in rows:
        if row["broker"] == number:
            return row
    there = ", ".join(str(row["broker"]) for row in rows)
    raise Failure(f"there is no broker {number}; the brokers are {there}", exits.NOT_FOUND)


def _folders(target: Target, number: int) -> list[dict[str, Any]]:
    return [
        {
            "broker": number,
            "folder": folder.log_dir,
            "replicas": sum(len(topic.partitions) for topic in folder.topics),
            "bytes": sum(part.partition_size for topic in folder.topics for part in topic.partitions),
            "free": getattr(folder, "usable_bytes", None),
            "total": getattr(folder, "total_bytes", None),
            "cordoned": getattr(folder, "is_cordoned", False),
            "error": "offline" if folder.error_code else None,
        }
        for folder in log_dirs_of(target, number)
    ]


def log_dirs_of(target: Target, broker: int) -> list[Any]:
    """Return the folders of a broker, with the sizes of the partitions in each. Raise Failure."""
    answer = target.ask(
        ApiKey.DESCRIBE_LOG_DIRS, lambda make: make.DescribeLogDirsRequest(topics=None), broker=broker
    )
    return list(answer.results)
