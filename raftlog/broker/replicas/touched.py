"""The partitions touched since each chore last ran.

Each chore reads its queue at its own pace, and checks only these.

A chore that finds more to do later keeps the partition. So an idle partition costs a chore no time, and a broker's
recurring work depends on activity, not on the number of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition


class TouchedPartitions:
    """The partitions touched since the queues were last filled. An append only writes to `fresh`."""

    __slots__ = ("_queues", "discard_listeners", "fresh")

    def __init__(self) -> None:
        self.fresh: dict[Partition, None] = {}
        self.discard_listeners: list[Callable[[Partition], None]] = []
        """Called with each replica that left this broker."""
        self._queues: list[TouchedQueue] = []

    def queue(self) -> TouchedQueue:
        """Return a new queue for a chore. It does not include partitions touched before."""
        queue = TouchedQueue(self)
        self._queues.append(queue)
        return queue

    def discard(self, partition: Partition) -> None:
        """Remove a replica that left this broker from every queue. Some chores run only every ten minutes."""
        self.fresh.pop(partition, None)
        for queue in self._queues:
            queue.waiting.pop(partition, None)
        for forget in self.discard_listeners:
            forget(partition)

    def distribute(self) -> None:
        """Move the touched partitions into every queue."""
        if self.fresh:
            for queue in self._queues:
                queue.waiting.update(self.fresh)
            self.fresh.clear()


class TouchedQueue:
    """The partitions that a chore has yet to check, each once, in the order in which they were touched."""

    __slots__ = ("_touched", "waiting")

    def __init__(self, touched: TouchedPartitions) -> None:
        self._touched = touched
        self.waiting: dict[Partition, None] = {}

    def __iter__(self) -> Iterator[Partition]:
        """Return the waiting partitions, and leave them in the queue."""
        self._touched.distribute()
        return iter(tuple(self.waiting))

    def drain(self) -> list[Partition]:
        """Empty the queue. The next call returns partitions that are touched from now on."""
        self._touched.distribute()
        taken = list(self.waiting)
        self.waiting.clear()
        return taken

    def requeue(self, partition: Partition) -> None:
        """Check it again next time, even if it is not touched."""
        self.waiting[partition] = None
