"""`raftlog node …`: one node, asked over its own HTTP API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import noun
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import LOCAL, HttpApi
from raftlog.cli.http_command import http_verb

UNAVAILABLE: Final = 503
PAUSE_S: Final = 0.5
WAIT_S: Final = 300.0

node = noun("Wait until a node can be stopped safely.")
node.callback()(lambda: None)  # else typer takes a group of one command for that command

Margin = Annotated[
    int,
    typer.Option("--margin", min=0, max=2, help="replicas that must stay in sync beyond min.insync.replicas"),
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="S", min=0, max=86400, help="how long, before exit code 7")
]


@http_verb(node, "wait-safe", takes_context=False)
def wait_safe(api: HttpApi, *, margin: Margin = 0, wait: Wait = WAIT_S) -> int:
    """Wait until a restart of the node interrupts no reads or writes.

    For a preStop hook, an ExecStop line, or a person. A topic with one replica is no reason to wait, since waiting does
    not help. Without --http the node on this machine is asked, and no login is needed. If it does not run, exit code 6.
    """
    api.url, api.find = api.url or LOCAL, None
    api.token = api.user = ""
    api.skips_verification_here = True

    def reasons() -> list[str]:
        try:
            return risks_of(api, "/v1/restart-risks", margin)
        except Failure as failure:
            if failure.code != exits.UNREACHABLE or isinstance(failure.__context__, ConnectionRefusedError):
                raise
            return [str(failure)]

    wait_until(reasons, wait)
    return exits.OK


def not_caught_up(api: HttpApi) -> list[str]:
    """Return why a node has not caught up since its start; none if it has. Raise Failure."""
    return list(api.ask("GET", "/v1/caught-up", accepted=UNAVAILABLE)["reasons"])


def risks_of(api: HttpApi, path: str, margin: int) -> list[str]:
    """Return the blocking risks of a restart, as lines. Raise Failure."""
    return [line_of(each) for each in api.ask("GET", f"{path}?margin={margin}")["blocking"]]


def line_of(risk: dict[str, Any], shown: int = 3) -> str:
    """Return a risk as a line, with the first of its partitions."""
    count, names = risk["count"], risk["partitions"][:shown]
    if not count:
        return str(risk["message"])
    more = f" and {count - len(names)} more" if names and count > len(names) else ""
    named = f": {', '.join(names)}{more}" if names else ""
    return f"{count} partition{'s' if count > 1 else ''}: {risk['message']}{named}"


def wait_until(reasons: Callable[[], Sequence[str]], wait_s: float, prefix: str = "") -> None:
    """Block until `reasons` returns none, and print them when they change. Raise Failure after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    printed: Sequence[str] = ()
    while found := reasons():
        if time.monotonic() >= deadline:
            raise Failure(f"{prefix}not safe after {wait_s:g} s", exits.UNHEALTHY, details=found)
        if found != printed:
            print(f"{prefix}waiting: {'; '.join(found)}", file=sys.stderr, flush=True)
            printed = found
        time.sleep(PAUSE_S)
