"""Verification of transactions by a partition's leader: the coordinator confirms them before the first batch (KIP-890).

A transactional batch opens a transaction in the log only if the coordinator has confirmed that the partition belongs to
the current transaction. Otherwise no marker would ever end it, and read_committed consumers would hang.

The law: a marker invalidates every verification of its transaction and of earlier transactions, whether complete or
pending. Since transaction.version 2 the epoch of a marker is that of the producer's next transaction. A verification of
the next transaction may already be pending, and stays valid. An epoch fences older epochs only after confirmation,
since any client may make up an epoch.

This state is soft: only a leader has it, and a new leader starts without it.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.errors import InvalidProducerEpoch

MAX_VERIFICATIONS: Final = 10_000
"""Verifications of all producers and epochs; beyond that the producer that asked first has to ask again."""


class Verification:
    """One question to the coordinator. `confirm` if it agrees; void after a marker, or after eviction."""

    __slots__ = ("_answered", "_asked_by", "_void", "epoch", "producer_id", "supports_epoch_bump")

    def __init__(self, asked_by: Verifications, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.supports_epoch_bump = False
        """Whether the producer keeps to transaction.version 2, in which every transaction begins with sequence 0."""
        self._asked_by = asked_by
        self._answered = False
        self._void = False

    @property
    def holds(self) -> bool:
        """Whether the coordinator confirmed it and neither a marker nor eviction has ended it since."""
        return self._answered and not self._void

    def confirm(self, *, supports_epoch_bump: bool = False) -> bool:
        """Record that the coordinator has the partition in its transaction. False if a marker came since."""
        self._answered = True
        self.supports_epoch_bump = supports_epoch_bump
        if not self._void:
            self._asked_by.note_confirmed(self)
        return self.holds

    def void(self) -> None:
        self._void = True


class Verifications:
    """The questions of one partition by producer id and epoch: only the coordinator knows which epoch is right.

    However many epochs of a producer are made up, the right one keeps its place until there are `MAX_VERIFICATIONS`.
    """

    __slots__ = ("_asked", "_confirmed", "_count")

    def __init__(self) -> None:
        self._asked: dict[int, dict[int, Verification]] = {}
        self._confirmed: dict[int, Verification] = {}
        """By producer id, the newest epoch's verification that holds. A made-up epoch is never confirmed."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, producer_id: int, epoch: int) -> Verification:
        """Return the verification of this epoch, pending if there is any. InvalidProducerEpoch for an older epoch."""
        self.check_epoch(producer_id, epoch)
        found = self._asked.get(producer_id, {}).get(epoch)
        if found is not None:
            return found
        if self._count >= MAX_VERIFICATIONS:
            self._void_oldest()
        made = Verification(self, producer_id, epoch)
        self._asked.setdefault(producer_id, {})[epoch] = made
        self._count += 1
        return made

    def _void_oldest(self) -> None:
        """Void the oldest verification of the producer that asked first; a verification that holds goes last."""
        producer_id, asked = next(iter(self._asked.items()))
        confirmed = self._confirmed.get(producer_id)
        epochs = (epoch for epoch, each in asked.items() if each is not confirmed)
        self._void(producer_id, next(epochs, next(iter(asked))))

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise InvalidProducerEpoch where a newer epoch is confirmed: its producer has taken over."""
        newest = self._confirmed.get(producer_id)
        if newest is not None and newest.epoch > epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} is older than {newest.epoch}")

    def note_confirmed(self, verification: Verification) -> None:
        """Record a confirmed verification that is not void."""
        newest = self._confirmed.get(verification.producer_id)
        if newest is None or newest.epoch < verification.epoch:
            self._confirmed[verification.producer_id] = verification

    def holds(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this epoch may begin."""
        found = self._confirmed.get(producer_id)
        return found is not None and found.epoch == epoch

    def must_begin_with_0(self, producer_id: int) -> bool:
        """Return whether an unknown producer must begin with sequence 0 (Kafka: ProducerAppendInfo)."""
        found = self._confirmed.get(producer_id)
        return found is not None and found.supports_epoch_bump

    def end(self, producer_id: int) -> None:
        """End the verifications: the transaction began, or it is over."""
        for epoch in tuple(self._asked.get(producer_id, ())):
            self._void(producer_id, epoch)

    def end_below(self, producer_id: int, epoch: int) -> None:
        """End the verifications of earlier epochs; those of this epoch or later stay."""
        for each in tuple(self._asked.get(producer_id, ())):
            if each < epoch:
                self._void(producer_id, each)

    def _void(self, producer_id: int, epoch: int) -> None:
        asked = self._asked[producer_id]
        verification = asked.pop(epoch)
        verification.void()
        self._count -= 1
        if not asked:
            del self._asked[producer_id]
        if self._confirmed.get(producer_id) is verification:
            del self._confirmed[producer_id]

    def clear(self) -> None:
        """Remove all verifications: another leadership begins."""
        for producer_id in tuple(self._asked):
            self.end(producer_id)
