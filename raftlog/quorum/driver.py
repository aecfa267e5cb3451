"""The pump of one voter: messages and proposals in, one tick, one sync, messages out.

Ordering law, in this order, every time: deliver what came → sync → tick (which commits and applies) → sync → send.
Nothing leaves, and nothing counts towards a commit, that is not durable here. While a sync runs on a thread the pump
stands still and input queues. It ticks on input and at the next deadline only. A failure of the disk, of Raft's
promises or of the state machine stops the pump for good: the others carry on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from raftlog.base.env import Env
from raftlog.base.errors import InvalidRequest, NotController, RequestTimedOut
from raftlog.base.log import get_logger
from raftlog.quorum.core import Core
from raftlog.quorum.election import Election, Timing
from raftlog.quorum.install import IncomingSnapshot
from raftlog.quorum.journal import Journal, is_disk_full
from raftlog.quorum.machine import StateMachine
from raftlog.quorum.messages import (
    HigherTerm,
    Message,
    PreVote,
    PreVoteGranted,
    RequestVote,
    SnapshotChunk,
)
from raftlog.quorum.snapshot import Snapshot, decode_snapshot, encode_snapshot
from raftlog.quorum.wal import MAX_COMMAND_BYTES, DamagedJournal

log = get_logger("quorum")

MAX_UNCOMMITTED_BATCHES: Final = 1_000
MAX_UNCOMMITTED_BYTES: Final = 16 * 1024 * 1024
MAX_INBOX_MESSAGES: Final = 10_000
"""Waiting while the disk is busy; beyond it messages are dropped, as a network may."""

FAST_SYNC_SECONDS: Final = 0.0005
"""Syncs that have lately been faster than this run on the loop."""

STALL_SECONDS: Final = 0.1
DISK_FULL_RETRY_SECONDS: Final = 1.0


class Compaction(NamedTuple):
    """When to take a snapshot: after so many entries, or when the log file is so large."""

    entries: int = 5_000
    size_bytes: int = 16 * 1024 * 1024


class Driver:
    """One voter's core, clock and disk. `send(peer, message)` and `linked()` are the network's."""

    def __init__(
        self,
        env: Env,
        *,
        node_id: int,
        peers: Iterable[int],
        directory: str,
        machine: StateMachine,
        timing: Timing,
        compaction: Compaction,
    ) -> None:
        self.node_id = node_id
        self.send: Callable[[int, Message], None] = lambda _peer, _message: None
        self.linked: Callable[[], Iterable[int]] = tuple
        self.on_advance: Callable[[], None] = lambda: None
        """Called after each round: something may have been committed, or the leader changed."""
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self.failed: BaseException | None = None
        self.journal = Journal(env.disk, directory, node_id)
        self._env = env
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._compaction = compaction
        self._restore_at_boot()
        peers = sorted(peers)
        self._alone = not peers
        self.core = Core(
            node_id,
            peers,
            journal=self.journal,
            apply=lambda _index, command: machine.apply(command),
            chance=env.random,
            now=self._loop.time,
            timing=timing,
        )
        self.election = Election(
            majority=(len(peers) + 1) // 2 + 1, timing=timing, chance=env.random, now=self._loop.time()
        )
        self._inbox: deque[tuple[int, Message]] = deque()
        self._proposals: deque[tuple[int, bytes]] = deque()
        self._proposed_bytes = 0
        self._incoming = IncomingSnapshot()
        self._announced: tuple[int | None, int, bool] = (None, self.core.term, False)
        self._was_leader = False
        self._scheduled = self._busy = self._stopped = self._disk_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._sync_seconds = 0.0
        self._snapshotting = False
        self._compact_to = 0
        self._snapshot_floor = self.journal.snapshot_index

    def _restore_at_boot(self) -> None:
        journal = self.journal
        if journal.torn_bytes:
            log.warning("quorum_log_tail_cut", node_id=self.node_id, bytes=journal.torn_bytes)
        if journal.snapshot is not None:
            self._machine.restore(journal.snapshot.state)

    # -- for users -----------------------------------------------------------------------

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        """Stop where we are, as a crash would; a running write is left to finish."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._busy:
            self.journal.close()

    @property
    def leader_id(self) -> int | None:
        return self._announced[0]

    @property
    def term(self) -> int:
        return self._announced[1]

    @property
    def leading(self) -> bool:
        return self._announced[2]

    def append(self, data: bytes) -> None:
        """Propose a batch. Raises NotController unless leading, RequestTimedOut when too much is uncommitted."""
        if not self.leading:
            raise NotController()
        if len(data) >= MAX_COMMAND_BYTES:
            raise InvalidRequest(
                f"a metadata batch of {len(data)} bytes is over the limit of {MAX_COMMAND_BYTES}"
            )
        uncommitted = self.journal.last_index - self.core.commit_index + len(self._proposals)
        if uncommitted >= MAX_UNCOMMITTED_BATCHES or self._uncommitted_bytes(data) > MAX_UNCOMMITTED_BYTES:
            raise RequestTimedOut("too many metadata changes wait for a majority")
        self._proposals.append((self.core.term, data))
        self._proposed_bytes += len(data)
        self._schedule()

    def transfer(self) -> bool:
        """Ask the most caught-up follower to take over; False if none is caught up."""
        if self._busy or not self.core.is_leader or not self.core.transfer():
            return False
        self._schedule()
        return True

    def _uncommitted_bytes(self, data: bytes) -> int:
        start = self.core.commit_index + 1
        logged = sum(len(entry[0]) for entry in self.journal.entries(start, self.journal.last_index + 1))
        return logged + self._proposed_bytes + len(data)

    # -- from the network ----------------------------------------------------------------

    def received(self, peer: int, message: Message) -> None:
        if len(self._inbox) < MAX_INBOX_MESSAGES:
            self._inbox.append((peer, message))
        self._schedule()

    def link_up(self, peer: int) -> None:
        """A new link: what an older one brought and is still unread is lost with it."""
        self._inbox = deque(each for each in self._inbox if each[0] != peer)
        self.core.connected(peer)
        self._schedule()

    def link_down(self, peer: int) -> None:
        self.core.disconnected(peer)

    def peer_gone(self, peer: int) -> None:
        """A peer's process is known to be dead."""
        if self.core.leader_id == peer and not self.core.is_leader:
            self.election.lost_leader(self._loop.time())
            self._schedule()

    # -- the round -----------------------------------------------------------------------

    def _schedule(self) -> None:
        if not (self._scheduled or self._busy or self._stopped):
            self._scheduled = True
            self._loop.call_soon(self._guarded, self._deliver)

    def _guarded(self, stage: Callable[[], None]) -> None:
        """Run one stage; whatever it raises stops this voter."""
        if self._stopped:
            return
        try:
            stage()
        except Exception as error:
            self._fail(error)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._busy:
            return
        if self._compact_to:
            self.journal.compact(self._compact_to)
            self._compact_to = 0
        inbox, self._inbox = self._inbox, deque()
        for peer, message in inbox:
            self._take(peer, message)
        while self._proposals:
            term, data = self._proposals.popleft()
            if self.core.is_leader and self.core.term == term:
                self.core.propose(data)
        self._proposed_bytes = 0
        self._announce()
        self._persist_then(self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if not self.core.is_leader and now >= self.election.deadline and not self._inbox:
            self._ask_for_votes(now)
        self.core.tick()
        if self.leading and not self.core.leads_all_committed:
            self._announce()  # a loss is told at once, a gain only once the term is durable
        self._snapshot_if_due()
        self._persist_then(self._release)

    def _release(self) -> None:
        outbox, self.core.outbox = self.core.outbox, []
        for peer, message in outbox:
            self.send(peer, message)
        if (
            self._inbox
            or self._proposals
            or self._compact_to
            or self.core.commit_index > self.core.applied_index
        ):
            self._schedule()
        self._announce()
        self._arm()
        self.on_advance()

    # -- input ---------------------------------------------------------------------------

    def _take(self, peer: int, message: Message) -> None:
        if isinstance(message, PreVote):
            self._answer_pre_vote(peer, message)
            return
        if isinstance(message, PreVoteGranted):
            if not self.core.is_leader and self.election.granted(message.term, peer):
                self._stand()
            return
        deadline = self.core.deliver(peer, message)
        if deadline is not None:
            if isinstance(message, RequestVote):
                self.election.put_off(deadline)
            else:
                self.election.heard_leader(self._loop.time(), deadline)
        if isinstance(message, SnapshotChunk) and message.term == self.core.term:
            self._take_chunk(peer, message)

    def _answer_pre_vote(self, peer: int, asked: PreVote) -> None:
        core, now = self.core, self._loop.time()
        if asked.term <= core.term:
            core.outbox.append((peer, HigherTerm(core.term)))
            return
        ours = (core.last_term, core.journal.last_index)
        if core.is_leader or self.election.hears_leader(now) or (asked.last_term, asked.last_index) < ours:
            return
        self.election.put_off_if_encouraging(now)
        core.outbox.append((peer, PreVoteGranted(asked.term)))

    def _ask_for_votes(self, now: float) -> None:
        core = self.core
        if self.election.begin_round(core.term + 1, self.node_id, now):
            self._stand()
            return
        question = PreVote(core.term + 1, core.journal.last_index, core.last_term)
        core.outbox.extend((peer, question) for peer in self.linked())

    def _stand(self) -> None:
        self.core.stand()
        now, timing = self._loop.time(), self.election.timing
        self.election.put_off(now + self._env.random.uniform(timing.election_min / 2, timing.election_min))

    def _take_chunk(self, peer: int, chunk: SnapshotChunk) -> None:
        data = self._incoming.take(peer, chunk)
        if data is None:
            self.core.answer_snapshot(peer, None)
            return
        try:
            snapshot = decode_snapshot(data)
        except DamagedJournal as error:
            log.warning("quorum_snapshot_rejected", node_id=self.node_id, peer=peer, reason=str(error))
            self.core.answer_snapshot(peer, None)
            return
        if self.core.applied_index < snapshot.end and not self.core.holds(snapshot.end, snapshot.last[2]):
            self._announce()
            self._machine.restore(snapshot.state)
            self.core.install(snapshot)
            self._snapshot_floor = snapshot.end
            log.info("quorum_snapshot_installed", node_id=self.node_id, index=snapshot.end, bytes=len(data))
        self.core.answer_snapshot(peer, snapshot.end)

    # -- leadership ----------------------------------------------------------------------

    def _announce(self) -> None:
        """Tell the state machine who leads, if that changed."""
        core = self.core
        if self._was_leader and not core.is_leader:
            self.election.stood_down(self._loop.time())
        self._was_leader = core.is_leader
        leader = core.leader_id  # its own id while it leads
        if not core.is_leader and self.election.leader_lost:
            leader = None
        current = (leader, core.term, core.leads_all_committed)
        if current != self._announced:
            self._tell(*current)

    def _tell(self, leader: int | None, term: int, leading: bool) -> None:
        if (leader, term) != self._announced[:2] and leader is not None:
            log.info("quorum_leader_changed", node_id=self.node_id, leader=leader, term=term)
        self._announced = (leader, term, leading)
        self._machine.leadership_changed(leader, term, leading)

    # -- time ----------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have the loop wake us at the next deadline; a timer that is set earlier finds out by itself."""
        target = self._wanted_at()
        if target is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer.when() <= target:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(target, self._wake)

    def _wanted_at(self) -> float | None:
        if not self.core.is_leader:
            return self.election.deadline
        if not self._alone:
            return self.core.next_heartbeat_at() + 0.001  # the core wants it to be past, not reached
        return None

    def _wake(self) -> None:
        assert self._timer is not None
        now, late = self._loop.time(), self._loop.time() - self._timer.when()
        self._timer = None
        if late > STALL_SECONDS:
            self.election.stalled(late)
            self.core.forgive(now - self.election.timing.fallback + STALL_SECONDS)
        wanted = self._wanted_at()
        if wanted is not None and now >= wanted and not self._busy:
            self._guarded(self._deliver)
        if self._timer is None and not self._busy:
            self._arm()

    # -- the disk ------------------------------------------------------------------------

    def _persist_then(self, stage: Callable[[], None]) -> None:
        """Make what is staged durable, then go on with `stage`."""
        journal = self.journal
        if not journal.dirty:
            stage()
            return
        on_loop = self._env.threads and not journal.heavy and self._sync_seconds < FAST_SYNC_SECONDS
        job = journal.take()
        if on_loop:
            try:
                self._timed(job)
            except OSError as error:
                self._not_written(job, stage, error)
                return
            stage()
            return
        self._write_on_thread(job, stage)

    def _write_on_thread(self, job: Callable[[], None], stage: Callable[[], None]) -> None:
        self._busy = True
        run = partial(self._timed, job) if self._env.threads else job
        self._env.offload(run).add_done_callback(partial(self._thread_done, job, stage))

    def _thread_done(
        self, job: Callable[[], None], stage: Callable[[], None], future: asyncio.Future[None]
    ) -> None:
        self._busy = False
        if self._stopped or future.cancelled():
            self.journal.close()
            return
        self._guarded(partial(self._written, job, stage, future.exception()))

    def _timed(self, job: Callable[[], None]) -> None:
        started = perf_counter()
        job()
        self._sync_seconds += 0.2 * (perf_counter() - started - self._sync_seconds)

    def _written(
        self, job: Callable[[], None], stage: Callable[[], None], error: BaseException | None
    ) -> None:
        if error is not None:
            self._not_written(job, stage, error)
            return
        if self._disk_full:
            self._disk_full = False
            log.info("quorum_disk_full_ended", node_id=self.node_id)
            self.core.resign()
        stage()

    def _not_written(self, job: Callable[[], None], stage: Callable[[], None], error: BaseException) -> None:
        """A full disk is waited for, silently to the peers, who elect another; anything else is the end."""
        if not is_disk_full(error):
            raise error
        self._busy = True
        if not self._disk_full:
            self._disk_full = True
            log.error("quorum_disk_full", node_id=self.node_id, reason=str(error))
            self._tell(None, self.core.term, False)
        self._loop.call_later(
            DISK_FULL_RETRY_SECONDS, self._guarded, partial(self._write_on_thread, job, stage)
        )

    def _fail(self, error: BaseException) -> None:
        self._stopped = True
        self.failed = error
        log.error("quorum_failed", node_id=self.node_id, reason=repr(error), exc_info=error)
        if self._announced[2]:
            self._tell(None, self._announced[1], False)
        self.on_failure(error)

    # -- snapshots -----------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        journal, index = self.journal, self.core.applied_index
        fresh = index - self._snapshot_floor
        entries, size_bytes = self._compaction
        due = fresh >= entries or (fresh * 10 >= entries and journal.size_bytes > size_bytes)
        if not due or self._snapshotting or index < 2:
            return
        self._snapshotting, self._snapshot_floor = True, index
        previous, last = journal.entries(index - 1, index + 1)
        encode = self._machine.snapshot()

        def write() -> int:
            data = encode_snapshot(Snapshot(previous, last, encode()))
            journal.files.write(index, data)
            return len(data)

        self._env.offload(write).add_done_callback(partial(self._snapshot_written, index))

    def _snapshot_written(self, index: int, future: asyncio.Future[int]) -> None:
        """A snapshot that failed is tried again after as many entries once more; the log only grows meanwhile."""
        self._snapshotting = False
        if future.cancelled() or self._stopped:
            return
        error = future.exception()
        if error is not None:
            log.error("quorum_snapshot_failed", node_id=self.node_id, reason=repr(error))
            return
        log.info("quorum_snapshot_written", node_id=self.node_id, index=index, bytes=future.result())
        self._compact_to = max(self._compact_to, index)
        self._schedule()
