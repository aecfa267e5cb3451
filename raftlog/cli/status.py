"""`raftlog status`: one screen about a cluster. `raftlog top`: the same, live, with rates."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.cli import exits
from raftlog.cli.broker import FENCED
from raftlog.cli.cluster import GREEN, Verdict, check_health
from raftlog.cli.cluster_command import verb
from raftlog.cli.cluster_view import ClusterView, GroupLine, Rates, look, rates_between
from raftlog.cli.exits import Failure
from raftlog.cli.http_command import api_of
from raftlog.cli.quorum import Quorum, quorum_of
from raftlog.cli.rows import Form, print_object, print_table
from raftlog.cli.target import Target

HEALTH_SHARE: Final = 0.5
"""The part of --timeout in which the HTTP API has to be found, and again to answer: it asks all brokers itself."""
QUORUM_SHARE: Final = 0.3
"""The part of --timeout in which the quorum's leader has to answer."""
STALE: Final = "Without a controller, this is what a node last heard:"
UNKNOWN: Final = "unknown"
SILENT: Final = "no answer"
"""The state of a broker that a controller has not fenced, and that does not answer."""
BROKERS: Final = ("broker", "state", "host", "port", "rack", "controller", "leads", "replicas", "in_sync")
LINES: Final = 200
"""The most topics, and the most groups, of `top`; a terminal shows as many as it has lines."""

status = typer.Typer(add_completion=False, rich_markup_mode=None)
top = typer.Typer(add_completion=False, rich_markup_mode=None)


@verb(status, "status", prints_rows=True)
def show(target: Target, *, form: Form) -> int:
    """Show the state of a cluster on one screen: health, quorum, brokers, topics, groups. Exit code 7 if not green.

    The reasons are the HTTP API's. Without the API the health is unknown, and exit code 7 means that partitions have no
    leader, brokers are down, or no controller answers.
    """
    ends_at = time.monotonic() + target.timeout_s
    verdict = _health(target)
    is_table, is_known = form is Form.TABLE, verdict.status != UNKNOWN
    if is_table and is_known:
        _print_verdict(verdict)  # at once: what follows takes its time where brokers do not answer
    quorum = None
    if verdict.has_controller:
        target.cluster.deadline = min(ends_at, time.monotonic() + target.timeout_s * QUORUM_SHARE)
        quorum, verdict = _quorum(target, verdict)
    target.cluster.deadline = ends_at
    view = look(target, verdict.silent)
    _mark_stale(view, verdict)
    shown = _summary(view, quorum)
    if is_table:
        if not is_known:
            _print_verdict(verdict)
        print(*([] if verdict.has_controller else ["", STALE]), sep="\n")
        print_object(shown, form)
        print()
        print_table(view.brokers, BROKERS)
    else:
        health = {"status": verdict.status, "reasons": list(verdict.reasons)}
        stale = not verdict.has_controller
        print_object({"health": health, "stale": stale, **shown, "nodes": view.brokers}, form)
    for each in view.missing:
        print(f"raftlog: missing: {each}", file=sys.stderr)
    is_well = verdict.status == GREEN
    if verdict.status == UNKNOWN:
        is_well = verdict.has_controller and not (view.fenced or view.leaderless)
    return exits.OK if is_well else exits.UNHEALTHY


def _print_verdict(verdict: Verdict) -> None:
    print(verdict.status, *verdict.reasons, sep="\n  ", flush=True)


def _quorum(target: Target, verdict: Verdict) -> tuple[Quorum | None, Verdict]:
    """Return the quorum if its leader answers, and the verdict with what that says about the controller."""
    try:
        return quorum_of(target), verdict
    except Failure as failure:
        if failure.code != exits.UNREACHABLE or verdict.status != UNKNOWN:
            return None, verdict
        waited = f"no active controller answered within {target.timeout_s * QUORUM_SHARE:g} s"
        reasons = (*verdict.reasons, waited)
        return None, verdict._replace(reasons=reasons, has_controller=False)


def _mark_stale(view: ClusterView, verdict: Verdict) -> None:
    """Mark the brokers that do not answer; without a controller, name none."""
    if not verdict.has_controller:
        view.controller = None
    for each in view.brokers:
        each["controller"] = each["controller"] and verdict.has_controller
        if int(each["broker"]) in verdict.silent and each["state"] != FENCED:
            each["state"] = SILENT


def _health(target: Target) -> Verdict:
    patience_s = target.timeout_s * HEALTH_SHARE
    target.cluster.deadline = time.monotonic() + patience_s
    try:
        return check_health(api_of(target, patience_s))
    except Failure as failure:
        return Verdict(UNKNOWN, (str(failure).partition(";")[0],))


def _summary(view: ClusterView, quorum: Quorum | None) -> dict[str, Any]:
    own = [each for each in view.partitions if each.topic not in INTERNAL_TOPICS]
    states = Counter(each.state for each in view.groups)
    lags = [each for each in view.groups if each.lag is not None]
    worst = max(lags, key=lambda each: each.lag or 0, default=None)
    voters = [] if quorum is None else [each for each in quorum.replicas if each.votes]
    behind = [] if quorum is None else [quorum.lag(each) or 0 for each in voters]
    return {
        "cluster": view.cluster_id,
        "controller": view.controller,
        "voters": [each.node for each in voters],
        "max_voter_lag": max(behind, default=None),
        "brokers": len(view.brokers),
        "fenced": view.fenced,
        "silent": [int(each["broker"]) for each in view.brokers if each["state"] == SILENT],
        "topics": len({each.topic for each in own}),
        "partitions": len(own),
        "internal_partitions": len(view.partitions) - len(own),
        "without_a_leader": len(view.leaderless),
        "under_replicated": len(view.under_replicated),
        "records": sum(view.ends.values()),
        "groups": [f"{count} {state}" for state, count in sorted(states.items())],
        "largest_lag": None if worst is None else f"{worst.lag} ({worst.group})",
    }


@verb(top, "top")
def watch(
    target: Target,
    *,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.2, max=3600, help="seconds between two views")
    ] = 2.0,
    num: Annotated[
        int, typer.Option("--num", "-n", metavar="N", min=0, help="views to show; 0: until Ctrl-C")
    ] = 0,
    internal: Annotated[bool, typer.Option("--internal", help="internal topics, too")] = False,
) -> int:
    """Watch a cluster: records per second, lag and leaders, the busiest first. Ctrl-C ends it.

    Without a terminal the views are printed below each other.
    """
    try:
        if sys.stdout.isatty():
            _watch_live(target, interval, num, internal=internal)
        else:
            for view, rates in _views(target, interval, num):
                _print(view, rates, internal=internal)
    except KeyboardInterrupt:
        return exits.OK
    return exits.OK


def _views(target: Target, interval_s: float, count: int) -> Iterator[tuple[ClusterView | Failure, Rates]]:
    """Yield views with the rates since the view before. A cluster that does not answer is a Failure meanwhile."""
    before: ClusterView | None = None
    shown = 0
    while not count or shown < count:
        began = time.monotonic()
        try:
            found: ClusterView | Failure = look(target)
        except Failure as failure:
            if before is None:
                raise
            found = failure
        if isinstance(found, ClusterView):
            yield found, rates_between(before, found)
            before = found
        else:
            yield found, Rates({}, {})
        shown += 1
        if shown != count:
            time.sleep(max(0.0, began + interval_s - time.monotonic()))


def _print(view: ClusterView | Failure, rates: Rates, *, internal: bool) -> None:
    if isinstance(view, Failure):
        print(f"raftlog: {view}", flush=True)
        return
    print(_heading(view, rates))
    for columns, rows in tables(view, rates, internal=internal):
        print()
        print_table(rows, columns)
    print(*(f"missing: {each}" for each in view.missing), sep="\n", flush=True)


def _heading(view: ClusterView, rates: Rates) -> str:
    rate = f"{sum(rates.topics.values()):,.0f} records/s"
    down = f", fenced {', '.join(map(str, view.fenced))}" if view.fenced else ""
    return (
        f"{time.strftime('%H:%M:%S')}  cluster {view.cluster_id}  {rate}  {len(view.brokers)} brokers{down}"
        f"  {len(view.leaderless)} partitions without a leader, {len(view.under_replicated)} under-replicated"
    )


Table = tuple[tuple[str, ...], list[dict[str, Any]]]


def tables(view: ClusterView, rates: Rates, *, internal: bool) -> list[Table]:
    """Return the tables of brokers, topics and groups, columns and rows each, the busiest first."""
    brokers = [
        {
            "broker": each["broker"],
            "state": each["state"],
            "leads": each["leads"],
            "in sync": f"{each['in_sync']}/{each['replicas']}",
            "records/s": _rate(rates.leaders.get(int(each["broker"]))),
            "controller": "yes" if each["controller"] else "",
        }
        for each in view.brokers
    ]
    return [
        (("broker", "state", "leads", "in sync", "records/s", "controller"), brokers),
        (
            ("topic", "partitions", "leaders", "records/s", "records"),
            _topic_rows(view, rates, internal=internal),
        ),
        (("group", "state", "type", "lag"), _group_rows(view)),
    ]


def _topic_rows(view: ClusterView, rates: Rates, *, internal: bool) -> list[dict[str, Any]]:
    names = sorted(
        {each.topic for each in view.partitions if internal or each.topic not in INTERNAL_TOPICS},
        key=lambda name: (-rates.topics.get(name, 0.0), name),
    )[:LINES]
    rows = []
    for name in names:
        leaders = Counter(each.leader for each in view.partitions if each.topic == name)
        known = [end for (topic, _), end in view.ends.items() if topic == name]
        rows.append(
            {
                "topic": name,
                "partitions": sum(leaders.values()),
                "leaders": " ".join(
                    f"{leader if leader >= 0 else 'none'}:{count}"
                    for leader, count in sorted(leaders.items())
                ),
                "records/s": _rate(rates.topics.get(name)),
                "records": f"{sum(known):,}" if known else "-",
            }
        )
    return rows


def _group_rows(view: ClusterView) -> list[dict[str, Any]]:
    def order(each: GroupLine) -> tuple[int, str]:
        return -(each.lag or 0), each.group

    return [
        {
            "group": each.group,
            "state": each.state,
            "type": each.type,
            "lag": "-" if each.lag is None else f"{each.lag:,}",
        }
        for each in sorted(view.groups, key=order)[:LINES]
    ]


def _rate(found: float | None) -> str:
    return "-" if found is None else f"{found:,.0f}"


def _watch_live(target: Target, interval_s: float, count: int, *, internal: bool) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table as Screen
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for view, rates in _views(target, interval_s, count):
            if isinstance(view, Failure):
                live.update(Text(f"raftlog: {view}", style="red"), refresh=True)
                continue
            parts: list[Any] = [Text(_heading(view, rates), style="red" if view.leaderless else "bold")]
            for columns, rows in tables(view, rates, internal=internal):
                screen = Screen(*columns, box=None, header_style="bold", pad_edge=False)
                for row in rows[: max(3, console.height // 2 - 4)]:
                    style = "yellow" if row.get("state") == "fenced" else None
                    screen.add_row(*(Text(str(row[column])) for column in columns), style=style)
                parts += [Text(""), screen]
            parts += [Text(f"missing: {each}", style="yellow") for each in view.missing]
            live.update(Group(*parts), refresh=True)
