"""Words that all decisions share: bounds, events, and the reply that means "ask again, there is more"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from raftlog.base.errors import PolicyViolation

MAX_PARTITION_RECORDS: Final = 10_000
"""Partition records in one batch (about 50 bytes each): one quorum entry stays well below 4 MiB."""

MAX_OTHER_RECORDS: Final = 10_000
"""Records of other kinds (topics, configs) in one batch."""

DECIDE_AGAIN: Final = object()
"""The reply of a decision that did only as much as one batch may hold; decide again once it is committed."""

UPDATE_ALL_PARTITIONS: Final = object()
"""The effect that asks the controller to settle every partition anew."""


@dataclass(slots=True)
class BatchLimit:
    """The room that is left in one batch."""

    partitions: int = MAX_PARTITION_RECORDS
    others: int = MAX_OTHER_RECORDS

    def check(self, *, partitions: int = 0, others: int = 0) -> None:
        """Raise PolicyViolation if so many records more are too many."""
        if partitions > self.partitions:
            raise PolicyViolation(
                f"one request takes at most {MAX_PARTITION_RECORDS} partitions; {partitions} more are too many"
            )
        if others > self.others:
            raise PolicyViolation(f"one request takes at most {MAX_OTHER_RECORDS} topics, configs and rules")

    def reserve(self, *, partitions: int = 0, others: int = 0) -> None:
        """Use room for so many records; raises PolicyViolation like `check`."""
        self.check(partitions=partitions, others=others)
        self.partitions -= partitions
        self.others -= others


MAX_NAMED: Final = 10
"""Partitions that one event names; the rest it counts."""

Level = Literal["info", "warning", "error"]


class LogEvent(NamedTuple):
    """An effect: a line for the operator's timeline, written once what it tells is committed."""

    level: Level
    name: str
    fields: dict[str, Any]
