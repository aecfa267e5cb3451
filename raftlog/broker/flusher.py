"""Group commit: makes what was appended durable, in rounds, each dirty log once a round.

One flusher per log directory. A round begins soon after something became dirty, and the next one when it ended, so that
a busy disk gathers more per sync. A leader's round lets the loop send to the followers first, so that they sync at the
same time; a follower's, which others wait for, begins in the next loop iteration.

While recent rounds were far below a millisecond they run on the loop (a thread would cost more than the sync);
otherwise on a few threads, whose end reaches the loop as one call. What threads measure includes their wait for the
interpreter, so after a while a round is tried on the loop again. A disk that turns slow holds the loop for one sync.

Ordering law: `partition.note_flushed` is called after the sync returned, never before; a failed sync is never repeated
(the kernel may have dropped the pages): the directory goes offline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from raftlog.base.env import Env

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.flush import FlushTicket

ON_LOOP_BELOW = 0.00025
"""Seconds of the average round up to which rounds stay on the loop."""
ON_LOOP_AT_MOST = 0.002
"""Seconds after which the rest of a round leaves the loop."""
STALLED_FROM = 0.01
"""Seconds of one round that are reason enough to leave the loop."""
WEIGHT = 0.2
"""Of the newest round in the average."""
OFF_LOOP_FACTOR = 50
"""A slow round keeps the next ones off the loop for so many times as long, so trying again costs it 2 % at most."""
TURNS_FOR_OTHERS = 3
"""Loop iterations until a leader's round: what it appended is told (1), read (2), sent (3)."""
THREADS = 4
"""Threads that share one round's syncs."""


Tickets = list[tuple["Partition", "FlushTicket"]]


class Flusher:
    """The flusher of one log directory. `failed` is told the error of a sync, once; set it before the first mark."""

    def __init__(self, env: Env, loop: asyncio.AbstractEventLoop) -> None:
        self._env = env
        self._loop = loop
        self._clock = perf_counter if env.threads else loop.time  # uvloop's time counts milliseconds
        self.failed: Callable[[OSError], None] = _unhandled
        self._dirty: dict[Partition, None] = {}
        self._turns_left = 0  # until the round; 0: none is scheduled
        self._running = 0
        self._round_waiters: list[Callable[[], None]] = []
        self._next_waiters: list[Callable[[], None]] = []
        self._after_round: list[Callable[[], None]] = []
        self._average = 0.0
        self._off_loop_until = 0.0
        self._offline = False
        self.rounds = 0
        self.syncs = 0

    def mark(self, partition: Partition) -> None:
        """Sync this partition's log in the next round."""
        if self._offline:
            return
        self._dirty[partition] = None
        if not self._turns_left and not self._running:
            self._schedule(TURNS_FOR_OTHERS)

    def when_flushed(self, partition: Partition, then: Callable[[], None]) -> bool:
        """Sync this partition's log now and call `then` (also if the directory fails); False: it is out of service."""
        self.mark(partition)
        if self._offline:
            return False
        self._next_waiters.append(then)
        self._turns_left = min(self._turns_left, 1)
        return True

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
        while self._dirty or self._running:
            ended: asyncio.Future[None] = self._loop.create_future()
            waiters = self._next_waiters if self._dirty else self._round_waiters
            waiters.append(partial(ended.set_result, None))
            await asyncio.shield(ended)

    def stop(self) -> None:
        """Take the directory out of service: no sync is begun any more, nobody is left waiting."""
        self._offline = True
        self._dirty.clear()
        _tell(self._next_waiters)

    def _run_round(self) -> None:
        if self._offline or self._running:
            return
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
        if not tickets:
            self._complete(tickets, None)
        elif self._may_run_on_loop(tickets):
            self._run_on_loop(tickets)
        else:
            self._run_in_threads(tickets, tickets)

    def _may_run_on_loop(self, tickets: Tickets) -> bool:
        if self._clock() < self._off_loop_until:
            return False
        return not any(ticket.directories for _, ticket in tickets)

    def _run_on_loop(self, tickets: Tickets) -> None:
        clock = self._clock
        started_at = now = clock()
        error, done = None, 0
        while error is None and done < len(tickets) and now - started_at < ON_LOOP_AT_MOST:
            _, error = _run([tickets[done][1]], clock)
            done += 1
            now = clock()
        self._judge(now - started_at, now)
        if error is None and done < len(tickets):
            self._run_in_threads(tickets, tickets[done:])
        else:
            self._complete(tickets, error)

    def _judge(self, seconds: float, now: float) -> None:
        """Decide where the next rounds run."""
        if seconds < STALLED_FROM:
            seconds = min(seconds, 2 * ON_LOOP_BELOW)  # a single slow round says little
        self._average += (seconds - self._average) * WEIGHT
        if self._average >= ON_LOOP_BELOW:
            self._average = ON_LOOP_BELOW  # so that one fast round suffices to come back
            self._off_loop_until = now + OFF_LOOP_FACTOR * seconds

    def _run_in_threads(self, tickets: Tickets, rest: Tickets) -> None:
        shares = [share for start in range(THREADS) if (share := [each[1] for each in rest[start::THREADS]])]
        self._running = len(shares)
        errors: list[OSError] = []

        def ended(future: asyncio.Future[Outcome]) -> None:
            seconds, error = (0.0, _cancelled()) if future.cancelled() else future.result()
            if seconds >= STALLED_FROM:
                self._off_loop_until = self._clock() + OFF_LOOP_FACTOR * seconds
            if error is not None:
                errors.append(error)
            self._running -= 1
            if not self._running:
                self._complete(tickets, errors[0] if errors else None)

        for share in shares:
            self._env.offload(partial(_run, share, self._clock)).add_done_callback(ended)

    def _complete(self, tickets: Tickets, error: OSError | None) -> None:
        if error is not None:
            self.stop()
            self.failed(error)
        elif not self._offline:
            for partition, ticket in tickets:
                partition.log.complete_flush(ticket)
                partition.note_flushed(partition.log.flushed_end_offset)
        _tell(self._round_waiters)
        _tell(self._after_round)
        if (self._dirty or self._next_waiters) and not self._turns_left:
            self._schedule(1)


Outcome = tuple[float, OSError | None]
"""Seconds that a share of a round took, and what the disk said against it."""


def _run(tickets: list[FlushTicket], clock: Callable[[], float]) -> Outcome:
    started_at = clock()
    try:
        for ticket in tickets:
            ticket.run()
    except OSError as error:
        return clock() - started_at, error
    return clock() - started_at, None


def _tell(waiters: list[Callable[[], None]]) -> None:
    while waiters:
        waiters.pop(0)()


def _cancelled() -> OSError:
    return OSError("the sync was cancelled, so nobody knows what is durable")


def _unhandled(error: OSError) -> None:
    raise error
