"""Which transactions a partition's leader has had confirmed by their coordinator (KIP-890).

A transactional batch opens a transaction in the log only if the coordinator has confirmed that the partition belongs to
the current transaction. Else no marker would ever end it, and read_committed consumers would hang. The law: a marker
voids every verification of its transaction and of earlier transactions, answered or not. Since transaction.version 2
the epoch of a marker is that of the producer's next transaction. A verification of the next transaction may already be
pending, and stays valid. An epoch fences older epochs only after confirmation, since any client may make up an epoch.

Soft: only a leader has it, and each leadership begins without.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.errors import InvalidProducerEpoch

MAX_VERIFICATIONS: Final = 10_000
"""Producers with a pending verification; beyond that the oldest has to ask again."""
MAX_EPOCHS: Final = 4
"""Epochs of one producer with a pending verification; beyond that a client has to ask again."""


class Verification:
    """One question to the coordinator. `confirm` if it agrees; void after a marker, or after eviction."""

    __slots__ = ("_answered", "_void", "epoch", "supports_epoch_bump")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.supports_epoch_bump = False
        """Whether the producer keeps to transaction.version 2, in which every transaction begins with sequence 0."""
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
        return self.holds

    def void(self) -> None:
        self._void = True


class Verifications:
    """The questions of one partition by producer id and epoch: only the coordinator knows which epoch is right."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, dict[int, Verification]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def begin(self, producer_id: int, epoch: int) -> Verification:
        """Return the verification of this epoch, pending if there is any. InvalidProducerEpoch for an older epoch."""
        self.check_epoch(producer_id, epoch)
        if producer_id not in self._asked and len(self._asked) >= MAX_VERIFICATIONS:
            self.end(next(iter(self._asked)))
        asked = self._asked.setdefault(producer_id, {})
        if epoch not in asked:
            if len(asked) >= MAX_EPOCHS:
                confirmed = self._confirmed(producer_id)
                asked.pop(next(each for each, it in asked.items() if it is not confirmed)).void()
            asked[epoch] = Verification(epoch)
        return asked[epoch]

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise InvalidProducerEpoch where a newer epoch is confirmed: its producer has taken over."""
        newest = self._confirmed(producer_id)
        if newest is not None and newest.epoch > epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} is older than {newest.epoch}")

    def _confirmed(self, producer_id: int) -> Verification | None:
        """Return the newest epoch's question that holds. A made-up epoch is never confirmed."""
        confirmed = [each for each in self._asked.get(producer_id, {}).values() if each.holds]
        return max(confirmed, key=_epoch_of, default=None)

    def holds(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this epoch may begin."""
        found = self._confirmed(producer_id)
        return found is not None and found.epoch == epoch

    def must_begin_with_0(self, producer_id: int) -> bool:
        """Whether an unknown producer must begin with sequence 0 (Kafka: ProducerAppendInfo)."""
        found = self._confirmed(producer_id)
        return found is not None and found.supports_epoch_bump

    def end(self, producer_id: int) -> None:
        """End the verifications: the transaction began, or it is over."""
        for each in self._asked.pop(producer_id, {}).values():
            each.void()

    def end_below(self, producer_id: int, epoch: int) -> None:
        """End the verifications of earlier epochs; those of this epoch or later stay."""
        asked = self._asked.get(producer_id)
        if asked is None:
            return
        for each in [each for each in asked if each < epoch]:
            asked.pop(each).void()
        if not asked:
            del self._asked[producer_id]

    def clear(self) -> None:
        """Remove all verifications: another leadership begins."""
        for producer_id in tuple(self._asked):
            self.end(producer_id)


def _epoch_of(verification: Verification) -> int:
    return verification.epoch
