"""One transactional id as a value: its producer, its transaction's state, and how records change it.

Only `apply` makes new states. A record holds the whole value, so only the last record of each id counts.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from raftlog.base.errors import InvalidRequest
from raftlog.base.types import NAME_MAX_CHARS, NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

MAX_PRODUCER_EPOCH: Final = 32_767
"""No client gets it or is admitted with it, so that the holder of every other epoch can be fenced."""

EXHAUSTED_EPOCH: Final = MAX_PRODUCER_EPOCH - 1
"""A producer with this epoch gets another producer id instead of the next epoch."""


def check_transactional_id(transactional_id: str) -> None:
    """Raise InvalidRequest for an id that is empty or too long. Check it before any use of the id."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")
    if len(transactional_id) > NAME_MAX_CHARS:
        raise InvalidRequest(f"a transactional id has at most {NAME_MAX_CHARS} characters")


class TransactionState(Enum):
    """The state of a transaction; the value is its name in DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """The id is unknown: never used, or expired."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Apache Kafka's, in memory only; here fencing and aborting are one record."""


PREPARED_STATES: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The outcome is decided, and the markers are being sent."""

COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {TransactionState.EMPTY}
"""No transaction is open."""

RECORDED: Final = tuple(
    each
    for each in TransactionState
    if each not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)
"""The recorded states of an id."""


class ClientTransactionVersion(Enum):
    """The transaction protocol of a client: `transaction.version` as records hold it (KIP-890)."""

    TV_0 = 0
    TV_1 = 1
    """As the classic protocol; only records differ."""
    TV_2 = 2
    """Each end of a transaction brings the next epoch, and partitions are added by writing to them."""


class ProducerIdAndEpoch(msgspec.Struct, frozen=True, order=True):
    """The identity that a producer claims."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NO_PRODUCER: Final = ProducerIdAndEpoch()


class Transaction(msgspec.Struct, frozen=True):
    """A transactional id. With `state` Dead it stands for an unknown id.

    `producer`: the present producer; while preparing, with the epoch of the markers. `last_epoch`: the previous epoch,
    for retries of its holder (KIP-360). `previous_id`, `next_id`: the producer ids before and after an exhausted id.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch = NO_PRODUCER
    state: TransactionState = TransactionState.DEAD
    timeout_ms: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_PRODUCER_ID
    next_id: int = NO_PRODUCER_ID
    client_version: ClientTransactionVersion = ClientTransactionVersion.TV_0

    @property
    def exists(self) -> bool:
        return self.state is not TransactionState.DEAD

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a client."""
        return self.producer.epoch >= EXHAUSTED_EPOCH

    @property
    def successor(self) -> ProducerIdAndEpoch:
        """The producer that may write once the ending transaction is complete."""
        return self.producer if self.next_id == NO_PRODUCER_ID else ProducerIdAndEpoch(self.next_id, 0)


class TransactionChanged(msgspec.Struct, frozen=True):
    """The state of an id from now on; None removes it."""

    transactional_id: str
    transaction: Transaction | None


def apply(before: Transaction, records: tuple[TransactionChanged, ...]) -> Transaction:
    """Return the transactional id after the records."""
    after = before
    for record in records:
        assert record.transactional_id == before.transactional_id
        after = record.transaction or Transaction(before.transactional_id)
    return after
