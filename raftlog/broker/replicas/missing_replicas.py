"""Replicas that are still to be created. Some wait for their turn, others for the next retry.

Leaders come first: a client writes to a new topic at once, and a follower can catch up later.

Some could not be created: no room on the disk, no descriptors, no directory left. One timer retries all of these, so a
full disk is tried only now and then, and the reason is logged once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from raftlog.base.log import get_logger
from raftlog.base.types import TopicPartition

TRY_AGAIN_S: Final = 5.0
"""Pause before replicas that a full disk had no room for are retried."""
NAMED: Final = 10
"""The maximum number of partitions in a log line."""

log = get_logger(__name__)


class MissingReplicas:
    """The names of missing replicas: leaders first, then by age."""

    def __init__(self) -> None:
        self._led: dict[TopicPartition, None] = {}
        self._followed: dict[TopicPartition, None] = {}
        self._unled: set[TopicPartition] = set()
        """The leaders that wait or are being created."""
        self.leaderships_made = asyncio.Event()
        """Set while this broker has every replica that it leads, except for replicas that no log directory accepts."""
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
        """Have a replica created. Its role is that of the newest image that names it."""
        self.remove(name)
        if leads:
            self._led[name] = None
            self._unled.add(name)
            self.leaderships_made.clear()
        else:
            self._followed[name] = None
            self.discard(name)

    def remove(self, name: TopicPartition) -> None:
        """Remove a name, since its replica is being created or is no longer wanted. No effect if it is not there."""
        self._led.pop(name, None)
        self._followed.pop(name, None)

    def discard(self, name: TopicPartition) -> None:
        """Note that a replica was created, refused, or is no longer wanted, unless it was added again since."""
        if name not in self._led:
            self._unled.discard(name)
            if not self._unled:
                self.leaderships_made.set()

    def clear(self) -> None:
        """Create none of these. Requests no longer wait for leaders."""
        self._led.clear()
        self._followed.clear()
        self._unled.clear()
        self.leaderships_made.set()


class RefusedReplicas:
    """The replicas of one broker that could not be created, by name, and when they are retried."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, try_again: Callable[[Iterable[TopicPartition]], None]
    ) -> None:
        """`try_again` is called with all of them after a pause, and adds back the ones refused again."""
        self._loop = loop
        self._try_again = try_again
        self._waiting: dict[TopicPartition, str] = {}
        self._said: set[TopicPartition] = set()
        """Names in log lines, of replicas that are not made yet."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def reasons(self) -> Mapping[TopicPartition, str]:
        """Return why each could not be created."""
        return self._waiting

    def add(self, refused: Mapping[TopicPartition, str]) -> None:
        """Retry replicas after the pause, with all that wait by then; log each of them once."""
        if not refused:
            return
        self._waiting.update(refused)
        if self._timer is None:
            self._timer = self._loop.call_later(TRY_AGAIN_S, self._fire)
        if not self._said.issuperset(refused):
            self._said.update(refused)
            log.error(
                "replicas_not_created",
                count=len(refused),
                partitions=[f"{each.topic}-{each.partition}" for each in tuple(refused)[:NAMED]],
                reason=next(iter(refused.values())),
                retry_after_s=TRY_AGAIN_S,
            )

    def discard(self, name: TopicPartition) -> None:
        """Note that a replica was created, or is no longer wanted; no effect if it was never refused."""
        if name in self._said:
            self._said.discard(name)
            if not self._said:
                log.info("refused_replicas_created")

    def _fire(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        self._try_again(waiting)

    def close(self) -> None:
        """Retry none of them."""
        if self._timer is not None:
            self._timer.cancel()
