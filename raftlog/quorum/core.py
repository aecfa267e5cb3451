"""One voter's Raft core: PySyncObj's, behind filters for its faults.

It decides terms, votes, replication and commit; it must not know sockets, files or the event loop. Messages go in by
`on_message` and come out in `outbox`. No message of the outbox may leave before the entries that `journal` staged are
durable. `tick` may run only while none is staged, since it counts this node's own log towards a commit.

Each filter says what it drops, and why.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Final

from raftlog.base.env import shared_time
from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger
from raftlog.quorum.election import Timing
from raftlog.quorum.journal import Journal
from raftlog.quorum.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HigherTerm,
    Message,
    MessageSizes,
    PreVote,
    RequestVote,
    SnapshotChunk,
    TimeoutNow,
    VoteGranted,
)
from raftlog.quorum.pysyncobj_adapter import PySyncObjAdapter
from raftlog.quorum.snapshot import Snapshot
from raftlog.quorum.snapshot_sender import SnapshotCursor
from raftlog.quorum.voter_set import VoterSet
from raftlog.quorum.wal import COMMAND_PREFIX, MAX_COMMAND_BYTES, Entry

log = get_logger("quorum")

ROUND_BYTES: Final = 8 * 1024 * 1024
"""Bytes that a voter is sent in one round; more follows once its link is writable."""

MAX_ENTRIES: Final = 1_000
"""The maximum number of entries in an append_entries message."""

_NEVER: Final = float("inf")
_NOW: Final = -1.0


def _in_place(entry: Entry, index: int) -> bool:
    return entry[1] == index and len(entry[0]) <= MAX_COMMAND_BYTES


class RaftSafetyViolation(Exception):
    """Raft's promises are broken: this process must stop rather than go on."""


class RaftCore(PySyncObjAdapter):
    """One voter's Raft state. `apply(command)` is called once per committed command, in order.

    `snapshot(first_index)` returns a snapshot that reaches a log beginning there, or None for now.
    """

    def __init__(
        self,
        node_id: int,
        peers: Iterable[int],
        *,
        journal: Journal,
        apply: Callable[[bytes], None],
        snapshot: Callable[[int], SnapshotCursor | None],
        chance: random.Random,
        now: Callable[[], float],
        timing: Timing,
        lateness: Lateness | None = None,
        sizes: MessageSizes = MessageSizes(),  # noqa: B008 (immutable)
        voters: VoterSet | None = None,
    ) -> None:
        self.node_id = node_id
        peers = tuple(peers)
        self.voters = voters or VoterSet(node_id, peers)
        self.outbox: list[tuple[int, Message]] = []
        self.can_send: Callable[[int], bool] = lambda _peer: True
        """Whether a voter's link is writable; the network calls `Driver.resume_sending` when it is again."""
        self.more_to_send = False
        """Whether the last round left entries for the next round."""
        self.apply_command = apply
        self._snapshot = snapshot
        self._sizes = sizes
        self._uncounted: dict[int, int] = {}
        """Up to where the logs match, for nodes with answers that do not count."""
        self._uncounted_at: dict[int, float] = {}
        """When they last answered."""
        self._caught_up_at: dict[int, float] = {}
        """When each node last had the whole log, as far as its answers to this leader show."""
        self._end_at_answer: dict[int, tuple[int, float]] = {}
        """The log's last index at the last answer of each node, and the time."""
        self._pieces: dict[int, SnapshotCursor] = {}
        """Snapshots that are being sent, by voter."""
        self._lateness = lateness or Lateness()
        self._truncation_allowed = False
        self._voters_heard: set[int] = set()
        self._sent = (0, 0)
        self._send_again = False
        self._answered: dict[int, tuple[AppendEntriesResponse, float]] = {}
        """The newest answer to each voter on its link, and when it left."""
        super().__init__(node_id, peers, journal=journal, timing=timing, chance=chance, now=now)
        self.set_voters(peers, votes=self.voters.is_voter)  # the newest set may lack this node
        self.election_deadline = _NEVER
        if journal.snapshot is not None:
            self._stand_on(journal.snapshot)

    # -- reading -------------------------------------------------------------------------

    @property
    def last_term(self) -> int:
        """The term of the log's last entry; a log is never empty."""
        return self.journal[-1][2]  # type: ignore[no-any-return]

    def match_index(self, peer: int) -> int:
        """Return the last entry that the peer is known to have, 0 if unknown. Leaders only."""
        return max(self.match_indexes.get(self.node(peer), 0), self._uncounted.get(peer, 0))

    def last_response_at(self, peer: int) -> float | None:
        """Return when the peer last answered. Leaders only."""
        times = (self.response_times.get(self.node(peer)), self._uncounted_at.get(peer))
        return max((each for each in times if each is not None), default=None)

    def caught_up_at(self, peer: int) -> float | None:
        """Return when the peer last had the whole log; None if it has not had it under this leader. Leaders only."""
        return self._caught_up_at.get(peer)

    # -- driving -------------------------------------------------------------------------

    @property
    def needs_tick(self) -> bool:
        """Whether a tick now would begin an election, commit, apply, step down or send any entry."""
        if (
            self.commit_index != self.applied_index
            or self.election_deadline != _NEVER
            or self._send_again
            or self.more_to_send
        ):
            return True
        if not self.is_leader:
            return bool(self._pieces)
        last_index = self.journal.last_index
        return (
            self.commit_index != last_index
            or self._sent != (last_index, last_index)
            or (self._heartbeat_is_due and not self._has_recent_majority())
        )

    @property
    def _heartbeat_is_due(self) -> bool:
        return self._now() > self.next_heartbeat_at

    def _has_recent_majority(self) -> bool:
        """Return whether all voters answered so recently that a tick would count a majority, so this leader stays."""
        return (
            min(self.response_times.values(), default=_NEVER)
            > self._now() - self._timing.check_quorum_timeout
        )

    def send_heartbeat_if_due(self) -> None:
        """Send a due heartbeat of a leader that needs no tick."""
        if self.is_leader and self._heartbeat_is_due:
            self.send_append_entries()

    def tick(self) -> None:
        """Elect, commit, apply, send heartbeats, as due. Only when the journal has no staged work."""
        assert not self.journal.dirty
        self.run_tick(self.check_quorum_timeout_s())
        self.election_deadline = _NEVER  # elections begin by us or by TimeoutNow, never by time
        if not self.is_leader:
            self._pieces.clear()
            self.more_to_send = self._send_again = False
            return
        moved = (self.journal.last_index, self.commit_index)
        if moved != self._sent or self._send_again:
            self._sent, self._send_again = moved, False
            self.send_append_entries()

    def check_quorum_timeout_s(self) -> float:
        """Return how long a leader stays without answers of a majority: longer if it or the voters may only be slow."""
        if not self.hasQuorum:
            return self._timing.check_quorum_timeout
        return self._timing.linked_check_quorum_timeout + self._lateness.patience_s

    def request_resend(self) -> None:
        """Have the next tick send every voter what it lacks: a link is writable again, or a snapshot was read."""
        self._send_again = True

    def propose(self, command: bytes) -> None:
        """Append a command; leaders only."""
        assert self.is_leader and len(command) < MAX_COMMAND_BYTES
        self.journal.add(COMMAND_PREFIX + command, self.journal.last_index + 1, self.term)

    def propose_voters(self, command: bytes) -> int:
        """Append a set of voters, encoded, which is in force from now on; return its index. Leaders only.

        All entries are committed: the former set, and an entry of this term. Otherwise two sets without a common
        majority could be in force (the erratum of 2015 to the Raft thesis).
        """
        assert self.is_leader and self.commit_index == self.journal.last_index
        index = self.journal.last_index + 1
        self.journal.add(command, index, self.term)
        return index

    @property
    def is_removed(self) -> bool:
        """Whether it leads, and the set without it is committed."""
        committed = self.commit_index >= self.journal.voters_index
        return self.is_leader and not self.voters.is_voter and committed

    @property
    def completes_removal(self) -> bool:
        """Whether it must still lead to commit its own removal, which no other voter may have (Raft thesis §4.2.2)."""
        former, voters = self.journal.former_voters, self.voters
        if former is None or voters.is_voter or self.journal.voters_index <= self.commit_index:
            return False
        return any(each.key == (self.node_id, voters.directory_id.bytes) for each in former.voters)

    def follow_voters(self) -> None:
        """Count by the newest set of voters in the log."""
        matches = {peer: self.match_index(peer) for peer in self._nodes}
        self.set_voters(self.voters.peers, votes=self.voters.is_voter)
        if not self.is_leader:
            return
        for peer, match in matches.items():
            counts = self.voters.counts(peer)
            self.match_indexes[self._nodes[peer]] = match if counts else 0
            self._uncounted[peer] = 0 if counts else match
        self._send_again = True

    def start_election(self) -> None:
        """Begin an election at the next tick."""
        self._forget_answers()
        self.election_deadline = _NOW

    def _forget_answers(self) -> None:
        """Forget what the answers in former terms said; the core knows only of voters."""
        self._voters_heard.clear()
        self._uncounted.clear()
        self._uncounted_at.clear()
        self._caught_up_at.clear()
        self._end_at_answer.clear()
        for peer, node in self._nodes.items():
            if peer not in self.voters.peers:
                self.next_indexes.pop(node, None)
                self.match_indexes.pop(node, None)

    def connected(self, peer: int) -> None:
        """Begin anew with a peer whose link is up. Its log is unknown until it answers: it may have lost its disk."""
        super().connected(peer)
        self._pieces.pop(peer, None)
        self._answered.pop(peer, None)
        self._uncounted.pop(peer, None)
        self._uncounted_at.pop(peer, None)
        if self.is_leader:
            self.match_indexes[self._nodes[peer]] = 0
            self.next_indexes[self._nodes[peer]] = self.journal.last_index + 1
            self._send_again = True

    def disconnected(self, peer: int) -> None:
        super().disconnected(peer)
        self._pieces.pop(peer, None)

    def reset_response_times(self, since: float) -> None:
        """Count every peer as having answered no earlier than `since`, after a stall of our own loop."""
        for node, answered_at in self.response_times.items():
            if answered_at > -_NEVER:
                self.response_times[node] = max(answered_at, since)

    def transfer_leadership(self) -> bool:
        """Ask the most caught-up follower to stand at once; False if none is fully caught up."""
        accepted: list[int] = []
        self.transferLeadership(None, lambda _result, reason: accepted.append(reason))
        return accepted == [0]

    # -- inbound -------------------------------------------------------------------------

    def on_message(self, peer: int, message: Message) -> float | None:
        """Handle one message; return the core's new election deadline if the message moved it.

        Raise RaftSafetyViolation.
        """
        if isinstance(message, AppendEntries | SnapshotChunk) and message.term < self.term:
            # the core would be silent, and the old leader stay
            self.outbox.append((peer, HigherTerm(self.term)))
        elif isinstance(message, AppendEntries):
            self._on_append_entries(peer, message)
        elif isinstance(message, AppendEntriesResponse):
            self._on_next_index(peer, message)
        elif isinstance(message, RequestVote):
            self._on_request_vote(peer, message)
        elif isinstance(message, VoteGranted):
            self._on_vote(peer, message.term)
        elif isinstance(message, TimeoutNow):
            self.receive(peer, type="timeout_now", term=message.term)
        elif isinstance(message, HigherTerm):
            self.step_down(message.term)
        elif isinstance(message, SnapshotChunk):
            # a heartbeat too; its commit index would cover an unverified tail
            self.receive(peer, type="append_entries", term=message.term, commit_index=0)
        deadline = self.election_deadline
        if deadline <= 0 or deadline == _NEVER:  # 0 is TimeoutNow's, _NOW ours: both are for the next tick
            return None
        self.election_deadline = _NEVER
        return deadline

    def step_down(self, term: int) -> None:
        """Move to a higher term without voting in it, after a vote request with a log too old to be granted."""
        if term > self.term:
            node = next(iter(self._nodes.values()))
            self.receive(node.id, type="request_vote", term=term, last_log_index=0, last_log_term=-1)

    def has_entry(self, index: int, term: int) -> bool:
        return self.journal.entry_term(index) == term

    def _on_request_vote(self, peer: int, asked: RequestVote) -> None:
        if not self.may_grant(peer, asked):
            self.step_down(asked.term)
            return
        term, last_index, last_term = asked.term, asked.last_index, asked.last_term
        self.receive(peer, type="request_vote", term=term, last_log_index=last_index, last_log_term=last_term)

    def may_grant(self, peer: int, asked: RequestVote | PreVote) -> bool:
        """Return whether this voter may grant a vote, regardless of terms and logs."""
        return self.voters.may_grant(peer, asked, has_log=self.journal.last_index > 1)

    def _on_vote(self, peer: int, term: int) -> None:
        """Pass each vote on once, and only when they suffice: PySyncObj counts votes without remembering the voter."""
        if term != self.term or peer in self._voters_heard or peer not in self.voters.peers:
            return
        self._voters_heard.add(peer)
        self.voters.note_vote(peer)
        if len(self._voters_heard) + 1 >= self.voters.votes_needed:
            for each in sorted(self._voters_heard):
                self.receive(each, type="response_vote", term=term)

    def _on_append_entries(self, peer: int, message: AppendEntries) -> None:
        """Pass on new entries only: PySyncObj truncates after `prev_index` even if what follows matches.

        The leader's commit index is about its own log: ours is known to match no further than this message.
        """
        previous, previous_term, entries = message.prev_index, message.prev_term, message.entries
        end = previous + len(entries)
        if not all(map(_in_place, entries, range(previous + 1, end + 1))):
            log.warning(
                "quorum_message_dropped", node_id=self.node_id, peer_id=peer, reason="entries out of place"
            )
            return
        if self.has_entry(previous, previous_term):
            held = self._held(entries)
            if held:
                _, previous, previous_term = entries[held - 1]
                entries = entries[held:]
        self._truncation_allowed = bool(entries)
        waiting = len(self.outbox)
        self.receive(
            peer,
            type="append_entries",
            term=message.term,
            commit_index=min(message.commit_index, end),
            entries=entries,
            prevLogIdx=previous,
            prevLogTerm=previous_term,
        )
        self._truncation_allowed = False
        if not message.entries and len(self.outbox) > waiting:
            self._drop_repeated_answer(peer)

    def _drop_repeated_answer(self, peer: int) -> None:
        """Drop three of four unchanged heartbeat answers: a leader needs only one answer a second (`Timing`)."""
        answer, now = self.outbox[-1][1], self._now()
        if not isinstance(answer, AppendEntriesResponse) or not answer.success:
            self._answered.pop(peer, None)  # the leader asks again because of it, and needs an answer
            return
        before, answered_at = self._answered.get(peer, (None, 0.0))
        if answer == before and now < answered_at + 3.5 * self._timing.heartbeat:
            self.outbox.pop()
        else:
            self._answered[peer] = (answer, now)

    def _held(self, entries: list[Entry]) -> int:
        """Return how many of the first entries the log holds already."""
        for position, (_, index, term) in enumerate(entries):
            if not self.has_entry(index, term):
                return position
        return len(entries)

    def truncate_from(self, index: int) -> None:
        if not self._truncation_allowed:
            return
        if index <= self.applied_index:
            raise RaftSafetyViolation(
                f"entry {index} is applied and a leader of term {self.term} wants it gone"
            )
        self.journal.truncate_from(index)

    def _on_next_index(self, peer: int, message: AppendEntriesResponse) -> None:
        """Replies carry a term, which the core's lack; a late reset must not undo a known match."""
        if message.term > self.term:
            self.step_down(message.term)
        if message.term != self.term or not self.is_leader:
            return
        if not self.voters.counts(peer):
            self._on_uncounted(peer, message)
            return
        node, next_indexes = self._nodes[peer], self.next_indexes
        next_index = min(message.next_index, self.journal.last_index + 1)
        if message.reset:
            next_index = max(next_index, self.match_indexes[node] + 1)
            self._send_again = True
        sent_below = next_indexes[node]
        self.receive(
            peer,
            type="next_node_idx",
            next_node_idx=next_index,
            reset=message.reset,
            success=message.success,
        )
        if not message.reset:  # entries that were sent need not be sent again
            next_indexes[node] = max(sent_below, next_indexes[node])
        self._note_position(peer)

    def _note_position(self, peer: int) -> None:
        """Note when a node last had the whole log, by Kafka's rule (KIP-836).

        Under load an answer is always behind, so the log's end at the answer before counts, too.
        """
        now, end, match = self._now(), self.journal.last_index, self.match_index(peer)
        end_before, answered_at = self._end_at_answer.get(peer, (end, now))
        if match >= end:
            self._caught_up_at[peer] = now
        elif match >= end_before:
            self._caught_up_at[peer] = answered_at
        self._end_at_answer[peer] = end, now

    def _on_uncounted(self, peer: int, message: AppendEntriesResponse) -> None:
        """Catch up a voter with answers that do not count yet; the core does not see them."""
        node, last_index = self._nodes[peer], self.journal.last_index
        self._uncounted_at[peer] = self._now()
        next_index = min(message.next_index, last_index + 1)
        if message.success:
            self._uncounted[peer] = max(self._uncounted.get(peer, 0), next_index - 1)
            self.next_indexes[node] = max(self.next_indexes.get(node, 0), next_index)
        elif message.reset:
            self.next_indexes[node] = max(next_index, self._uncounted.get(peer, 0) + 1)
            self._send_again = True
        self._note_position(peer)

    # -- snapshots -----------------------------------------------------------------------

    def answer_snapshot(self, peer: int, index: int | None) -> None:
        """Answer the leader that we hold all up to `index`, or (None) only that we are alive."""
        next_index = 0 if index is None else index + 1
        self.outbox.append((peer, AppendEntriesResponse(self.term, next_index, False, index is not None)))

    def install(self, snapshot: Snapshot) -> None:
        """Replace the log by a snapshot that is ahead of it; the state machine was restored from it."""
        assert snapshot.end > self.commit_index
        self.journal.install(snapshot)
        self._stand_on(snapshot)

    def _stand_on(self, snapshot: Snapshot) -> None:
        self.applied_index = snapshot.end
        self.commit_index = max(self.commit_index, snapshot.end)
        self.journal.setRaftCommitIndex(self.commit_index)

    # -- sending what others lack --------------------------------------------------------

    def send_append_entries(self) -> None:
        """Send each linked voter the entries that it lacks, or a heartbeat.

        The core's own loop would put all of them into the link's buffer at once, even a snapshot of any size.
        """
        # a little before, since the core sends once it is past
        self.next_heartbeat_at = shared_time(self._now(), self._timing.heartbeat) - 0.001
        self.more_to_send = False
        for peer, node in self._nodes.items():
            if self.isNodeConnected(node) and self.can_send(peer):
                self.next_indexes.setdefault(node, self.journal.last_index)  # of a node that does not vote
                self.more_to_send |= self._send_round(peer)

    def _send_round(self, peer: int) -> bool:
        """Send a voter up to `ROUND_BYTES`; returns whether more is to follow."""
        node, sent = self._nodes[peer], 0
        while sent < ROUND_BYTES:
            if self.next_indexes[node] > self.journal.first_index:
                sent += self._send_entries(peer)
            elif (size := self._send_piece(peer)) is not None:
                sent += size
            else:
                return False
            if self.next_indexes[node] > self.journal.last_index:
                return False
        return True

    def _send_entries(self, peer: int) -> int:
        """Send a voter the next batch of entries; return its bytes."""
        node = self._nodes[peer]
        start = self.next_indexes[node]
        entries: list[Entry] = []
        size = 0
        for entry in self.journal.entries(start, min(start + MAX_ENTRIES, self.journal.last_index + 1)):
            entries.append(entry)
            size += len(entry[0])
            if size > self._sizes.batch_bytes:
                break
        self.next_indexes[node] = start + len(entries)
        previous_term = self.journal.entry_term(start - 1)
        assert previous_term is not None
        message = AppendEntries(self.term, self.commit_index, start - 1, previous_term, entries)
        self.outbox.append((peer, message))
        return size

    def _send_piece(self, peer: int) -> int | None:
        """Send the next piece of a snapshot; return its bytes. If there is no snapshot yet, send a sign of life and
        return None.
        """
        pieces = self._pieces.get(peer) or self._snapshot(self.journal.first_index)
        if pieces is None:
            self.outbox.append((peer, SnapshotChunk(self.term, 0, 0, 0, b"")))
            return None
        self._pieces[peer] = pieces
        snapshot = pieces.snapshot
        start, data = pieces.next_chunk(self._sizes.chunk_bytes)
        self.outbox.append((peer, SnapshotChunk(self.term, snapshot.index, len(snapshot.data), start, data)))
        if pieces.at_end:
            del self._pieces[peer]
            self.next_indexes[self._nodes[peer]] = snapshot.index + 1
        return len(data)

    # -- what the core calls -------------------------------------------------------------

    def send(self, peer: int, message: dict[str, Any]) -> None:
        self.outbox.append((peer, self._outbound(peer, message)))

    def _outbound(self, peer: int, message: dict[str, Any]) -> Message:
        kind = message["type"]
        if kind == "next_node_idx":
            return self._outbound_next_index(message)
        if kind == "request_vote":
            self._forget_answers()
            term, last_index, last_term = (
                message[each] for each in ("term", "last_log_index", "last_log_term")
            )
            return RequestVote(term, last_index, last_term, *self.voters.claim(peer))
        if kind == "response_vote":
            return VoteGranted(message["term"])
        assert kind == "timeout_now", kind
        return TimeoutNow(message["term"])

    def _outbound_next_index(self, message: dict[str, Any]) -> Message:
        """Two of the core's resets undo each other: always fall back to the last certain match."""
        next_index = message["next_node_idx"]
        if message["reset"]:
            next_index = min(next_index, max(self.commit_index, self.applied_index) + 1)
        return AppendEntriesResponse(self.term, next_index, message["reset"], message["success"])
