"""Group commit: makes what was appended durable, in rounds, each dirty log once a round.

One flusher per log directory. A round begins soon after a log became dirty, and the next round when it ended. So a
busy disk gathers more per sync. A leader's round lets the loop send to the followers first, so that they sync at the
same time. A follower's round begins without that delay, since other brokers wait for it.

The fsync policy (log.flush.policy) says what a flush is for. By default a replica counts a record once it is flushed
(`Partition.durable_end_offset`). With `os` it counts a record as it is written, and flushes only keep recovery
short.

The kernel syncs files beside the loop (`base/kernel_syncs.py`). A few threads sync the rest: the folders of a new log,
and everything where the system refuses asynchronous syncs.

Ordering law: `partition.note_flushed` is called after the sync ended, never before. A failed sync is never repeated
(the kernel may have dropped the pages): the directory goes offline. A sync that could not start for want of a
descriptor has lost no data. Its round goes on after a pause, for up to GIVE_UP_S without progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.base.disk import SyncNotBegun
from raftlog.base.env import Env
from raftlog.base.histogram import SYNC_BOUNDS_S, Histogram
from raftlog.base.log import get_logger
from raftlog.storage.flush import sync_all

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.flush import FlushTicket

TURNS_FOR_OTHERS = 2
"""Loop iterations until a leader's round. Fetch responses to followers are written in the first iteration and sent at
its end."""
THREADS = 4
"""Threads that share one round's syncs."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Seconds before a sync that could not start is retried: the first pause doubles each time, up to this."""
GIVE_UP_S = 30.0
"""A directory goes offline if its syncs cannot start for this long, so that other brokers lead its partitions."""

ADVICE = "raise the limit of open files (ulimit -n), or the machine's (fs.file-max)"

log = get_logger(__name__)


Tickets = list[tuple["Partition", "FlushTicket"]]


class Flusher:
    """The flusher of one log directory. `failed` is called once with the error of a failed sync.

    Set it before the first mark.
    """

    def __init__(self, env: Env, loop: asyncio.AbstractEventLoop) -> None:
        self._env = env
        self._loop = loop
        self.failed: Callable[[OSError], None] = _unhandled
        self._dirty: dict[Partition, None] = {}
        self._turns_left = 0  # until the round; 0: none is scheduled
        self._next_turn: asyncio.Handle | None = None
        self._running = 0
        self._round_waiters: list[Callable[[], None]] = []
        self._next_waiters: list[Callable[[], None]] = []
        self._after_round: list[Callable[[], None]] = []
        self._round: Tickets = []
        self._by_threads: list[FlushTicket] = []
        """The tickets of the round that threads sync."""
        self._held_up_at: float | None = None
        """When the round first had a sync that could not start."""
        self._pause_s = FIRST_PAUSE_S
        self._progressed_at = 0.0
        self._left = 0
        """Files and folders that the threads still had to open at the last failure."""
        self._error: OSError | None = None
        # an event loop's own time may stand still within one callback; a simulation has no other
        self._time = time.perf_counter if env.threads else loop.time
        self._offline = False
        self.rounds = 0
        self.syncs = 0
        self.seconds = Histogram(SYNC_BOUNDS_S)
        """The durations of rounds with syncs: the time that a producer with acks=all waits for on this disk."""
        self._began_at = 0.0

    def mark(self, partition: Partition) -> None:
        """Sync this partition's log in the next round."""
        if self._offline:
            return
        self._dirty[partition] = None
        if not self._turns_left and not self._running:
            self._schedule(TURNS_FOR_OTHERS)

    def _schedule(self, turns: int) -> None:
        self._turns_left = turns
        self._next_turn = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._turns_left > 1:
            self._schedule(self._turns_left - 1)
        else:
            self._turns_left = 0
            self._run_round()

    def release(self, partition: Partition, then: Callable[[], None]) -> None:
        """Stop using this partition's log, then call `then`: at once, or when the current round ends."""
        self._dirty.pop(partition, None)
        if self._running:
            self._after_round.append(then)
        else:
            then()

    async def drain(self) -> None:
        """Block until no log is dirty and no round is under way."""
        while (waiting := self.flushed() or self._round_end()) is not None:
            await waiting

    def _round_end(self) -> asyncio.Future[None] | None:
        return self._future(self._round_waiters) if self._running else None

    def flushed(self) -> asyncio.Future[None] | None:
        """Return a future that completes when all that is dirty now is durable or the directory is offline.

        Return None if no log is dirty.
        """
        return self._future(self._next_waiters) if self._dirty else None

    def _future(self, waiters: list[Callable[[], None]]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        waiters.append(partial(_resolve, future))
        return future

    def flush_now(self, then: Callable[[], None]) -> bool:
        """Call `then` once all that is dirty now is durable or the directory is offline.

        Return False if no log is dirty.

        The round begins within this call if none is under way. `then` is never called within it.
        """
        if not self._dirty:
            return False
        if self._running:
            self._turns_left = min(self._turns_left, 1)
            self._next_waiters.append(then)
            return True
        if self._turns_left and self._next_turn is not None:  # of the round that begins now
            self._next_turn.cancel()
            self._turns_left = 0
        self._run_round()
        if self._running:
            self._round_waiters.append(then)
        return self._running > 0

    def stop(self) -> None:
        """Take the directory out of service: start no more syncs, and release all waiters."""
        self._offline = True
        self._dirty.clear()
        waiters, self._next_waiters = self._next_waiters, []
        self._release(waiters)

    def _run_round(self) -> None:
        if self._offline or self._running or not (self._dirty or self._next_waiters):
            return
        # Both are swapped before the first ticket. Records appended and waiters registered from now on belong to the
        # next round.
        dirty, self._dirty = self._dirty, {}
        self._round_waiters, self._next_waiters = self._next_waiters, []
        self._began_at = self._time()
        tickets: Tickets = []
        rest = []
        for partition in dirty:
            ticket = partition.log.begin_flush()
            if ticket is None:
                partition.note_flushed(partition.log.flushed_end_offset)
                continue
            tickets.append((partition, ticket))
            if not self._submit(ticket):
                rest.append(ticket)
        self._round = tickets
        self._by_threads = rest
        self.rounds += 1
        self.syncs += len(tickets)
        if rest:
            self._submit_to_threads(rest)
        if not self._running:
            self._complete()

    def _submit(self, ticket: FlushTicket) -> bool:
        """Have the kernel sync a ticket's files; return whether it took all of them."""
        # A folder is synced after the files in it, and may write out the journal of the whole file system.
        if ticket.directories or ticket.paths:
            return False
        for file in ticket.files:
            try:
                submitted = file.submit_sync(self._sync_ended)
            except (
                Exception
            ):  # for example a file that can't be reopened: the thread gets the same error and reports it
                submitted = False
            if not submitted:
                return False  # a thread syncs the whole ticket; the round ends after both
            self._running += 1
        return True

    def _submit_to_threads(self, tickets: list[FlushTicket]) -> None:
        shares = [share for start in range(THREADS) if (share := tickets[start::THREADS])]
        self._running += len(shares)
        for share in shares:
            self._env.offload(partial(_run, share)).add_done_callback(self._share_ended)

    def _share_ended(self, future: asyncio.Future[OSError | None]) -> None:
        self._sync_ended(_cancelled() if future.cancelled() else future.result())

    def _sync_ended(self, error: OSError | None) -> None:
        if error is not None and (self._error is None or isinstance(self._error, SyncNotBegun)):
            self._error = error  # a failed sync outweighs a sync that could not start
        self._running -= 1
        if not self._running:
            self._complete()

    def _schedule_retry(self, error: SyncNotBegun) -> bool:
        """Retry the threads' part of the round after a pause. Return False without progress for too long."""
        now, is_first = self._loop.time(), self._held_up_at is None
        left = sum(len(each.paths) + len(each.directories) for each in self._by_threads)
        if is_first or left < self._left:
            self._progressed_at, self._pause_s, self._left = now, FIRST_PAUSE_S, left
        if is_first:
            self._held_up_at = now
        if now - self._progressed_at > GIVE_UP_S:
            return False
        self._running += 1
        self._loop.call_later(self._pause_s, self._retry)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if is_first:
            log.warning("flush_stalled", reason=str(error), advice=ADVICE, gives_up_after_s=GIVE_UP_S)
        return True

    def _retry(self) -> None:
        if not self._offline:
            self._submit_to_threads(self._by_threads)
        self._sync_ended(None)

    def _complete(self) -> None:
        error, self._error = self._error, None
        if isinstance(error, SyncNotBegun) and not self._offline and self._schedule_retry(error):
            return
        held_up_at, self._held_up_at = self._held_up_at, None
        tickets, self._round = self._round, []
        self._by_threads = []
        waiters, self._round_waiters = self._round_waiters, []
        # One failed sync takes the whole directory offline. It is unknown which pages the kernel dropped, and another
        # sync would succeed without writing them.
        if error is not None:
            self.stop()
            self.failed(error)
        elif not self._offline:
            if tickets:
                self.seconds.observe(self._time() - self._began_at)
            for partition, ticket in tickets:
                partition.note_flushed(partition.log.complete_flush(ticket))
        if self._after_round:
            after, self._after_round = self._after_round, []
            for then in after:
                then()
        if waiters:
            self._release(waiters)  # may begin the next round
        if (self._dirty or self._next_waiters) and not (self._turns_left or self._running):
            self._schedule(1)
        if held_up_at is not None and error is None:
            log.info("flush_resumed", stalled_s=round(self._loop.time() - held_up_at, 1))

    def _release(self, waiters: list[Callable[[], None]]) -> None:
        """Notify waiters that their round is over, also if it failed.

        They check the partition, which is offline by then.

        A follower's next fetch leaves within this call.
        """
        if self._offline:
            for then in waiters:
                self._loop.call_soon(then)
            return
        for then in waiters:
            then()


def _run(tickets: list[FlushTicket]) -> OSError | None:
    try:
        sync_all(tickets)
    except OSError as error:
        return error
    except Exception as error:  # a bug of ours: no waiter may be left in a round that never ends
        log.exception("sync_crashed")
        return OSError(f"the sync failed: {error!r}")
    return None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _cancelled() -> OSError:
    return OSError("the sync was cancelled, so it is unknown what is durable")


def _unhandled(error: OSError) -> None:
    raise error
