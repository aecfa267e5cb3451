"""The states of a transactional id and what moves it from one to another, as data. What is not here cannot happen.

All states are read off records; none is soft. PrepareCommit and PrepareAbort are promises: whoever coordinates the id
tells every partition until all have heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from raftlog.coordinator.transactions.transaction import State


class Event(Enum):
    """What can happen to a transactional id."""

    INITIALISED = "a producer begins, or begins anew: it gets an epoch that nobody else has"
    PARTITIONS_ADDED = "a transaction writes to further partitions, or a group's offsets"
    COMMITTED = "its producer ends the transaction and wants it to count"
    ABORTED = "its producer gives the transaction up"
    FENCED = "the coordinator aborts: time is up, or somebody else took the id"
    MARKERS_WRITTEN = "every partition has the marker"
    EXPIRED = "nobody used the id for long"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.DEAD, Event.INITIALISED): State.EMPTY,
    (State.EMPTY, Event.INITIALISED): State.EMPTY,
    (State.COMPLETE_COMMIT, Event.INITIALISED): State.EMPTY,
    (State.COMPLETE_ABORT, Event.INITIALISED): State.EMPTY,
    (State.EMPTY, Event.PARTITIONS_ADDED): State.ONGOING,
    (State.ONGOING, Event.PARTITIONS_ADDED): State.ONGOING,
    (State.COMPLETE_COMMIT, Event.PARTITIONS_ADDED): State.ONGOING,
    (State.COMPLETE_ABORT, Event.PARTITIONS_ADDED): State.ONGOING,
    (State.ONGOING, Event.COMMITTED): State.PREPARE_COMMIT,
    (State.ONGOING, Event.ABORTED): State.PREPARE_ABORT,
    (State.ONGOING, Event.FENCED): State.PREPARE_ABORT,
    # A client of version 2 may abort what it only believes to have begun: its epoch must move on (KIP-890).
    (State.EMPTY, Event.ABORTED): State.PREPARE_ABORT,
    (State.COMPLETE_COMMIT, Event.ABORTED): State.PREPARE_ABORT,
    (State.COMPLETE_ABORT, Event.ABORTED): State.PREPARE_ABORT,
    (State.PREPARE_COMMIT, Event.MARKERS_WRITTEN): State.COMPLETE_COMMIT,
    (State.PREPARE_ABORT, Event.MARKERS_WRITTEN): State.COMPLETE_ABORT,
    (State.EMPTY, Event.EXPIRED): State.DEAD,
    (State.COMPLETE_COMMIT, Event.EXPIRED): State.DEAD,
    (State.COMPLETE_ABORT, Event.EXPIRED): State.DEAD,
}
"""(state, event) → next state. A Dead id is forgotten; one of the same name begins with another producer id."""


def next_state(state: State, event: Event) -> State:
    """Return where an event leads. That it leads nowhere from there is a bug of ours: AssertionError."""
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"{event.name} cannot happen to an id that is {state.value}"
    return after
