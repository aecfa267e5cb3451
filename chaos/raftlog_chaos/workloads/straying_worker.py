"""Consume, transform, produce by workers with writes that may arrive after their transaction, and open a hanging one.

Leaders of raftlog refuse such a write (KIP-890); older versions, or a leader after an error, did not. So the scenario
makes a leader accept it. The producer goes on with its id and epoch, as classic clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raftlog_chaos.workloads.exactly_once import (
    ExactlyOnceModel,
    ExactlyOnceReader,
    ExactlyOnceWorker,
)
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.txn_client import TransactionalProducer

STRAYS_RATE: Final = 0.4
LINGERS_S: Final = (0.0, 0.1, 0.3, 0.6)
"""Up to how long a worker is idle after such a write."""

STRAY: Final = b"stray "

Believe = Callable[[TopicIndex, int, int], bool]
"""Have a partition's leader take a producer's (id, epoch) next write; False: it does not lead, or knows better."""


class StrayModel(ExactlyOnceModel):
    """The fate of writes that belong to no transaction. An operator's abort is final."""

    def __init__(self, topic: str, partitions: int, history: object) -> None:
        super().__init__(topic, partitions, history)  # type: ignore[arg-type]
        self.strays = 0
        self.aborted: set[tuple[TopicIndex, int]] = set()
        """The offset where a transaction began that an operator has ended."""
        self._read_at: set[tuple[TopicIndex, int]] = set()

    def abort(self, where: TopicIndex, offset: int) -> None:
        """Record that the transaction at this offset is aborted, as an operator learned."""
        self.aborted.add((where, offset))
        self._check_unread(where, offset)

    def saw(self, where: TopicIndex, offset: int) -> None:
        """Check a record that a reader of committed records saw, a stray record or not."""
        self._read_at.add((where, offset))
        self._check_unread(where, offset)

    def _check_unread(self, where: TopicIndex, offset: int) -> None:
        if (where, offset) in self._read_at & self.aborted:
            self._blame(f"offset {offset} of {where} was read, and its transaction aborted by an operator")


class StrayReader(ExactlyOnceReader):
    """Recognises records that belong to no number."""

    def took(self, offset: int, value: bytes) -> None:
        book = self._book
        assert isinstance(book, StrayModel)
        book.saw(self.where, offset)
        if not value.startswith(STRAY):
            super().took(offset, value)


class StrayingWorker(ExactlyOnceWorker):
    """`believe` comes from the scenario."""

    rests_s = (0.0, 0.2)
    believe: Believe

    async def _process(self, producer: TransactionalProducer, number: int) -> int:
        if not self.bumping and self.chance.random() < STRAYS_RATE:
            await self._stray(producer, number)
        return await super()._process(producer, number)

    async def _stray(self, producer: TransactionalProducer, number: int) -> None:
        """Write where the next transaction will write."""
        book = self.book
        assert isinstance(book, StrayModel)
        where = self.chance.choice(book.partitions_of(self.transactional_id, number))
        if not self.believe(where, producer.producer_id, producer.epoch):
            return
        book.strays += 1
        await producer.write(where, STRAY + str(book.strays).encode())
        await asyncio.sleep(self.chance.uniform(0.0, self.chance.choice(LINGERS_S)))
