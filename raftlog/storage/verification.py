"""Which transactions a partition's leader has had confirmed by their coordinator (KIP-890).

A transactional batch opens a transaction in the log only if the coordinator has said that the partition is part of the
one under way. Else no marker would ever end it, and read_committed would stand still there. The law: a marker voids
every verification of the transaction that it ends and of those before, answered or not, because what was confirmed is
over. Since transaction.version 2 the epoch of a marker is that of the producer's next transaction, which may already be
asked about while the marker is on its way: that one is not over.

Soft: only a leader has it, and each leadership begins without.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.errors import InvalidProducerEpoch

MAX_VERIFICATIONS: Final = 10_000
"""Producers whose first batch is awaited; beyond that the oldest has to ask again."""


class Verification:
    """One question to the coordinator. `confirm` when it said yes; void once a marker or a newer epoch came."""

    __slots__ = ("_answered", "_void", "epoch", "supports_epoch_bump")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.supports_epoch_bump = False
        """Whether the producer keeps to transaction.version 2, in which every transaction begins with sequence 0."""
        self._answered = False
        self._void = False

    @property
    def holds(self) -> bool:
        """Whether the coordinator confirmed it and nothing has ended it since."""
        return self._answered and not self._void

    def confirm(self, *, supports_epoch_bump: bool = False) -> bool:
        """The coordinator has the partition in its transaction. False: it was asked before a marker that came since."""
        self._answered = True
        self.supports_epoch_bump = supports_epoch_bump
        return self.holds

    def void(self) -> None:
        self._void = True

    @property
    def is_void(self) -> bool:
        """Whether it is over, and says no more about the epochs of its producer."""
        return self._void

    def deny(self) -> None:
        """The coordinator said no: it knows of no such producer or epoch, so this one fences no other."""
        self._void = self._void or not self._answered


class Verifications:
    """The questions of one partition by producer id."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def begin(self, producer_id: int, epoch: int) -> Verification:
        """Return the question of this epoch, the one under way if there is one. InvalidProducerEpoch for an older."""
        self.check_epoch(producer_id, epoch)
        found = self._asked.get(producer_id)
        if found is None or found.is_void or found.epoch < epoch:
            self.end(producer_id)
            if len(self._asked) >= MAX_VERIFICATIONS:
                self.end(next(iter(self._asked)))
            self._asked[producer_id] = found = Verification(epoch)
        return found

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise InvalidProducerEpoch where a newer epoch is asked about: its producer has taken over."""
        found = self._asked.get(producer_id)
        if found is not None and found.epoch > epoch and not found.is_void:
            raise InvalidProducerEpoch(f"epoch {epoch} is older than {found.epoch}")

    def holds(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this epoch may begin."""
        found = self._asked.get(producer_id)
        return found is not None and found.epoch == epoch and found.holds

    def must_begin_with_0(self, producer_id: int) -> bool:
        """Whether a producer without any batch here begins with sequence 0 (Kafka: ProducerAppendInfo)."""
        found = self._asked.get(producer_id)
        return found is not None and found.supports_epoch_bump

    def end(self, producer_id: int) -> None:
        """The transaction began, or it is over."""
        found = self._asked.pop(producer_id, None)
        if found is not None:
            found.void()

    def end_below(self, producer_id: int, epoch: int) -> None:
        """The transactions of earlier epochs are over; one of this epoch or a later one is not."""
        found = self._asked.get(producer_id)
        if found is not None and found.epoch < epoch:
            self.end(producer_id)

    def clear(self) -> None:
        """Another leadership begins."""
        for producer_id in tuple(self._asked):
            self.end(producer_id)
