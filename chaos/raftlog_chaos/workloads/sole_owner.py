"""Exactly-once workers (consume, transform, produce), each with a transactional id of its own.

No other producer has the id, so no worker may ever be fenced by another. There are two kinds:

- `SoleOwner` finishes its transactions before they time out. Its requests must succeed after retries, during any crash.
- `SlowOwner` sleeps until its transactions time out. It then continues with the next producer epoch (KIP-360).
"""

from __future__ import annotations

from typing import Final

from raftlog_chaos.workloads.exactly_once import Attempt, ExactlyOnceWorker
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.txn_client import Refused, TransactionalProducer

MAX_VOID_ANSWERS: Final = 2
"""Most void answers in a run. A new coordinator may send a marker again while the next transaction is verified."""


class LongProducer(TransactionalProducer):
    """A producer of transactions that may last longer than all of its retries together."""

    timeout_ms = 60_000


class SoleOwner(ExactlyOnceWorker):
    """The only worker with its transactional id. Its transactions do not time out."""

    kind: type[TransactionalProducer] = LongProducer
    rests_s = (0.2,)
    own: TransactionalProducer | None = None
    """The producer that this worker created last."""

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
    """The only worker with its transactional id. It sleeps until its transactions time out."""

    kind = TransactionalProducer

    async def _go_on(self, producer: TransactionalProducer) -> None:
        """Continue after a refusal with the same producer: its InitProducerId asks for the next epoch (KIP-360)."""
        try:
            await super()._go_on(producer)
        except LookupError as error:
            if isinstance(error, Refused):
                self.book.fenced += 1
            await producer.init(go_on=True)

    async def _step(self, name: str) -> None:
        await ExactlyOnceWorker._step(self, name)
