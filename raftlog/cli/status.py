"""`raftlog status`: one screen about a cluster. `raftlog top`: the same, live, with rates."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli.broker import FENCED
from raftlog.cli.cluster import GREEN, Verdict, check_health
from raftlog.cli.cluster_command import verb
from raftlog.cli.cluster_view import ClusterView, Rates, look, named_brokers, rates_between
from raftlog.cli.exits import Failure
from raftlog.cli.http_command import api_of
from raftlog.cli.partition_view import counts_of
from raftlog.cli.quorum import Quorum, quorum_of
from raftlog.cli.rows import Form, print_object, print_table
from raftlog.cli.target import Target
from raftlog.cli.top_screen import FOOTER, heading, screen, tables

HEALTH_SHARE: Final = 0.5
"""The part of --timeout in which the HTTP API has to be found, and again to answer: it asks all brokers itself."""
QUORUM_SHARE: Final = 0.3
"""The part of --timeout in which the quorum's leader has to answer."""
STALE: Final = "Without a controller, this is what a node last heard:"
UNKNOWN: Final = "unknown"
SILENT: Final = "no answer"
"""The state of a broker that a controller has not fenced, and that does not answer."""
BROKERS: Final = ("broker", "state", "host", "port", "rack", "controller", "leads", "replicas", "in_sync")
END_KEYS: Final = "qQ"

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
        print_object({**shown, **{each: named_brokers(shown[each]) for each in ("fenced", "silent")}}, form)
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
        **counts_of(view.partitions),
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
        int, typer.Option("--num", "-n", metavar="N", min=0, help="views to show; 0: until q or Ctrl-C")
    ] = 0,
    internal: Annotated[bool, typer.Option("--internal", help="internal topics, too")] = False,
) -> int:
    """Watch a cluster: records per second, lag and leaders, the busiest first. q or Ctrl-C ends it.

    Without a terminal the views are printed below each other. What does not fit on the screen is counted there.
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


def _sleep(duration_s: float) -> bool:
    time.sleep(duration_s)
    return False


def _views(
    target: Target, interval_s: float, count: int, wait: Callable[[float], bool] = _sleep
) -> Iterator[tuple[ClusterView | Failure, Rates]]:
    """Yield views with the rates since the view before. A cluster that does not answer is a Failure meanwhile.

    `wait` waits so many seconds, and returns whether to end.
    """
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
        if shown != count and wait(max(0.0, began + interval_s - time.monotonic())):
            return


def _print(view: ClusterView | Failure, rates: Rates, *, internal: bool) -> None:
    if isinstance(view, Failure):
        print(f"raftlog: {view}", flush=True)
        return
    print(*heading(view, rates), sep="  ")
    for columns, rows in tables(view, rates, internal=internal):
        print()
        print_table(rows, columns)
    print(*(f"missing: {each}" for each in view.missing), sep="\n", flush=True)


def _watch_live(target: Target, interval_s: float, count: int, *, internal: bool) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from raftlog.cli.keys import Keys

    console = Console()
    with Keys(END_KEYS) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        for view, rates in _views(target, interval_s, count, keys.wait):
            if isinstance(view, Failure):
                lines = [(f"raftlog: {view}", "red"), (FOOTER, "dim")]
            else:
                lines = screen(view, rates, internal=internal, width=console.width, height=console.height)
            live.update(Text("\n").join(Text(line, style=style) for line, style in lines), refresh=True)
