"""Measures by a timer how late a node's event loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raftlog.base.env import shared_time
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger

log = get_logger("quorum")

MEASURE_S: Final = 0.1
"""The interval between measurements on a node that has run late recently, seconds."""

CALM_MEASURE_S: Final = 0.5
"""The interval on any other node, since each measurement wakes it up."""


class LoopWatch:
    """Measures how late the loop runs, and logs that the node has become slow, or is no longer."""

    def __init__(self, lateness: Lateness, node_id: int) -> None:
        self.on_measured: Callable[[float], None] = lambda late_s: None
        """Called with each measurement: how late the loop ran, seconds."""
        self._lateness = lateness
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._is_slow_logged = False

    def start(self) -> None:
        """Measure from now on."""
        self._due_at = shared_time(
            self._loop.time(), MEASURE_S if self._lateness.was_late else CALM_MEASURE_S
        )
        self._timer = self._loop.call_at(self._due_at, self._measure)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        now, lateness = self._loop.time(), self._lateness
        lateness.note(now - self._due_at, now)
        self.on_measured(now - self._due_at)
        if lateness.is_slow != self._is_slow_logged:
            self._is_slow_logged = lateness.is_slow
            if self._is_slow_logged:
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
