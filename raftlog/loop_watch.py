"""One node's watch over its event loop: how late it runs. Knows neither roles nor connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raftlog.base.env import shared_time
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger

log = get_logger("quorum")

LOOK_S: Final = 0.1
"""How often a node that was late of late looks how late its loop is, seconds."""

CALM_LOOK_S: Final = 0.5
"""How often a node looks that was not, since each look wakes it up."""


class LoopWatch:
    """Looks how late this node's loop is, and says once that it is slow, and that it is no longer."""

    def __init__(self, lateness: Lateness, node_id: int) -> None:
        self.on_look: Callable[[float], None] = lambda late_s: None
        """Called with each look, with how long the loop stood still before."""
        self._lateness = lateness
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._said = False

    def start(self) -> None:
        """Look from now on."""
        self._due_at = shared_time(self._loop.time(), LOOK_S if self._lateness.was_late else CALM_LOOK_S)
        self._timer = self._loop.call_at(self._due_at, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now, lateness = self._loop.time(), self._lateness
        lateness.note(now - self._due_at, now)
        self.on_look(now - self._due_at)
        if lateness.is_slow != self._said:
            self._said = lateness.is_slow
            if self._said:
                log.warning(
                    "node_slow",
                    node_id=self._node_id,
                    late_s=round(lateness.late_s, 3),
                    patience_s=round(lateness.patience_s, 3),
                    advice="its event loop runs late: give the process more of a core, or less to do",
                )
            else:
                log.info("node_slow_ended", node_id=self._node_id)
        self.start()
