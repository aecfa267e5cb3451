"""Searches of logs by time: they read indexes and decompress a batch, so they run in a thread.

All searches of a broker together take one thread at a time, so the other threads stay free for syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import KafkaError, NotLeaderOrFollower
from raftlog.broker.local_broker import LocalBroker

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition

MAX_TIMESTAMP: Final = -3

Found = tuple[int, int, int] | None
"""(offset, timestamp, leader epoch)."""


class OffsetSearch:
    """The search of one partition for one time. Any thread may `run` it; `found` belongs to the loop."""

    def __init__(self, partition: Partition, timestamp_ms: int) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._timestamp_ms = timestamp_ms
        self._outcome: Found | KafkaError | OSError = None

    def run(self) -> None:
        log = self._partition.log
        try:
            if self._timestamp_ms == MAX_TIMESTAMP:
                self._outcome = log.max_timestamp()
            else:
                self._outcome = log.offset_for_timestamp(self._timestamp_ms)
        except (KafkaError, OSError) as error:
            self._outcome = error

    def found(self) -> Found:
        """Return the result. Raise NotLeaderOrFollower (retriable) if the log may have changed under the search."""
        if self._partition.leader_epoch != self._leader_epoch:
            raise NotLeaderOrFollower()
        if isinstance(self._outcome, FileNotFoundError):
            raise NotLeaderOrFollower("the segment was deleted during this request")
        if isinstance(self._outcome, KafkaError | OSError):
            raise self._outcome
        return self._outcome


async def search_all(
    broker: LocalBroker, searches: Sequence[OffsetSearch], *, is_wanted: Callable[[], bool]
) -> None:
    """Run searches in a thread, unless they are no longer wanted when it is their turn."""
    async with broker.time_searches:
        if is_wanted():
            await broker.env.offload(partial(_run_all, searches))


def _run_all(searches: Sequence[OffsetSearch]) -> None:
    for each in searches:
        each.run()
