"""Settings of nodes that make tests cheaper and change no claim."""

from __future__ import annotations

from typing import Final

SMALL: Final = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
"""Partitions of internal topics: to create fifty of each costs a cluster more than its start."""

QUICK: Final = {
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}
"""Intervals for tests that wait until records are compacted or deleted."""
