"""The pump of one voter: messages and proposals in, one tick, one sync, messages out.

Ordering law, in this order, every time: deliver input → sync → tick (which commits and applies) → sync → send. Only
durable entries are sent, or count towards a commit. While a sync runs on a thread the pump stands still and input
queues. It ticks at the next deadline, and after input that requires it. A failure of the disk, of Raft's promises or of
the state machine stops the pump for good: the other voters carry on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from raftlog.base.disk import DISK_FULL
from raftlog.base.env import Env, timer_time
from raftlog.base.errors import NotController
from raftlog.base.log import get_logger
from raftlog.base.log_output import describe
from raftlog.base.types import NO_DIRECTORY, encode_uuid
from raftlog.quorum.core import RaftCore
from raftlog.quorum.election import Election, Timing
from raftlog.quorum.incarnations import Heard, Incarnations
from raftlog.quorum.journal import Journal
from raftlog.quorum.journal_writer import JournalWriter
from raftlog.quorum.messages import (
    HigherTerm,
    Message,
    MessageSizes,
    PreVote,
    PreVoteGranted,
    RequestVote,
    SnapshotChunk,
    TimeoutNow,
    VoteGranted,
)
from raftlog.quorum.proposals import Proposals
from raftlog.quorum.snapshot import IncomingSnapshot, decode_snapshot
from raftlog.quorum.snapshot_generator import SnapshotGenerator, SnapshotPolicy
from raftlog.quorum.snapshot_sender import SnapshotSender
from raftlog.quorum.voter_set import VoterSet
from raftlog.quorum.wal import DamagedJournal

if TYPE_CHECKING:
    from raftlog.quorum.state_machine import StateMachine
    from raftlog.quorum.voter_proposal import VoterProposal
    from raftlog.quorum.voters_record import VotersRecord

log = get_logger("quorum")

MAX_INBOX_MESSAGES: Final = 10_000
"""Waiting while the disk is busy; beyond it messages are dropped, as a network may."""

STALL_SECONDS: Final = 0.1
"""A timer this late means that our own loop stood still."""

_CHANGES: Final = {
    "added": "quorum_voter_added",
    "removed": "quorum_voter_removed",
    "moved": "quorum_voter_moved",
}
"""The log event of each kind of change of the voters."""


class Driver:
    """One voter's core, clock and disk. `send(peer, message)` and `linked()` are the network's."""

    def __init__(
        self,
        env: Env,
        *,
        voters: VoterSet,
        directory: str,
        machine: StateMachine,
        timing: Timing,
        compaction: SnapshotPolicy,
        sizes: MessageSizes = MessageSizes(),  # noqa: B008 (immutable)
    ) -> None:
        self.node_id = voters.node_id
        self.voters = voters
        self.send: Callable[[int, Message], None] = lambda _peer, _message: None
        self.linked: Callable[[], Iterable[int]] = tuple
        self.on_advance: Callable[[], None] = lambda: None
        """Called after each round: entries may have been committed, or the leader changed."""
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self.failed: BaseException | None = None
        self.led_since = 0.0
        """When this voter last began to lead, loop seconds."""
        self.candidacy_stopped = False
        self.journal = Journal(env.disk, directory, self.node_id, voters.directory_id)
        self._env = env
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._restore_at_boot(directory)
        self.outgoing = SnapshotSender(env.offload, self.journal.snapshot_files)
        self.on_voters: Callable[[], None] = lambda: None
        """Called when another set of voters is in force."""
        self._change: VoterProposal | None = None
        self.core = RaftCore(
            self.node_id,
            voters.peers,
            journal=self.journal,
            apply=machine.apply,
            snapshot=lambda first_index: self.outgoing.cursor_of_newest(first_index, self.resume_sending),
            chance=env.random,
            now=self._loop.time,
            timing=timing,
            lateness=env.lateness,
            sizes=sizes,
            voters=voters,
        )
        self.journal.snapshot = None  # restored; it may be large
        self.election = Election(
            alone=not voters.peers,
            timing=timing,
            chance=env.random,
            now=self._loop.time(),
            lateness=env.lateness,
        )
        self._counted: dict[int, tuple[UUID, tuple[int, int, int]]] = {}  # as last led; see `Heard`
        self._inbox: deque[tuple[int, Message]] = deque()
        self._proposals = Proposals(self.core)
        self._incoming = IncomingSnapshot()
        self._announced: tuple[int | None, int, bool] = (None, self.core.term, False)
        self._was_leader = self._scheduled = self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._compact_to = 0
        self._writer = JournalWriter(
            env, self.journal, run=self._guarded, on_full=self._disk_full, on_space=self._disk_has_space
        )
        self._snapshots = SnapshotGenerator(
            env, self.journal, machine, compaction, on_durable=self._snapshot_durable
        )

    def _restore_at_boot(self, directory: str) -> None:
        env, voters = self._env, self.voters
        self.incarnations = Incarnations(env.disk, directory, voters.directory_id, env.unguessable)
        voters.directory_id = self.incarnations.directory_id
        journal = self.journal
        voters.adopt(journal.voters)
        journal.on_voters = self._voters_changed
        self._logged_set = journal.voters_index
        if journal.snapshot is not None:
            self._machine.restore(journal.snapshot.state)
        self._recorded = voters.recorded()
        if journal.torn_bytes:
            log.warning("quorum_log_tail_cut", node_id=self.node_id, bytes=journal.torn_bytes)

    # -- for users -----------------------------------------------------------------------

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        """Stop where we are, as a crash would; a running write finishes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._writer.stop()

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
        """Propose a batch. Raise NotController unless leading, or as `Proposals.add`."""
        if not self.leading:
            raise NotController()
        self._proposals.add(data)
        self._schedule()

    def stop_candidacy(self) -> None:
        """Stop standing for leader in this process: it still votes and follows, and stays leader if it leads now."""
        self.candidacy_stopped = bool(self.voters.peers)

    def change_voters(self, make: Callable[[], VotersRecord]) -> VoterProposal:
        """Propose the set that `make` returns once all before it is applied. Raise NotController."""
        if not self.leading:
            raise NotController()
        assert not self.changes_voters
        from raftlog.quorum.voter_proposal import VoterProposal

        self._change = VoterProposal(self.core, make, self._proposals.append)
        self._schedule()
        return self._change

    @property
    def changes_voters(self) -> bool:
        """Whether a change of the voters is proposed, or appended and not known to be committed."""
        return self._change is not None or self.journal.voters_index > self.core.commit_index

    def _voters_changed(self) -> None:
        self.voters.adopt(self.journal.voters)
        self.core.follow_voters()
        self.on_voters()
        log.info("quorum_voters_changed", node_id=self.node_id, voters=list(self.voters.recorded() or ()))

    def resign(self) -> None:
        """Give up leadership at once; the other voters find out by themselves."""
        if not self._stopped:
            self.core.resign()
            self._announce()

    def transfer_leadership(self) -> bool:
        """Ask the most caught-up follower to take over; False if none is caught up."""
        if self._writer.busy or not self.core.is_leader or not self.core.transfer_leadership():
            return False
        self._schedule()
        return True

    # -- this voter, and what it heard of others ---------------------------------------

    @property
    def directory_id(self) -> UUID:
        """The directory id of this voter, as other voters know it."""
        return self.voters.directory_id

    @property
    def incarnation(self) -> bytes:
        """The incarnation of this process, as its directory names it."""
        return self.incarnations.current

    @property
    def new_journal(self) -> bool:
        """Whether the metadata log is empty and has never seen a term."""
        return self.journal.is_new

    @property
    def observes(self) -> bool:
        return self.voters.observes

    def incarnations_of(self, voter: int) -> list[Heard]:
        """Return what this node reports to a voter about its directories; empty for other nodes."""
        if voter not in self.voters.peers:
            return []
        self._note_counted(voter)
        led, position = self._counted.get(voter, (NO_DIRECTORY, ()))
        return [
            Heard(directory_id.bytes, incarnation, *(position if directory_id == led else ()))
            for directory_id, incarnation in self.journal.heard.of(voter).items()
        ]

    def went_back(self, heard: Iterable[Heard]) -> bool:
        """Return whether another voter heard more of this directory than it holds: then it takes a new directory id.

        The caller closes all links, on which others know the former id.
        """
        if not any(self.incarnations.is_older(each, self.journal) for each in heard):
            return False
        self._guarded(self._become_another)
        return True

    def _become_another(self) -> None:
        former = self.directory_id
        self.incarnations.renew()
        self.voters.distrust(self.incarnations.directory_id)
        self.core.resign()
        self.core.outbox.clear()
        self._announce()
        log.error(
            "voter_outdated",
            node_id=self.node_id,
            directory_id=encode_uuid(former),
            new_directory_id=encode_uuid(self.directory_id),
            advice=f"its metadata folder is an older copy: {self.voters.way_back}",
        )

    def _note_counted(self, peer: int) -> None:
        if not self.core.is_leader:
            return
        directory_id, match = self.voters.linked.get(peer), self.core.match_index(peer)
        entry_term = self.journal.entry_term(match)
        if directory_id is not None and entry_term is not None:
            self._counted[peer] = directory_id, (self.core.term, match, entry_term)

    # -- from the network ----------------------------------------------------------------

    def received(self, peer: int, message: Message) -> None:
        if len(self._inbox) < MAX_INBOX_MESSAGES:
            self._inbox.append((peer, message))
        self._schedule()

    def link_up(self, peer: int) -> None:
        """Drop the unread messages of a peer's former link, since a new link is up."""
        self._inbox = deque(each for each in self._inbox if each[0] != peer)
        self._guarded(lambda: self.core.connected(peer))
        self._schedule()

    def link_down(self, peer: int) -> None:
        self._note_counted(peer)
        self._guarded(lambda: self.core.disconnected(peer))

    def resume_sending(self) -> None:
        """Continue sending: a link is writable again, or a requested snapshot was read."""
        self.core.request_resend()
        self._schedule()

    def on_peer_process_dead(self, peer: int) -> None:
        """Elect soon if a peer that is known to be dead was the leader."""
        if self.core.leader_id == peer and not self.core.is_leader:
            self.election.on_leader_dead(self._loop.time())
            self._schedule()

    # -- the round -----------------------------------------------------------------------

    def _schedule(self) -> None:
        if not (self._scheduled or self._writer.busy or self._stopped):
            self._scheduled = True
            self._loop.call_soon(self._guarded, self._deliver)

    def _guarded(self, stage: Callable[[], None]) -> None:
        """Run one stage; any exception stops this voter."""
        if self._stopped:
            return
        try:
            stage()
        except Exception as error:
            self._fail(error)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._writer.busy:
            return
        if self._compact_to:
            self.journal.compact(self._compact_to)
            self._compact_to = 0
        inbox, self._inbox = self._inbox, deque()
        for peer, message in inbox:
            self.voters.note_heard(peer, self.journal.heard)  # before its message counts
            self._take(peer, message)
        if self._change is not None:
            self._change.append_if_due()
        if self._proposals.waiting and self._may_append:
            self._proposals.append()
        self._announce()
        if self._needs_tick():
            self._writer.sync_then(self._tick)
        else:
            self.core.send_heartbeat_if_due()
            self._release()

    def _needs_tick(self) -> bool:
        """Return whether a tick has work: to sync, commit, apply or begin an election. Most heartbeats need none."""
        now, snapshot_due_at = self._loop.time(), self._snapshots.due_at
        return (
            self.journal.dirty
            or self.core.needs_tick
            or bool(self._proposals.uncommitted)
            or (now >= self.election.deadline and self._stands())
            or (snapshot_due_at is not None and now >= snapshot_due_at)
        )

    def _tick(self) -> None:
        now = self._loop.time()
        is_behind = self.core.commit_index > self.core.applied_index
        if now >= self.election.deadline and not self._inbox and not is_behind and self._stands():
            self._ask_for_votes(now)
        self.core.tick()
        self._keep_commit_of_voters()
        self._log_committed_change()
        self._proposals.drop_committed()
        if self._change is not None:
            self._change.end_if_committed()
            self._change = None if self._change.committed.done() else self._change
        if self.core.is_removed:
            self.core.transfer_leadership()
            self.resign()
        if self.leading and not self.core.has_applied_own_term:
            self._announce()  # a loss is reported at once, a gain only once the term is durable
        self._snapshots.take_if_due(self.core.applied_index)
        self._writer.sync_then(self._release)

    def _keep_commit_of_voters(self) -> None:
        """Write the commit of a change of voters, so that a restart finds them again."""
        recorded = self.voters.recorded()
        if recorded != self._recorded:
            self._recorded = recorded
            self.journal.stage_commit()

    def _log_committed_change(self) -> None:
        """Log the newest change of the voters, on the leader that commits it."""
        index, record = self.journal.voters_index, self.voters.current
        if record is None or not self._logged_set < index <= self.core.commit_index:
            return
        self._logged_set = index
        change = record.changes[-1] if record.changes else None
        if self.core.is_leader and change is not None and change.kind in _CHANGES:
            log.info(_CHANGES[change.kind], node_id=self.node_id, voter_id=change.voter_id, by=change.by)

    def _release(self) -> None:
        outbox, self.core.outbox = self.core.outbox, []
        for peer, message in outbox:
            self.send(peer, message)
        if self.core.more_to_send:
            self.resume_sending()
        elif (
            self._inbox
            or (self._proposals.waiting and self._may_append)
            or (self._change is not None and self._change.is_due)
            or self._compact_to
            or self.core.commit_index > self.core.applied_index
        ):
            self._schedule()
        self._announce()
        self._arm()
        self.on_advance()

    @property
    def _may_append(self) -> bool:
        """Whether no change of the voters waits for the commit of all before it."""
        return self._change is None or not self._change.waits

    def _stands(self) -> bool:
        """Return whether this voter would lead if it could."""
        may_stand = self.voters.may_stand or self.core.completes_removal
        return not (self.core.is_leader or self.candidacy_stopped) and may_stand

    # -- input ---------------------------------------------------------------------------

    def _take(self, peer: int, message: Message) -> None:
        if isinstance(message, VoteGranted | TimeoutNow) and not (self.core.is_leader or self._stands()):
            return  # it asked for it before, or asks now
        if isinstance(message, PreVote):
            self._answer_pre_vote(peer, message)
            return
        if isinstance(message, PreVoteGranted):
            counts = self._stands() and peer in self.voters.peers
            if counts and self.election.on_pre_vote_granted(message.term, peer):
                self._stand()
            return
        deadline = self.core.on_message(peer, message)
        if deadline is not None:
            if isinstance(message, RequestVote):
                self.election.postpone(deadline)
            else:
                self.election.on_leader_message(self._loop.time(), deadline)
        if isinstance(message, SnapshotChunk) and message.term == self.core.term:
            self._take_chunk(peer, message)

    def _answer_pre_vote(self, peer: int, asked: PreVote) -> None:
        core, now = self.core, self._loop.time()
        if asked.term <= core.term:
            core.outbox.append((peer, HigherTerm(core.term)))
            return
        ours = (core.last_term, core.journal.last_index)
        if (
            core.is_leader
            or self.election.has_recent_leader(now)
            or (asked.last_term, asked.last_index) < ours
            or not core.may_grant(peer, asked)
            or ((asked.last_term, asked.last_index) == ours and not self.voters.yields_to(peer))
        ):
            return
        self.election.postpone_after_pre_vote(now)
        core.outbox.append((peer, PreVoteGranted(asked.term)))

    def _ask_for_votes(self, now: float) -> None:
        core = self.core
        needed = self.voters.votes_needed
        if self.election.begin_pre_vote(core.term + 1, self.node_id, now, needed=needed):
            self._stand()
            return
        question = core.term + 1, core.journal.last_index, core.last_term
        asked = [peer for peer in self.linked() if peer in self.voters.peers]
        core.outbox.extend((peer, PreVote(*question, *self.voters.claim(peer))) for peer in asked)

    def _stand(self) -> None:
        self.core.start_election()
        now, timing = self._loop.time(), self.election.timing
        self.election.postpone(now + self._env.random.uniform(timing.election_min / 2, timing.election_min))

    def _take_chunk(self, peer: int, chunk: SnapshotChunk) -> None:
        data = self._incoming.take(peer, chunk)
        if data is None:
            self.core.answer_snapshot(peer, None)
            return
        try:
            snapshot = decode_snapshot(data)
        except DamagedJournal as error:
            self.core.answer_snapshot(peer, None)
            log.warning("quorum_snapshot_rejected", node_id=self.node_id, peer_id=peer, reason=str(error))
            return
        is_new = self.core.applied_index < snapshot.end
        is_new = is_new and not self.core.has_entry(snapshot.end, snapshot.last[2])
        if is_new:
            self._announce()
            self._machine.restore(snapshot.state)
            self.core.install(snapshot)
        self.core.answer_snapshot(peer, snapshot.end)
        if is_new:
            log.info("quorum_snapshot_installed", node_id=self.node_id, index=snapshot.end, bytes=len(data))

    # -- leadership ----------------------------------------------------------------------

    def _announce(self) -> None:
        """Report a changed leader to the state machine."""
        core = self.core
        is_leader = core.is_leader
        if self._was_leader and not is_leader:
            self.election.on_step_down(self._loop.time())
        self._was_leader = is_leader
        leader = core.leader_id  # its own id while it leads
        if not is_leader and self.election.has_no_leader:
            leader = None
        current = (leader, core.term, core.has_applied_own_term)
        if current != self._announced:
            self._tell(*current)

    def _tell(self, leader: int | None, term: int, leading: bool) -> None:
        is_news = (leader, term) != self._announced[:2] and leader is not None
        if leading and not self.leading:
            self.led_since = self._loop.time()
        self._announced = (leader, term, leading)
        self._machine.leadership_changed(leader, term, leading)
        if is_news:
            log.info("quorum_leader_changed", node_id=self.node_id, leader_id=leader, term=term)

    # -- time ----------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have the loop wake us at the next deadline; an earlier timer re-arms itself."""
        target = self._wanted_at()
        if target is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_at <= target:
                return
            self._timer.cancel()
        self._timer_at = target
        self._timer = self._loop.call_at(timer_time(target), self._wake)

    def _wanted_at(self) -> float | None:
        if self.core.is_leader:
            # past, since the core reaches no deadline at equality; and a float that the timer does not exceed
            if not (self.voters.peers or self.linked()):
                return self._snapshots.due_at
            return timer_time(self.core.next_heartbeat_at + 0.001)
        return self.election.deadline if self._stands() else self._snapshots.due_at

    def _wake(self) -> None:
        now = self._loop.time()
        late = now - self._timer_at
        self._timer = None
        if late > STALL_SECONDS:
            self.election.on_loop_stall(late, now)
            self.core.reset_response_times(now - self.core.check_quorum_timeout_s() + STALL_SECONDS)
        wanted = self._wanted_at()
        if wanted is not None and now >= wanted and not self._writer.busy:
            self._guarded(self._deliver)
        if self._timer is None and not self._writer.busy:
            self._arm()

    # -- trouble ----------------------------------------------------------------------

    def _disk_full(self, error: OSError) -> None:
        """Stop sending until there is room again, so that the other voters elect; stop considering ourselves leader."""
        self._tell(None, self.core.term, False)
        log.error(_event_of(error), node_id=self.node_id, reason=str(error))

    def _disk_has_space(self, error: OSError) -> None:
        self.core.resign()
        log.info(f"{_event_of(error)}_ended", node_id=self.node_id)

    def _fail(self, error: BaseException) -> None:
        self._stopped = True
        self._writer.stop()
        self.failed = error
        if self._announced[2]:
            self._tell(None, self._announced[1], False)
        self.on_failure(error)
        log.error("quorum_failed", node_id=self.node_id, reason=describe(error), exc_info=error)

    def _snapshot_durable(self, index: int) -> None:
        self._compact_to = max(self._compact_to, index)
        self._schedule()


def _event_of(error: OSError) -> str:
    return "quorum_disk_full" if error.errno in DISK_FULL else "quorum_out_of_files"
