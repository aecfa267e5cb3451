"""One transactional id as a value: its producer, its transaction's state, and how records change it.

Only `apply` makes new states. A record holds the whole value, so only the last record of each id counts. All states
derive from records; none is soft. PrepareCommit and PrepareAbort are promises: the id's coordinator sends markers until
every partition has them.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class TransactionEvent(Enum):
    """The events of a transactional id."""

    INITIALISED = "a producer initializes: it gets an epoch of its own"
    PARTITIONS_ADDED = "a transaction writes to further partitions, or a group's offsets"
    COMMITTED = "its producer commits the transaction"
    ABORTED = "its producer gives the transaction up"
    FENCED = "the coordinator aborts: timeout, or another producer took the id"
    MARKERS_WRITTEN = "every partition has the marker"
    EXPIRED = "the id was not used for transactional.id.expiration.ms"


TRANSITIONS: Final[Mapping[tuple[TransactionState, TransactionEvent], TransactionState]] = {
    (TransactionState.DEAD, TransactionEvent.INITIALISED): TransactionState.EMPTY,
    (TransactionState.EMPTY, TransactionEvent.INITIALISED): TransactionState.EMPTY,
    (TransactionState.COMPLETE_COMMIT, TransactionEvent.INITIALISED): TransactionState.EMPTY,
    (TransactionState.COMPLETE_ABORT, TransactionEvent.INITIALISED): TransactionState.EMPTY,
    (TransactionState.EMPTY, TransactionEvent.PARTITIONS_ADDED): TransactionState.ONGOING,
    (TransactionState.ONGOING, TransactionEvent.PARTITIONS_ADDED): TransactionState.ONGOING,
    (TransactionState.COMPLETE_COMMIT, TransactionEvent.PARTITIONS_ADDED): TransactionState.ONGOING,
    (TransactionState.COMPLETE_ABORT, TransactionEvent.PARTITIONS_ADDED): TransactionState.ONGOING,
    (TransactionState.ONGOING, TransactionEvent.COMMITTED): TransactionState.PREPARE_COMMIT,
    (TransactionState.ONGOING, TransactionEvent.ABORTED): TransactionState.PREPARE_ABORT,
    (TransactionState.ONGOING, TransactionEvent.FENCED): TransactionState.PREPARE_ABORT,
    # A client of version 2 may abort what it only believes to have begun: its epoch must move on (KIP-890).
    (TransactionState.EMPTY, TransactionEvent.ABORTED): TransactionState.PREPARE_ABORT,
    (TransactionState.COMPLETE_COMMIT, TransactionEvent.ABORTED): TransactionState.PREPARE_ABORT,
    (TransactionState.COMPLETE_ABORT, TransactionEvent.ABORTED): TransactionState.PREPARE_ABORT,
    (TransactionState.PREPARE_COMMIT, TransactionEvent.MARKERS_WRITTEN): TransactionState.COMPLETE_COMMIT,
    (TransactionState.PREPARE_ABORT, TransactionEvent.MARKERS_WRITTEN): TransactionState.COMPLETE_ABORT,
    (TransactionState.EMPTY, TransactionEvent.EXPIRED): TransactionState.DEAD,
    (TransactionState.COMPLETE_COMMIT, TransactionEvent.EXPIRED): TransactionState.DEAD,
    (TransactionState.COMPLETE_ABORT, TransactionEvent.EXPIRED): TransactionState.DEAD,
}
"""(state, event) → next state. A transition that is not listed cannot happen.

A Dead id is removed; a new id of its name begins with another producer id.
"""


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return the state after an event. An impossible event is a bug of ours: AssertionError."""
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"{event.name} cannot happen to an id that is {state.value}"
    return after


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
