"""Replicas that the image places on this broker and that are still to be made, in the order in which they are made.

Those that this broker leads come first: a client writes to a new topic at once, and a follower can catch up later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from raftlog.base.types import TopicPartition


class MissingReplicas:
    """The names of missing replicas: leaders first, then by age."""

    def __init__(self) -> None:
        self._led: dict[TopicPartition, None] = {}
        self._followed: dict[TopicPartition, None] = {}
        self._unled: set[TopicPartition] = set()
        """The leaders that wait or are being made."""
        self.leaderships_made = asyncio.Event()
        """Set while this broker has every replica that it leads, except for those that no log directory takes."""
        self.leaderships_made.set()

    def __len__(self) -> int:
        return len(self._led) + len(self._followed)

    def __iter__(self) -> Iterator[TopicPartition]:
        """Iterate over the names of this moment, so that they may be taken meanwhile."""
        yield from tuple(self._led)
        yield from tuple(self._followed)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._led or name in self._followed

    def add(self, name: TopicPartition, *, leads: bool) -> None:
        """Have a replica made. Its role is that of the newest image that names it."""
        self.take(name)
        if leads:
            self._led[name] = None
            self._unled.add(name)
            self.leaderships_made.clear()
        else:
            self._followed[name] = None
            self.settle(name)

    def take(self, name: TopicPartition) -> None:
        """Remove a name: its replica is being made from now on, or is wanted no more. Fine if it is not there."""
        self._led.pop(name, None)
        self._followed.pop(name, None)

    def settle(self, name: TopicPartition) -> None:
        """Note that a replica was made or refused, or is wanted no more, unless it was added again since."""
        if name not in self._led:
            self._unled.discard(name)
            if not self._unled:
                self.leaderships_made.set()

    def clear(self) -> None:
        """Have none of these made. Requests wait no longer for leaders."""
        self._led.clear()
        self._followed.clear()
        self._unled.clear()
        self.leaderships_made.set()
