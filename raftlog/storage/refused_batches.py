"""Batches that were refused for a temporary reason, so that later batches of the same producers wait for their retry.

This is soft state. Only a leader needs it, or a replica that is about to become a leader.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftlog.base.errors import KafkaError
from raftlog.records.header import MAX_SEQUENCE, BatchHeader

MAX_REFUSED_BATCHES: Final = 1000
"""Limit for refused batches of a partition. Beyond it, the oldest is evicted."""


class RefusedBatch(NamedTuple):
    """A refused batch. The error is a type, since an exception's traceback would keep the request in memory."""

    base_sequence: int
    error: type[KafkaError]
    reason: str


class RefusedBatches(dict[tuple[int, int], RefusedBatch]):
    """The first refused batch of each producer id and epoch, until it is retried.

    A client that abandons a batch continues in the next epoch, so the batch of the previous epoch is never retried.
    This class cannot check epochs, and any client may send a false epoch.
    """

    __slots__ = ()

    def note(self, header: BatchHeader, error: KafkaError) -> None:
        """Remember a refused batch, so that the producer's next batches do not fail as out of order.

        After OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka begins a new epoch and resends all batches in flight. That
        duplicates batches that other partitions have appended already. Also, the second batch of a new producer would
        be appended as its first.
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
        """Raise the error again if an earlier batch of the producer was refused and not retried yet."""
        refused = self.get((header.producer_id, header.producer_epoch))
        if refused is not None and is_behind(refused.base_sequence, header.base_sequence):
            sequence, error, reason = refused
            raise error(f"sequence {header.base_sequence} waits for {sequence}, which was refused: {reason}")


def is_behind(sequence: int, other: int) -> bool:
    """Return whether a sequence comes before another; after 2^31-1 comes 0."""
    return 0 < (other - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
