"""Consume, transform, produce exactly once, by workers that each have their own transactional id.

They are never fenced. Workers of the first kind never sleep, and their transactions do not time out. Whatever dies, no
broker has a reason to refuse them for good. Transactions of the other kind do time out: the worker goes on with the
next epoch, which is its own.
"""

from __future__ import annotations

from typing import Final

from raftlog_chaos.workloads.exactly_once import Attempt, ExactlyOnceWorker
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.txn_client import Refused, TransactionalProducer

MAX_VOID_ANSWERS: Final = 2
"""Limit for a run. A marker that a new coordinator repeats may come during the verification of the next transaction."""


class LongProducer(TransactionalProducer):
    """A producer of transactions that may last longer than all of its retries together."""

    timeout_ms = 60_000


class SoleOwner(ExactlyOnceWorker):
    """The only worker with its id."""

    kind: type[TransactionalProducer] = LongProducer
    rests_s = (0.2,)
    own: TransactionalProducer | None = None
    """The producer that it has made last."""

    def producer(self) -> TransactionalProducer:
        self.own = super().producer()
        return self.own

    def refused(self, error: Refused) -> None:
        super().refused(error)
        self.book.history.blame(f"{self.transactional_id} is its owner's alone, who was refused: {error}")

    async def _write(self, producer: TransactionalProducer, where: TopicIndex, attempt: Attempt) -> None:
        try:
            await super()._write(producer, where, attempt)
        finally:
            self.book.void_answers += producer.void_answers
            if self.book.void_answers > MAX_VOID_ANSWERS:
                self.book.history.blame(f"{attempt} at {where}: others took the place of its confirmation")

    async def _step(self, name: str) -> None:
        self.book.steps[name].set()


class SlowOwner(SoleOwner):
    """The only worker with its id, which sleeps through its transactions' timeout."""

    kind = TransactionalProducer

    async def _go_on(self, producer: TransactionalProducer) -> None:
        """A refusal ends a transaction but not its producer, which requests the next epoch with its own (KIP-360)."""
        try:
            await super()._go_on(producer)
        except LookupError as error:
            if isinstance(error, Refused):
                self.book.fenced += 1
            await producer.init(go_on=True)

    async def _step(self, name: str) -> None:
        await ExactlyOnceWorker._step(self, name)
