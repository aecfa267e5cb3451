"""Batches that were not appended, for a reason that passes, and come again: what their producers sent after them waits.

Soft: only a leader needs it, and a replica that may lead a moment later.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftlog.base.errors import KafkaError
from raftlog.records.header import MAX_SEQUENCE, BatchHeader

MAX_REFUSED_BATCHES: Final = 1000
"""Producers of a partition whose refused batch is remembered."""


class RefusedBatch(NamedTuple):
    """It keeps no exception, since a traceback would keep the request."""

    epoch: int
    base_sequence: int
    error: type[KafkaError]
    reason: str


class RefusedBatches(dict[int, RefusedBatch]):
    """The first refused batch of each producer id's newest epoch, until it comes again.

    A client that gives a batch up goes on in the next epoch: the batch of the epoch before never comes again.
    """

    __slots__ = ()

    def note(self, header: BatchHeader, error: KafkaError) -> None:
        """Remember a batch: what follows it is not out of order.

        Told OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka begins a new epoch and sends again all that is in flight, to other
        partitions too, where it may be already and is then twice; and an unknown producer's second batch would be taken
        for its first.
        """
        if header.producer_id >= 0 and header.base_sequence >= 0:
            if len(self) >= MAX_REFUSED_BATCHES and header.producer_id not in self:
                del self[next(iter(self))]
            reason = error.message or type(error).__name__
            refused = RefusedBatch(header.producer_epoch, header.base_sequence, type(error), reason)
            known = self.get(header.producer_id)
            if known is None or known.epoch < refused.epoch:
                self[header.producer_id] = refused

    def check(self, header: BatchHeader) -> None:
        """Raise what an earlier batch of the producer was refused with, if it has yet to come again."""
        refused = self.get(header.producer_id)
        if refused is None:
            return
        epoch, sequence, error, reason = refused
        ahead = (header.base_sequence - sequence) & MAX_SEQUENCE
        if epoch == header.producer_epoch and 0 < ahead <= MAX_SEQUENCE // 2:
            raise error(f"sequence {header.base_sequence} waits for {sequence}, which was refused: {reason}")
