"""Makes what the journal staged durable: on the loop while the disk is fast, else on a thread.

While a job is on a thread, `busy` is true and staging is forbidden. A full disk is retried, since the same bytes may be
written again at the same place, and so is a lack of file descriptors. Any other failure of the disk is raised, and
final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

from raftlog.base.disk import DISK_FULL, OUT_OF_FILES
from raftlog.base.env import Env
from raftlog.quorum.journal import Journal

FAST_SYNC_SECONDS: Final = 0.0005
"""Syncs run on the loop while they take less than this."""

TRANSIENT_ERRNOS: Final = DISK_FULL | OUT_OF_FILES
"""Errors without a partial write that matters, which end when room is made."""

RETRY_SECONDS: Final = 1.0
_WEIGHT: Final = 0.2

Stage = Callable[[], None]


class JournalWriter:
    """`run(stage)` runs a stage and handles its exceptions; `on_full`, `on_space`: room ran out, came back."""

    def __init__(
        self,
        env: Env,
        journal: Journal,
        *,
        run: Callable[[Stage], None],
        on_full: Callable[[OSError], None],
        on_space: Callable[[OSError], None],
    ) -> None:
        self.busy = False
        self.sync_seconds = 0.0
        """Moving average of what one sync takes."""
        self._env = env
        self._journal = journal
        self._run = run
        self._on_full = on_full
        self._on_space = on_space
        self._full: OSError | None = None
        self._stopped = False

    def sync_then(self, stage: Stage) -> None:
        """Sync the staged work, then run `stage`: at once, or from the loop later."""
        if not self._journal.dirty:
            stage()
            return
        on_loop = (
            self._env.threads and not self._journal.needs_rewrite and self.sync_seconds < FAST_SYNC_SECONDS
        )
        job = self._journal.take_staged()
        if not on_loop:
            self._to_thread(job, stage)
            return
        try:
            self._timed(job)
        except OSError as error:
            self._failed(job, stage, error)
        else:
            stage()

    def stop(self) -> None:
        """Close the journal, after the job that is running."""
        self._stopped = True
        if not self.busy:
            self._journal.close()

    def _to_thread(self, job: Callable[[], None], stage: Stage) -> None:
        if self._stopped:
            return
        self.busy = True
        run = partial(self._timed, job) if self._env.threads else job
        self._env.offload(run).add_done_callback(partial(self._done, job, stage))

    def _timed(self, job: Callable[[], None]) -> None:
        started = perf_counter()
        job()
        self.sync_seconds += _WEIGHT * (perf_counter() - started - self.sync_seconds)

    def _done(self, job: Callable[[], None], stage: Stage, future: asyncio.Future[None]) -> None:
        self.busy = False
        error = None if future.cancelled() else future.exception()
        if self._stopped or future.cancelled():
            self._journal.close()  # no caller waits for that job any more, however it ended
            return
        self._run(partial(self._written, job, stage, error))

    def _written(self, job: Callable[[], None], stage: Stage, error: BaseException | None) -> None:
        if error is not None:
            self._failed(job, stage, error)
            return
        if self._full is not None:
            full, self._full = self._full, None
            self._on_space(full)
        stage()

    def _failed(self, job: Callable[[], None], stage: Stage, error: BaseException) -> None:
        if not isinstance(error, OSError) or error.errno not in TRANSIENT_ERRNOS:
            raise error
        self.busy = True
        if self._full is None:
            self._full = error
            self._on_full(error)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._to_thread, job, stage)
