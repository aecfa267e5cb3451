"""Batches that were refused for a temporary reason and will be retried; later batches of their producers wait.

Soft: only a leader needs it, and a replica that may lead a moment later.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftlog.base.errors import KafkaError
from raftlog.records.header import MAX_SEQUENCE, BatchHeader

MAX_REFUSED_BATCHES: Final = 1000
"""Refused batches of a partition that are remembered; the oldest is evicted."""


class RefusedBatch(NamedTuple):
    """It keeps no exception, since a traceback would keep the request."""

    base_sequence: int
    error: type[KafkaError]
    reason: str


class RefusedBatches(dict[tuple[int, int], RefusedBatch]):
    """The first refused batch of each producer id and epoch, until it comes again.

    A client that abandons a batch continues in the next epoch: the batch of the previous epoch never comes again. The
    right epoch is not known here: any client may make up an epoch.
    """

    __slots__ = ()

    def note(self, header: BatchHeader, error: KafkaError) -> None:
        """Remember a refused batch, so that its successors do not count as out of order.

        After OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka begins a new epoch and resends all that is in flight. That
        duplicates batches which other partitions have already. An unknown producer's second batch would also pass for
        its first.
        """
        if header.producer_id >= 0 and header.base_sequence >= 0:
            reason = error.message or type(error).__name__
            refused = RefusedBatch(header.base_sequence, type(error), reason)
            self._put((header.producer_id, header.producer_epoch), refused)

    def merge(self, others: RefusedBatches) -> None:
        """Add the refused batches of another object."""
        for producer, refused in others.items():
            self._put(producer, refused)

    def _put(self, producer: tuple[int, int], refused: RefusedBatch) -> None:
        known = self.get(producer)
        if known is None:
            if len(self) >= MAX_REFUSED_BATCHES:
                del self[next(iter(self))]
        elif not is_behind(refused.base_sequence, known.base_sequence):
            return
        self[producer] = refused

    def check(self, header: BatchHeader) -> None:
        """Raise the error of an earlier refused batch of the producer that has not been retried yet."""
        refused = self.get((header.producer_id, header.producer_epoch))
        if refused is not None and is_behind(refused.base_sequence, header.base_sequence):
            sequence, error, reason = refused
            raise error(f"sequence {header.base_sequence} waits for {sequence}, which was refused: {reason}")


def is_behind(sequence: int, other: int) -> bool:
    """Return whether a sequence comes before another; after 2^31-1 comes 0."""
    return 0 < (other - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
