"""Batches refused because the replica of their partition was not created yet. Producers retry them.

A producer has several batches in flight. The next batch may find the partition, and would be taken for the producer's
first batch there. So the new replica learns which batches were refused before it existed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from raftlog.base.errors import CorruptMessage, KafkaError
from raftlog.records.header import read_header
from raftlog.storage.refused_batches import RefusedBatches

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

EARLY_KNOWN_S: Final = 30.0
"""A batch that was refused longer ago was retried, or will not be: clients retry within seconds."""

MAX_EARLY_PARTITIONS: Final = 1000
"""The maximum number of partitions with refused batches; the newest are kept."""


class EarlyBatches:
    """Batches refused before their replica existed, by the name or id of their topic. `now` is loop time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._refused: dict[tuple[str | UUID, int], tuple[float, RefusedBatches]] = {}

    def note(self, topic: str | UUID, index: int, records: memoryview, error: KafkaError) -> None:
        """Note a batch that was refused because the replica is not here."""
        try:
            header = read_header(records)
        except CorruptMessage:
            return
        now = self._now()
        known_until, refused = self._refused.pop((topic, index), (0.0, RefusedBatches()))
        if now >= known_until:
            refused.clear()
        refused.note(header, error)
        self._refused[topic, index] = now + EARLY_KNOWN_S, refused
        if len(self._refused) > MAX_EARLY_PARTITIONS:
            del self._refused[next(iter(self._refused))]

    def hand_over(self, partition: Partition) -> None:
        """Report the batches that were refused before it existed to a new replica."""
        for topic in (partition.topic, partition.topic_id):
            known_until, refused = self._refused.pop((topic, partition.index), (0.0, RefusedBatches()))
            if self._now() < known_until:
                partition.log.producers.refused_batches.merge(refused)
