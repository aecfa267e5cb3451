"""Takes the state machine's snapshots in the background, so that the log can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from raftlog.base.env import Env
from raftlog.base.log import get_logger
from raftlog.quorum.journal import Journal
from raftlog.quorum.machine import StateMachine
from raftlog.quorum.snapshot import Snapshot, encode_snapshot

log = get_logger("quorum")


class Compaction(NamedTuple):
    """When to take a snapshot: after so many entries, or, past a tenth of them, when the log file is so large."""

    entries: int = 5_000
    size_bytes: int = 16 * 1024 * 1024


class Snapshots:
    """One snapshot at a time. `on_durable(index)`: everything up to `index` is safe in a file."""

    def __init__(
        self,
        env: Env,
        journal: Journal,
        machine: StateMachine,
        rule: Compaction,
        *,
        on_durable: Callable[[int], None],
    ) -> None:
        self._env = env
        self._journal = journal
        self._machine = machine
        self._rule = rule
        self._on_durable = on_durable
        self._under_way = False
        self._tried_at = journal.snapshot_index

    def take_if_due(self, applied_index: int) -> None:
        """Capture the state as of `applied_index` now, and encode and write it elsewhere."""
        fresh = applied_index - max(self._tried_at, self._journal.snapshot_index)
        entries, size_bytes = self._rule
        due = fresh >= entries or (fresh * 10 >= entries and self._journal.size_bytes > size_bytes)
        if not due or self._under_way or applied_index < 2:
            return
        self._under_way, self._tried_at = True, applied_index
        previous, last = self._journal.entries(applied_index - 1, applied_index + 1)
        encode, files = self._machine.snapshot(), self._journal.files

        def write() -> int:
            data = encode_snapshot(Snapshot(previous, last, encode()))
            files.write(applied_index, data)
            return len(data)

        self._env.offload(write).add_done_callback(partial(self._written, applied_index))

    def _written(self, index: int, future: asyncio.Future[int]) -> None:
        """A snapshot that failed is tried again after as many entries more; the log only grows meanwhile."""
        self._under_way = False
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            log.error("quorum_snapshot_failed", index=index, reason=repr(error))
            return
        log.info("quorum_snapshot_written", index=index, bytes=future.result())
        self._on_durable(index)
