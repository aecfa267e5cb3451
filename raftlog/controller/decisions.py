"""Words that all decisions share: bounds, events, and the reply that means "ask again, there is more"."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

MAX_PARTITION_RECORDS: Final = 10_000
"""Partition records in one batch (about 50 bytes each): one quorum entry stays well below 4 MiB."""

MORE: Final = object()
"""The reply of a decision that did only as much as one batch may hold; decide again once it is committed."""

SWEEP: Final = object()
"""The effect that asks the controller to settle every partition anew."""

Level = Literal["info", "warning", "error"]


class Event(NamedTuple):
    """An effect: a line for the operator's timeline, written once what it tells is committed."""

    level: Level
    name: str
    fields: dict[str, Any]
