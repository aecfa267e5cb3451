"""Definitions that all decisions share: bounds, events, and the reply for "decide again, there is more"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from raftlog.base.errors import PolicyViolation

MAX_PARTITION_RECORDS: Final = 10_000
"""Partition records in one batch (about 50 bytes each): one quorum entry stays well below 4 MiB."""

MAX_OTHER_RECORDS: Final = 10_000
"""Records of other kinds (topics, configs) in one batch."""

DECIDE_AGAIN: Final = object()
"""The reply of a decision that filled a batch; decide again after its commit."""

UPDATE_ALL_PARTITIONS: Final = object()
"""The effect that asks the controller to update every partition."""


@dataclass(slots=True)
class BatchLimit:
    """The room that is left in one batch."""

    partitions: int = MAX_PARTITION_RECORDS
    others: int = MAX_OTHER_RECORDS

    def check(self, *, partitions: int = 0, others: int = 0) -> None:
        """Raise PolicyViolation if this many more records are too many."""
        if partitions > self.partitions:
            raise PolicyViolation(
                f"a request may have at most {MAX_PARTITION_RECORDS} partitions; {partitions} more would exceed that"
            )
        if others > self.others:
            raise PolicyViolation(f"a request may have at most {MAX_OTHER_RECORDS} topics, configs and ACLs")

    def reserve(self, *, partitions: int = 0, others: int = 0) -> None:
        """Reserve room for this many records; raise PolicyViolation like `check`."""
        self.check(partitions=partitions, others=others)
        self.partitions -= partitions
        self.others -= others


MAX_NAMED: Final = 10
"""Partitions that one event names; the others are only counted."""

Level = Literal["info", "warning", "error"]


class LogEvent(NamedTuple):
    """An effect: a log line for operators, written after the commit."""

    level: Level
    name: str
    fields: dict[str, Any]
