"""Replicas that could not be made: no room on the disk, no descriptors, no directory left. They wait for the next try.

One timer serves all of them, so that a full disk is asked once in a while, and a line says once why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from raftlog.base.log import get_logger
from raftlog.base.types import TopicPartition

TRY_AGAIN_S: Final = 5.0
"""Pause before the replicas that a full disk had no room for are tried again."""
NAMED: Final = 10
"""Partitions that a line names."""

log = get_logger(__name__)


class RefusedReplicas:
    """The replicas of one broker that could not be made, by name, and when they are tried again."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, try_again: Callable[[Iterable[TopicPartition]], None]
    ) -> None:
        """`try_again` is given all of them after a pause, and adds those that are refused again."""
        self._loop = loop
        self._try_again = try_again
        self._waiting: dict[TopicPartition, str] = {}
        self._said: set[TopicPartition] = set()
        """Those that a line has named and that are not made yet."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def reasons(self) -> Mapping[TopicPartition, str]:
        """Return why each could not be made."""
        return self._waiting

    def add(self, refused: Mapping[TopicPartition, str]) -> None:
        """Have replicas tried again after the pause, with all that wait by then; log each of them once."""
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
                again_in_s=TRY_AGAIN_S,
            )

    def settle(self, name: TopicPartition) -> None:
        """Note that a replica was made, or is wanted no more; fine if it was never refused."""
        if name in self._said:
            self._said.discard(name)
            if not self._said:
                log.info("refused_replicas_created")

    def _fire(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        self._try_again(waiting)

    def close(self) -> None:
        """Try none of them again."""
        if self._timer is not None:
            self._timer.cancel()
