"""The states of a transactional id and their transitions, as data. A transition that is not listed cannot happen.

All states derive from records; none is soft. PrepareCommit and PrepareAbort are promises: the id's coordinator sends
markers until every partition has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from raftlog.coordinator.transactions.transaction import TransactionState


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
"""(state, event) → next state. A Dead id is removed; a new id of its name begins with another producer id."""


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return the state after an event. An impossible event is a bug of ours: AssertionError."""
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"{event.name} cannot happen to an id that is {state.value}"
    return after
