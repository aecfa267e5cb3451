"""The audit log of Kafka's protocol: principal, address, action and outcome, a line each; and its counts.

It logs successful and failed logins, denials by ACLs, and changes of topics, configs, ACLs, users and the like. Reads
and writes of records are logged only when they are denied. A user with many events gets a few lines, and a count of
the others. Requests of the HTTP API are in lines of its own (`raftlog.admin.audit`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import nsmallest
from typing import Final

from raftlog.base.log import AUDIT, LimitedLog, get_logger
from raftlog.protocol.apis import APIS
from raftlog.security.acls import Operation, ResourceType

MOST_NAMED: Final = 20
"""The maximum number of resources in a line. Beyond it, the line has only their number."""

Outcome = tuple[str, int]
"""(resource, error code)."""


class Outcomes:
    """The outcome of a change: how many of its parts succeeded and failed, and the names of the first of each."""

    __slots__ = ("done", "done_count", "failed", "failed_count")

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self.done: list[str] = []
        self.failed: list[str] = []
        self.done_count = 0
        self.failed_count = 0
        for name, code in outcomes:
            self.note(name, code)

    def note(self, name: str, code: int) -> None:
        """Count a part; `code` is 0 if it succeeded."""
        if code:
            self.failed_count += 1
            names = self.failed
        else:
            self.done_count += 1
            names = self.done
        if len(names) < MOST_NAMED:
            names.append(name)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class Audit:
    """The audit log of one broker. Counts only grow."""

    def __init__(self, clock: Callable[[], float] = _loop_time) -> None:
        self._log = LimitedLog(get_logger(AUDIT), clock)
        self.denials: defaultdict[int, int] = defaultdict(int)
        """Keyed by API key."""

    def denied(
        self,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
        **who: object,
    ) -> None:
        """Log a denied authorization; `who` has the principal, address and client id."""
        self.denials[api_key] += 1
        self._log.warning(
            "authorization_denied",
            per=who.get("principal"),
            api=APIS[api_key].name if api_key in APIS else str(api_key),
            operation=operation.name,
            resource_type=resource_type.name,
            resources=_shortened(nsmallest(MOST_NAMED, names), len(names)),
            outcome="denied",
            **who,
        )

    def login_failed(self, mechanism: str, reason: str, *, advice: str, **who: object) -> None:
        """Log a failed authentication; `reason` is a short fixed phrase, `advice` says how to fix it."""
        self._log.warning(
            "authentication_failed",
            per=mechanism,
            mechanism=mechanism,
            reason=reason,
            advice=advice,
            outcome="failed",
            **who,
        )

    def login_succeeded(self, mechanism: str, **who: object) -> None:
        """Log a successful authentication."""
        self._log.info(
            "authentication_succeeded",
            per=who.get("principal"),
            mechanism=mechanism,
            outcome="done",
            **who,
        )

    def changed(self, api_key: int, outcomes: Outcomes, *, validate_only: bool, **who: object) -> None:
        """Log the outcome of each part of a change."""
        done, failed = outcomes.done_count, outcomes.failed_count
        self._log.info(
            "metadata_change",
            per=f"{who.get('principal')} {api_key}",
            api=APIS[api_key].name,
            outcome="done" if not failed else "partly" if done else "failed",
            done=_shortened(outcomes.done, done),
            **({"failed": _shortened(outcomes.failed, failed)} if failed else {}),
            **({"validate_only": True} if validate_only else {}),
            **who,
        )

    def flush(self) -> None:
        """Log the counts of suppressed lines without newer events."""
        self._log.flush()


def _shortened(names: Sequence[str], count: int) -> list[str]:
    more = count - MOST_NAMED
    return [each[:249] for each in names[:MOST_NAMED]] + ([f"and {more} more"] if more > 0 else [])
