"""The states of a classic group and their transitions by events, as data. An event that is not listed cannot happen.

PreparingRebalance is not recorded: after a failover the group is in its last recorded generation, and its members
restart the rebalance. All other states derive from records.

Some changes are not in this table: a coordinator is loaded or unloaded, or the group changes its type. A group that was
never recorded is dropped when its rebalance ends without members.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from raftlog.coordinator.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)


class ClassicGroupEvent(Enum):
    """The events of a group as a whole."""

    MEMBERS_CHANGE = "a member joins, leaves, times out, or offers other protocols"
    MEMBERS_GATHERED = "all members joined again, or the rebalance timed out: a new generation is recorded"
    EMPTIED = "a rebalance of a recorded group ended without members: an empty generation is recorded"
    ASSIGNED = "the leader's assignments are recorded"
    DELETED = "the group is deleted, or its last offset expired"


TRANSITIONS: Final[Mapping[tuple[str, ClassicGroupEvent], str]] = {
    (EMPTY, ClassicGroupEvent.MEMBERS_CHANGE): PREPARING_REBALANCE,
    (EMPTY, ClassicGroupEvent.DELETED): DEAD,
    (PREPARING_REBALANCE, ClassicGroupEvent.MEMBERS_CHANGE): PREPARING_REBALANCE,
    (PREPARING_REBALANCE, ClassicGroupEvent.MEMBERS_GATHERED): COMPLETING_REBALANCE,
    (PREPARING_REBALANCE, ClassicGroupEvent.EMPTIED): EMPTY,
    (COMPLETING_REBALANCE, ClassicGroupEvent.MEMBERS_CHANGE): PREPARING_REBALANCE,
    (COMPLETING_REBALANCE, ClassicGroupEvent.ASSIGNED): STABLE,
    (STABLE, ClassicGroupEvent.MEMBERS_CHANGE): PREPARING_REBALANCE,
}
"""(state, event) → next state. A Dead group is removed; a new group of its name begins as Empty."""


def next_state(state: str, event: ClassicGroupEvent) -> str:
    """Return the state after an event. An impossible event is a bug of ours: AssertionError."""
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"{event.name} cannot happen to a group that is {state}"
    return after
