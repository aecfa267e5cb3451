"""Group commit: makes what was appended durable, in rounds, each dirty log once a round.

One flusher per log directory. A round begins soon after something became dirty, and the next one when it ended, so that
a busy disk gathers more per sync. A leader's round lets the loop send to the followers first, so that they sync at the
same time. A follower's, which others wait for, need not wait.

While recent rounds were far below a millisecond they run on the loop (a thread would cost more than the sync).
Otherwise they run on a few threads, whose end reaches the loop as one call. Threads measure their wait for the
interpreter as well, so after a while a round is tried on the loop again. A disk that turns slow holds the loop for
one sync.

Ordering law: `partition.note_flushed` is called after the sync returned, never before. A failed sync is never repeated
(the kernel may have dropped the pages): the directory goes offline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.base.env import Env
from raftlog.base.histogram import SYNC_BOUNDS_S, Histogram
from raftlog.base.log import get_logger
from raftlog.storage.flush import sync_all

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.flush import FlushTicket

ON_LOOP_BELOW = 0.00025
"""Seconds of the average round up to which rounds stay on the loop."""
WEIGHT = 0.2
"""Of the newest round in the average."""
MAX_COUNTED_S = 0.0005
"""Seconds that one slow round counts at most: a single hiccup of a fast disk is not worth a change."""
STALLED_FROM = 0.01
"""Seconds of one round that are no hiccup."""
ON_LOOP_AT_MOST = 0.002
"""Seconds after which the rest of a round leaves the loop."""
OFF_LOOP_FACTOR = 50
"""A slow round keeps the next ones off the loop for so many times as long, so trying again costs it 2 % at most."""
TURNS_FOR_OTHERS = 2
"""Loop iterations until a leader's round: in the first, followers' fetches are answered; at its end, that is sent."""
THREADS = 4
"""Threads that share one round's syncs."""

log = get_logger(__name__)


Tickets = list[tuple["Partition", "FlushTicket"]]


class Flusher:
    """The flusher of one log directory. `failed` is told the error of a sync, once; set it before the first mark."""

    def __init__(self, env: Env, loop: asyncio.AbstractEventLoop) -> None:
        self._env = env
        self._loop = loop
        self.failed: Callable[[OSError], None] = _unhandled
        self._dirty: dict[Partition, None] = {}
        self._turns_left = 0  # until the round; 0: none is scheduled
        self._running = 0
        self._round_waiters: list[asyncio.Future[None]] = []
        self._next_waiters: list[asyncio.Future[None]] = []
        self._after_round: list[Callable[[], None]] = []
        self._average = 0.0
        # an event loop's own time may stand still within one callback; a simulation has no other
        self._time = time.perf_counter if env.threads else loop.time
        self._off_loop_until = 0.0
        self._offline = False
        self.rounds = 0
        self.syncs = 0
        self.seconds = Histogram(SYNC_BOUNDS_S)
        """How long rounds took that had something to sync: what a producer with acks=all waits for on this disk."""
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
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._turns_left > 1:
            self._schedule(self._turns_left - 1)
        else:
            self._turns_left = 0
            self._run_round()

    def release(self, partition: Partition, then: Callable[[], None]) -> None:
        """Never touch this partition's log again, then call `then`: at once, or when the round under way ends."""
        self._dirty.pop(partition, None)
        if self._running:
            self._after_round.append(then)
        else:
            then()

    async def drain(self) -> None:
        """Return once nothing is dirty and no round is under way."""
        while (waiting := self.flushed() or self._round_end()) is not None:
            await waiting

    def _round_end(self) -> asyncio.Future[None] | None:
        if not self._running:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._round_waiters.append(future)
        return future

    def flushed(self) -> asyncio.Future[None] | None:
        """A future of all that is dirty now being durable (or the directory offline); None if nothing is dirty."""
        if not self._dirty:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._next_waiters.append(future)
        return future

    def flush_now(self) -> asyncio.Future[None] | None:
        """Like `flushed`, but a fast disk's round runs in this very call: then all is durable, and None."""
        if self._dirty and not self._running and self._is_fast():
            self._run_round()
            if self._running:
                return self._round_end()
        self._turns_left = min(self._turns_left, 1)
        return self.flushed()

    def stop(self) -> None:
        """Take the directory out of service: no sync is begun any more, nobody is left waiting."""
        self._offline = True
        self._dirty.clear()
        self._release(self._next_waiters)

    def _run_round(self) -> None:
        if self._offline or self._running or not (self._dirty or self._next_waiters):
            return
        # Both are swapped before the first ticket: what is appended from now on belongs to the next round, and so does
        # the promise to those who ask from now on.
        dirty, self._dirty = self._dirty, {}
        self._round_waiters, self._next_waiters = self._next_waiters, []
        tickets = []
        for partition in dirty:
            ticket = partition.log.begin_flush()
            if ticket is not None:
                tickets.append((partition, ticket))
            else:
                partition.note_flushed(partition.log.flushed_end_offset)
        self.rounds += 1
        self.syncs += len(tickets)
        self._began_at = self._time()
        if not tickets:
            self._complete(tickets, None)
        # A directory's sync is never known to be fast: it may write out the journal of the whole file system.
        elif self._is_fast() and not any(ticket.directories for _, ticket in tickets):
            self._run_on_loop(tickets)
        else:
            self._run_in_threads(tickets, tickets)

    def _is_fast(self) -> bool:
        return self._time() >= self._off_loop_until

    def _run_on_loop(self, tickets: Tickets) -> None:
        started_at = now = self._time()
        error, done = None, 0
        while error is None and done < len(tickets) and now - started_at < ON_LOOP_AT_MOST:
            _, error = _run([tickets[done][1]], self._time)
            done += 1
            now = self._time()
        self._judge(now - started_at, now)
        if error is None and done < len(tickets):
            self._run_in_threads(tickets, tickets[done:])
        else:
            self._complete(tickets, error)

    def _judge(self, seconds: float, now: float) -> None:
        """Decide where the next rounds run."""
        counted = seconds if seconds >= STALLED_FROM else min(seconds, MAX_COUNTED_S)
        self._average += (counted - self._average) * WEIGHT
        if self._average >= ON_LOOP_BELOW:
            self._average = ON_LOOP_BELOW  # one fast round is enough to stay
            self._off_loop_until = now + OFF_LOOP_FACTOR * seconds

    def _run_in_threads(self, tickets: Tickets, rest: Tickets) -> None:
        """Sync `rest`, which ends the round of all `tickets`."""
        shares = [share for start in range(THREADS) if (share := [each[1] for each in rest[start::THREADS]])]
        self._running = len(shares)
        errors: list[OSError] = []

        def ended(future: asyncio.Future[Outcome]) -> None:
            seconds, error = (0.0, _cancelled()) if future.cancelled() else future.result()
            if seconds >= STALLED_FROM:
                self._off_loop_until = self._time() + OFF_LOOP_FACTOR * seconds
            if error is not None:
                errors.append(error)
            self._running -= 1
            if not self._running:
                self._complete(tickets, errors[0] if errors else None)

        for share in shares:
            self._env.offload(partial(_run, share, self._time)).add_done_callback(ended)

    def _complete(self, tickets: Tickets, error: OSError | None) -> None:
        # One failed sync takes the whole directory offline: nobody can tell which pages the kernel dropped, and another
        # sync would succeed without writing them.
        if error is not None:
            self.stop()
            self.failed(error)
        elif not self._offline:
            if tickets:
                self.seconds.observe(self._time() - self._began_at)
            for partition, ticket in tickets:
                partition.log.complete_flush(ticket)
                partition.note_flushed(partition.log.flushed_end_offset)
        # Waiters are released on failure too: they look at the partition, which is offline then.
        self._release(self._round_waiters)
        after, self._after_round = self._after_round, []
        for then in after:
            then()
        if (self._dirty or self._next_waiters) and not self._turns_left:
            self._schedule(1)

    @staticmethod
    def _release(waiters: list[asyncio.Future[None]]) -> None:
        for future in waiters:
            if not future.done():
                future.set_result(None)
        waiters.clear()


Outcome = tuple[float, OSError | None]
"""Seconds that a share of a round took, and what the disk said against it."""


def _run(tickets: list[FlushTicket], now: Callable[[], float]) -> Outcome:
    started_at = now()
    try:
        sync_all(tickets)
    except OSError as error:
        return now() - started_at, error
    except Exception as error:  # our own fault: nobody may be left to wait for a round that never ends
        log.exception("sync_crashed")
        return now() - started_at, OSError(f"the sync failed: {error!r}")
    return now() - started_at, None


def _cancelled() -> OSError:
    return OSError("the sync was cancelled, so nobody knows what is durable")


def _unhandled(error: OSError) -> None:
    raise error
