"""Claims about how the quorum's journal reaches its disk. A job outlives its caller."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

from raftlog.base.env import Env
from raftlog.quorum.journal import Journal
from raftlog.quorum.journal_writer import JournalWriter


class HeavyJournal:
    """A journal with one job for a thread, which fails."""

    dirty = needs_rewrite = True
    closed = 0

    def take_staged(self) -> Any:
        return self._fail

    def _fail(self) -> None:
        raise OSError(5, "Input/output error")

    def close(self) -> None:
        self.closed += 1


async def test_job_that_fails_after_the_stop_has_no_effect() -> None:
    """The node ends anyway; an unread error would be logged as its own."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    journal = HeavyJournal()
    writer = JournalWriter(
        Env(),
        cast(Journal, journal),
        run=lambda stage: stage(),
        on_full=lambda _error: None,
        on_space=lambda _error: None,
    )
    writer.sync_then(lambda: None)
    writer.stop()
    while not journal.closed:
        await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
