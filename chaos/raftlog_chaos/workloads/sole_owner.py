"""Consume, transform, produce exactly once, by a worker that shares its transactional id with nobody and never sleeps.

Nobody fences it, and no transaction of its own times out: whatever dies, no broker has a reason to refuse it for good.
"""

from __future__ import annotations

from raftlog_chaos.workloads.exactly_once import ExactlyOnceWorker
from raftlog_chaos.workloads.txn_client import Refused, TransactionalProducer


class LongProducer(TransactionalProducer):
    """One whose transactions may last longer than all of its tries together."""

    timeout_ms = 60_000


class SoleOwner(ExactlyOnceWorker):
    """The only one with its id."""

    kind = LongProducer
    rests_s = (0.2,)

    def refused(self, error: Refused) -> None:
        super().refused(error)
        self.book.history.blame(f"{self.transactional_id} is its owner's alone, who was refused: {error}")

    async def _step(self, name: str) -> None:
        self.book.steps[name].set()
