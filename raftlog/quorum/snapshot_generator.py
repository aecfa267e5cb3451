"""Takes the state machine's snapshots in the background, so that the log can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from raftlog.base.env import Env
from raftlog.base.log import get_logger
from raftlog.quorum.journal import Journal
from raftlog.quorum.snapshot import Snapshot, encode_snapshot

if TYPE_CHECKING:
    from raftlog.quorum.state_machine import StateMachine

log = get_logger("quorum")


class SnapshotPolicy(NamedTuple):
    """The limits after which a snapshot is taken: so many entries, bytes, or seconds with new entries (0: never)."""

    entries: int = 5_000
    size_bytes: int = 20 * 1024 * 1024
    interval_s: float = 3_600.0


class SnapshotGenerator:
    """One snapshot at a time. `on_durable(index)`: everything up to `index` is safe in a file."""

    def __init__(
        self,
        env: Env,
        journal: Journal,
        machine: StateMachine,
        rule: SnapshotPolicy,
        *,
        on_durable: Callable[[int], None],
    ) -> None:
        self._env = env
        self._journal = journal
        self._machine = machine
        self._rule = rule
        self._on_durable = on_durable
        self._under_way = False
        self._tried_index = journal.snapshot_index
        self._tried_at = asyncio.get_running_loop().time()
        self._tried_bytes = 0
        """Size of the log file at the last snapshot, or less since it was cut."""
        self._fresh = 0

    @property
    def due_at(self) -> float | None:
        """None without new entries, or while a snapshot is being taken."""
        if self._under_way or self._fresh <= 0 or not self._rule.interval_s:
            return None
        return self._tried_at + self._rule.interval_s

    def take_if_due(self, applied_index: int) -> None:
        """Capture the state as of `applied_index` now; encode and write it in a thread."""
        if applied_index < 2:
            return  # a snapshot needs two entries
        self._fresh = applied_index - max(self._tried_index, self._journal.snapshot_index)
        self._tried_bytes = min(self._tried_bytes, self._journal.size_bytes)
        now = asyncio.get_running_loop().time()
        if self._under_way or self._fresh <= 0 or not self._is_due(now):
            return
        self._under_way, self._tried_index, self._fresh = True, applied_index, 0
        self._tried_at, self._tried_bytes = now, self._journal.size_bytes
        previous, last = self._journal.entries(applied_index - 1, applied_index + 1)
        encode, files = self._machine.snapshot(), self._journal.snapshot_files
        voters = self._journal.voters_at(applied_index)

        def write() -> int:
            data = encode_snapshot(Snapshot(previous, last, encode(), voters))
            files.write(applied_index, data)
            return len(data)

        self._env.offload(write).add_done_callback(partial(self._written, applied_index))

    def _is_due(self, now: float) -> bool:
        grown = self._journal.size_bytes - self._tried_bytes
        late = self.due_at is not None and now >= self.due_at
        return self._fresh >= self._rule.entries or grown >= self._rule.size_bytes or late

    def _written(self, index: int, future: asyncio.Future[int]) -> None:
        """End a snapshot. If it failed, it is retried after as many more entries; until then the log only grows."""
        self._under_way = False
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            log.error("quorum_snapshot_failed", index=index, reason=repr(error))
            return
        self._on_durable(index)
        log.info("quorum_snapshot_written", index=index, bytes=future.result())
