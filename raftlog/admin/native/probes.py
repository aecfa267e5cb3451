"""Liveness and readiness: for load balancers, containers and people. They require no token."""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog import __version__
from raftlog.admin.native.health import log_reasons
from raftlog.admin.native.restarts import caught_up
from raftlog.admin.route import NO_RIGHTS, Call, Route


class Alive(msgspec.Struct):
    """The node's event loop answers."""

    status: str
    version: str
    node_id: int
    started_ms: int
    """Unix time at which the node started."""


class Readiness(msgspec.Struct):
    """Shows whether this node takes part in the cluster, and if not, why not."""

    ready: bool
    reasons: list[str]
    warnings: list[str] = []
    """Problems that do not affect readiness: its log cannot be written."""


async def get_live(call: Call) -> Alive:
    return Alive("alive", __version__, call.node.config.node_id, call.node.started_ms)


class WhichReadiness(msgspec.Struct, forbid_unknown_fields=True):
    """`caught_up`: the node must also have caught up since it started, as in /v1/caught-up."""

    caught_up: bool = False


async def get_ready(call: Call) -> tuple[int, Readiness]:
    """Return 200 or 503. Problems of other nodes, or a log that cannot be written, never make this node unready:
    serving clients is better than restarting for the log.
    """
    reasons = call.node.unready_reasons()
    if call.query.caught_up and not reasons:
        reasons = (await caught_up(call.node)).reasons
    warnings = [each.message for each in log_reasons(call.node)]
    return (503 if reasons else 200), Readiness(not reasons, reasons, warnings)


ROUTES: Final = (
    Route("GET", "/v1/live", get_live, "Does the node's event loop answer?", role="anyone", rights=NO_RIGHTS),
    Route(
        "GET",
        "/v1/ready",
        get_ready,
        "Is the node ready?",
        query=WhichReadiness,
        role="anyone",
        unavailable=Readiness,
        rights=NO_RIGHTS,
    ),
)
