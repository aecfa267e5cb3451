"""The operator's timeline of partitions.

An event of one partition is a log line, and an event of many partitions at once is also a single line.

A failover touches thousands of partitions in one loop iteration; a line for each would bury the rest, and cost more
than the failover. An event that needs an operator (EVENT_LEVELS) is logged immediately and one by one, since the
process may not log again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raftlog.base.log import get_logger

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

EVENT_LEVELS = {
    "committed_records_truncated": "error",
    "log_truncated": "warning",
    "damaged_log_accepted": "error",
    "damaged_log_cut": "error",
    "damaged_replica_leads": "error",
    "leader_batch_refused": "warning",
    "log_damaged": "error",
    "replica_failed": "error",
}
"""Events with a level other than `info`."""
SAID_ONE_BY_ONE = 20
"""Events of a kind in one loop iteration that are logged one by one; more are counted in one line."""
NAMED = 10
"""The maximum number of partitions in such a line."""

log = get_logger("raftlog.broker.replicas.replicas")


class Timeline:
    """Gathers the events of one loop iteration and logs them at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: dict[str, list[dict[str, Any]]] = {}

    def log_event(self, event: str, partition: Partition, facts: dict[str, object]) -> None:
        """Say it soon."""
        named = {
            "topic": partition.topic,
            "partition": partition.index,
            "leader_epoch": partition.leader_epoch,
            **facts,
        }
        if event in EVENT_LEVELS:
            getattr(log, EVENT_LEVELS[event])(event, **named)
            return
        if not self._pending:
            self._loop.call_soon(self._log_pending)
        self._pending.setdefault(event, []).append(named)

    def log_roles(self, moved: Sequence[Partition]) -> None:
        """Log that partitions took roles of new leader epochs here."""
        if not moved:
            return
        for each in moved:
            event = "partition_became_leader" if each.is_leader else "partition_became_follower"
            self.log_event(event, each, {"log_end_offset": each.log_end_offset})
        leading = sum(each.is_leader for each in moved)
        log.info("roles_changed", leading=leading, following=len(moved) - leading)

    def _log_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for event, cases in pending.items():
            if len(cases) > SAID_ONE_BY_ONE:
                names = [f"{case['topic']}-{case['partition']}" for case in cases[:NAMED]]
                log.info(event, count=len(cases), partitions=names)
                continue
            for case in cases:
                log.info(event, **case)
