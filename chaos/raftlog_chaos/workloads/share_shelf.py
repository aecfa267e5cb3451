"""A compacted topic that a share group reads: its writer, and the records in its log that no later record replaces.

Compaction removes records that the group has in flight, available or locked. Each replica is compacted on its own, so
a record that another has replaced may be delivered or not. The newest record of each key stays, and must be delivered.
"""

from __future__ import annotations

import random
from typing import Final

from raftlog.base.errors import KafkaError
from raftlog.records.batch import build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition

SHELF: Final = "shelf"
READERS: Final = "readers"
"""The group that reads it."""

KEYS: Final = 6
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "400",
}
CLEANER: Final = {"log.cleaner.backoff.ms": "150"}
"""Settings with which compaction passes while records are locked."""


class ShelfWriter:
    """`step` it in the process of the node that leads. What it writes may be lost with its leader."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0

    def step(self, replica: Partition) -> None:
        """Append a batch, if this replica leads."""
        if type(replica.role) is not LeaderRole:
            return
        records = []
        for _ in range(self._chance.randint(1, 3)):
            self._number += 1
            key = b"key %d" % self._chance.randrange(KEYS)
            records.append(new_record(key, b"%d" % self._number, timestamp=-1))
        try:
            replica.append_produced(memoryview(build_batch(records)), acks=-1, now_ms=0)
        except KafkaError:
            return  # another replica leads by now


def newest_in(batches: bytes) -> set[int]:
    """Return the offset of the newest record of each key."""
    found: dict[bytes | None, int] = {}
    view = memoryview(batches)
    for position, header in iter_headers(view):
        for record in iter_records(view[position : position + header.length]):
            found[record.key] = record.offset
    return set(found.values())
