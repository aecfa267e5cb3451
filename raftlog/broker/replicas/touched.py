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

    __slots__ = ("_queues", "fresh")

    def __init__(self) -> None:
        self.fresh: dict[Partition, None] = {}
        self._queues: list[TouchedQueue] = []

    def queue(self, forget: Callable[[Partition], object] | None = None) -> TouchedQueue:
        """Return a new queue for a chore. It does not include partitions touched before.

        `forget` is called with each replica that leaves this broker, if the chore keeps it elsewhere as well.
        """
        queue = TouchedQueue(self, forget)
        self._queues.append(queue)
        return queue

    def discard(self, partition: Partition) -> None:
        """Let every chore forget a replica that leaves: some run so seldom that very many could wait for them."""
        self.fresh.pop(partition, None)
        for queue in self._queues:
            queue.discard(partition)

    def distribute(self) -> None:
        """Move the touched partitions into every queue."""
        if self.fresh:
            for queue in self._queues:
                queue.waiting.update(self.fresh)
            self.fresh.clear()


class TouchedQueue:
    """The partitions that a chore has yet to check, each once, in the order in which they were touched."""

    __slots__ = ("_forget", "_touched", "waiting")

    def __init__(
        self, touched: TouchedPartitions, forget: Callable[[Partition], object] | None = None
    ) -> None:
        self._touched = touched
        self._forget = forget
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

    def discard(self, partition: Partition) -> None:
        """Drop a replica that leaves this broker, and what its chore keeps about it."""
        self.waiting.pop(partition, None)
        if self._forget is not None:
            self._forget(partition)
