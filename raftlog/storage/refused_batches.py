"""Batches that were refused for a temporary reason and will be retried; later batches of their producers wait.

Soft: only a leader needs it, and a replica that may lead a moment later.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftlog.base.errors import KafkaError
from raftlog.records.header import MAX_SEQUENCE, BatchHeader

MAX_REFUSED_BATCHES: Final = 1000
"""Producers of a partition with a remembered refused batch."""


class RefusedBatch(NamedTuple):
    """It keeps no exception, since a traceback would keep the request."""

    epoch: int
    base_sequence: int
    error: type[KafkaError]
    reason: str


class RefusedBatches(dict[int, RefusedBatch]):
    """The first refused batch of each producer id's newest epoch, until it comes again.

    A client that abandons a batch continues in the next epoch: the batch of the previous epoch never comes again.
    """

    __slots__ = ()

    def note(self, header: BatchHeader, error: KafkaError) -> None:
        """Remember a refused batch, so that its successors do not count as out of order.

        After OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka begins a new epoch and resends all that is in flight. That
        duplicates batches which other partitions have already. An unknown producer's second batch would also pass for
        its first.
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
        """Raise the error of an earlier refused batch of the producer that has not been retried yet."""
        refused = self.get(header.producer_id)
        if refused is None:
            return
        epoch, sequence, error, reason = refused
        ahead = (header.base_sequence - sequence) & MAX_SEQUENCE
        if epoch == header.producer_epoch and 0 < ahead <= MAX_SEQUENCE // 2:
            raise error(f"sequence {header.base_sequence} waits for {sequence}, which was refused: {reason}")
