"""Finds out if a reader of a compacted topic may have missed tombstones, because its position is old.

A tombstone deletes its key, and is removed from a compacted topic after `delete.retention.ms`. A reader that has not
read it by then keeps the key for ever. Kafka tells no reader of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from raftlog.base.errors import KafkaError
from raftlog.cli.effective_settings import settings_of
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target
from raftlog.client.errors import Refused, Unreachable
from raftlog.client.fetching import list_offsets
from raftlog.client.metadata import LATEST

POLICY: Final = "cleanup.policy"
RETENTION: Final = "delete.retention.ms"
COMPACT: Final = "compact"


def missed_tombstones(target: Target, topic: str, positions: Mapping[int, int]) -> str:
    """Return a line if tombstones between the positions and now may be gone; "" if not, or if it cannot be known.

    A position is too old if the topic had records after it, and before `delete.retention.ms` ago.
    """
    try:
        settings = {each["name"]: each["value"] for each in settings_of(target, "topic", topic)}
        if COMPACT not in str(settings.get(POLICY)).split(","):
            return ""
        retention_ms = int(settings[RETENTION])
        keys = [(topic, partition) for partition in positions]
        kept = list_offsets(target.cluster, keys, max(0, int(time.time() * 1000) - retention_ms))
        ends = list_offsets(target.cluster, keys, LATEST)
    except (Failure, KafkaError, Refused, Unreachable, KeyError, ValueError, TypeError):
        return ""  # a user may read a topic, and not its settings; whatever else is wrong, reading shows it
    old = [
        partition
        for partition, offset in sorted(positions.items())
        if offset < (kept[topic, partition] if kept[topic, partition] >= 0 else ends[topic, partition])
    ]
    if not old:
        return ""
    where = f"partition {old[0]}" + (f" and {len(old) - 1} more" if len(old) > 1 else "")
    return (
        f"{topic}: {where}: the position is older than {RETENTION} ({retention_ms}) of this compacted topic: keys that "
        "were deleted since may still have their last value"
    )
