"""The audit log: principal, change, address and outcome, a line for each request that makes changes.

Requests without a valid token make no changes. A flood of those is a few lines and a count (`limited`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from aiohttp import web

from raftlog.admin.caller import Caller
from raftlog.admin.route import Call, Route
from raftlog.base.log import LimitedLog, get_logger

MOST_NAMED: Final = 100
"""Names of one kind in a line; beyond this only their number is written."""

log = get_logger("audit")
limited = LimitedLog(log, time.monotonic)


def record_parts(call: Call, done: Collection[str], failed: Collection[str]) -> None:
    """Record the outcome of each part of a change for the audit log: done, failed, or partly."""
    call.outcome = "done" if not failed else "partly" if done else "failed"
    call.audit["done"] = _named(sorted(done))
    if failed:
        call.audit["failed"] = _named(sorted(failed))


def _named(names: Sequence[str]) -> list[str]:
    more = len(names) - MOST_NAMED
    return [*names[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


def denied(route: Route, request: web.Request, caller: Caller, *, request_id: str, outcome: str) -> None:
    """Write that a user lacks authorization. A flood of these is limited to a few lines and a count for each user."""
    limited.warning(
        "admin_denied",
        per=caller.name,
        operation=route.name,
        path=request.path[:500],
        caller=caller.name,
        address=request.remote,
        request_id=request_id,
        outcome=outcome,
    )


def write(
    route: Route,
    request: web.Request,
    caller: Caller | None,
    *,
    request_id: str,
    call: Call | None,
    **ended: Any,
) -> None:
    """Write one line; `ended`: the outcome."""
    (limited if caller is None else log).info(
        "admin_change",
        operation=route.name,
        path=request.path,
        caller="anonymous" if caller is None else caller.name,
        address=request.remote,
        request_id=request_id,
        **ended,
        **({} if call is None else call.audit),
    )
