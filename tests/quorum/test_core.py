"""Each guard around PySyncObj's core, by the message that would break it without the guard."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.quorum import core
from raftlog.quorum.core import RaftSafetyViolation
from raftlog.quorum.election import Timing
from raftlog.quorum.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HigherTerm,
    Message,
    MessageSizes,
    RequestVote,
    SnapshotChunk,
    TimeoutNow,
    VoteGranted,
    decode_message,
    encode_message,
)
from tests.kit.slowness import make_slow
from tests.quorum.single_voter import NOOP, SingleVoter, append, entries, exchange


def test_a_late_message_cuts_nothing_that_was_acknowledged() -> None:
    """PySyncObj drops all after `prevLogIdx`, matching or not: 41 acknowledged entries in one interleaving."""
    node = SingleVoter()
    whole, early = append(1, 1, 0, entries(2, 9, 1)), append(1, 1, 0, entries(2, 4, 1))
    node.step(2, whole)
    node.step(2, early)
    node.step(2, append(1, 1, 0, []))
    assert [entry[1] for entry in node.log] == list(range(1, 10))
    assert node.restarted().log == node.log


def test_the_core_does_not_cry_of_truncations_that_are_filtered(caplog: pytest.LogCaptureFixture) -> None:
    """It says that applied entries are truncated, at level critical, before our filter declines to do so."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 9, 1), commit=9))
    node.step(2, append(1, 1, 0, entries(2, 4, 1), commit=9))
    assert len(node.applied) == 8
    assert not caplog.records


def test_every_fourth_heartbeat_that_changes_nothing_is_answered() -> None:
    """A leader needs an answer in a second, not in each tenth of it; a new link or new entries are answered at once."""
    node = SingleVoter()

    def is_answered(message: AppendEntries) -> bool:
        node.now += Timing().heartbeat
        return bool(node.step(2, message))

    heartbeat = append(1, 1, 0, [])
    assert [is_answered(heartbeat) for _ in range(6)] == [True, False, False, False, True, False]
    node.core.connected(2)
    assert is_answered(heartbeat), "the leader knows nothing of a log behind a new link"
    assert is_answered(append(1, 1, 0, entries(2, 2, 1))), "what is new"
    assert is_answered(append(1, 2, 1, [])), "another position"
    assert is_answered(append(1, 9, 1, [])) and is_answered(append(1, 9, 1, [])), "what does not match"


def test_a_heartbeats_answer_needs_no_tick_and_a_commit_does() -> None:
    """A round of commits, syncs and sends is for what changes something."""
    leader = SingleVoter().elect()
    core, last = leader.core, leader.core.journal.last_index
    core.on_message(2, AppendEntriesResponse(core.term, last + 1, reset=False, success=True))
    assert core.needs_tick, "the majority has the entry"
    leader.step()
    core.on_message(3, AppendEntriesResponse(core.term, last + 1, reset=False, success=True))
    core.on_message(2, AppendEntriesResponse(core.term, last + 1, reset=False, success=True))
    assert not core.needs_tick


def test_a_voter_that_follows_under_load_is_caught_up_as_of_its_answer_before() -> None:
    """KIP-836: it is always a few entries behind, and has each time what was the whole log a moment before."""
    leader = SingleVoter().elect()
    core, first = leader.core, leader.core.journal.last_index

    def answer(match: int, at: float) -> float | None:
        leader.now = at
        core.on_message(2, AppendEntriesResponse(core.term, match + 1, reset=False, success=True))
        return core.caught_up_at(2)

    assert core.caught_up_at(2) is None
    begin = leader.now
    assert answer(first, begin + 1) == begin + 1
    core.propose(b"one")
    assert answer(first, begin + 2) == begin + 1
    core.propose(b"two")
    assert answer(first + 1, begin + 3) == begin + 2
    assert answer(first + 1, begin + 4) == begin + 2, (
        "the whole log has an entry more since the answer before"
    )
    assert answer(first + 2, begin + 5) == begin + 5


def test_a_leader_with_all_answers_sends_its_heartbeat_without_a_tick() -> None:
    """A tick counts the voters that answered within the time after which it steps down, and has no other work."""
    leader = SingleVoter().elect()
    core, last = leader.core, leader.core.journal.last_index
    answer = AppendEntriesResponse(core.term, last + 1, reset=False, success=True)
    leader.step(2, answer), leader.step(3, answer)
    leader.step(), core.outbox.clear()
    core.send_heartbeat_if_due()
    assert not core.outbox
    leader.now += Timing().check_quorum_timeout - 0.001
    assert not core.needs_tick
    core.send_heartbeat_if_due()
    assert [peer for peer, _ in core.outbox] == [2, 3]
    leader.now = core.next_heartbeat_at + 0.001
    core.on_message(2, answer)
    assert core.needs_tick, "the other one's answer is too old"


def test_a_late_message_is_answered_with_what_it_proves() -> None:
    """The answer to an early message claims no more than that message reached."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 9, 1)))
    assert node.step(2, append(1, 1, 0, entries(2, 4, 1))) == [(2, AppendEntriesResponse(1, 5, False, True))]


def test_only_what_follows_a_conflict_is_cut() -> None:
    """Raft §5.3: an entry that conflicts goes, and all after it; what matches stays."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 6, 1, b"old")))
    node.step(2, append(2, 1, 0, [*entries(2, 3, 1, b"old"), *entries(4, 5, 2, b"new")]))
    assert node.log[1:] == [*entries(2, 3, 1, b"old"), *entries(4, 5, 2, b"new")]
    assert node.restarted().log == node.log


def test_an_applied_entry_is_never_cut() -> None:
    """State machine safety: rather stop than take back what was applied."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 6, 1), commit=5))
    assert len(node.applied) == 4
    with pytest.raises(RaftSafetyViolation):
        node.step(2, append(2, 3, 1, entries(4, 4, 2)))


def test_a_commit_index_covers_only_what_the_message_verified() -> None:
    """A tail from an older leader must not be committed by a newer leader's heartbeat."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 9, 1, b"stale")))
    node.step(3, append(2, 4, 1, [], commit=9))
    assert node.core.commit_index == 4
    assert len(node.applied) == 3


def test_a_snapshot_chunk_commits_nothing() -> None:
    """PySyncObj advances the commit index over an unverified tail on every chunk: false SUCCESS, divergence."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 9, 1, b"stale")))
    node.step(3, SnapshotChunk(2, 100, 2_000_000, 0, b"x" * 1000))
    assert node.core.commit_index == 1 and node.applied == []
    assert node.core.leader_id == 3 and node.core.term == 2


def test_entries_out_of_place_are_dropped() -> None:
    """A message with entries that do not follow `prev` is invalid."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(3, 4, 1)))
    assert node.log == [(NOOP, 1, 0)]


def test_a_divergent_tail_of_more_than_one_batch_is_replaced() -> None:
    """PySyncObj's two resets undo each other, and such a node never catches up."""
    sizes = MessageSizes(batch_bytes=20)
    leader, follower = SingleVoter(1, (2, 3), sizes=sizes), SingleVoter(2, (1, 3), sizes=sizes)
    follower.step(1, append(1, 1, 0, entries(2, 60, 1, b"lost")))
    leader.step(3, append(2, 1, 0, entries(2, 40, 2, b"kept")))
    leader.elect()
    leader.core.connected(2)
    assert exchange(leader, follower, 30) < 30
    assert follower.restarted().log == leader.log


@pytest.mark.parametrize("committed", [1, 7])
def test_a_reset_falls_back_to_what_is_certain(committed: int) -> None:
    """Everything committed matches any later leader's log, so one step back is enough."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 9, 1), commit=committed))
    for previous, term in ((50, 9), (9, 5)):
        answer = node.step(3, append(9, previous, term, []))[0][1]
        assert answer == AppendEntriesResponse(9, committed + 1, True, False)


def test_a_late_reset_does_not_undo_what_is_known_to_match() -> None:
    """A reset that was under way while the follower caught up would send everything again."""
    node = SingleVoter().elect()
    last = node.core.journal.last_index
    node.step(2, AppendEntriesResponse(1, last + 1, False, True))
    sent = [message for peer, message in node.step(2, AppendEntriesResponse(1, 2, True, False)) if peer == 2]
    assert node.core.match_index(2) == last
    assert isinstance(sent[0], AppendEntries) and sent[0].entries == []


def test_an_answer_of_another_term_counts_for_nothing() -> None:
    """PySyncObj's responses carry no term: a response from before could raise a match index falsely."""
    node = SingleVoter().elect()
    node.core.propose(b"x")
    node.step()
    node.step(2, AppendEntriesResponse(0, node.core.journal.last_index + 1, False, True))
    assert node.core.match_index(2) == 0 and node.core.commit_index == 1
    node.step(2, AppendEntriesResponse(node.core.term + 3, 9, False, True))
    assert not node.core.is_leader and node.core.term == 4


def test_a_peer_that_reconnects_has_matched_nothing_yet() -> None:
    """It may have come back with another disk."""
    node = SingleVoter().elect()
    node.step(2, AppendEntriesResponse(1, 3, False, True))
    assert node.core.match_index(2) == 2
    node.core.disconnected(2)
    node.core.connected(2)
    assert node.core.match_index(2) == 0


def test_one_voter_is_one_vote() -> None:
    """PySyncObj counts votes without remembering the voter: a repeated vote would make a majority of five."""
    node = SingleVoter(1, (2, 3, 4, 5))
    node.core.start_election()
    node.step()
    for _ in range(3):
        node.step(2, VoteGranted(1))
    assert not node.core.is_leader
    node.step(3, VoteGranted(1))
    assert node.core.is_leader


def test_a_vote_is_given_once_a_term_also_after_power_loss() -> None:
    """Raft §5.2: term and vote are durable before the answer leaves (#202)."""
    node = SingleVoter()
    assert node.step(2, RequestVote(5, 1, 0)) == [(2, VoteGranted(5))]
    again = node.restarted()
    assert again.core.term == 5
    assert again.step(3, RequestVote(5, 9, 4)) == []
    assert again.step(3, RequestVote(6, 9, 4)) == [(3, VoteGranted(6))]


def test_a_candidate_that_lost_power_does_not_stand_twice_in_one_term() -> None:
    """Its own vote is a vote."""
    node = SingleVoter()
    node.core.start_election()
    assert node.step()[0][1] == RequestVote(1, 1, 0)
    again = node.restarted()
    assert again.step(2, RequestVote(1, 9, 0)) == []
    again.core.start_election()
    assert again.step()[0][1] == RequestVote(2, 1, 0)


def test_an_old_leader_learns_that_its_term_is_over() -> None:
    """PySyncObj ignores it in silence, and it would believe until its fallback time is over."""
    node = SingleVoter()
    node.step(3, append(7, 1, 0, []))
    assert node.step(2, append(5, 1, 0, [])) == [(2, HigherTerm(7))]
    assert node.step(2, SnapshotChunk(5, 9, 9, 0, b"x")) == [(2, HigherTerm(7))]
    old = SingleVoter().elect()
    old.step(2, HigherTerm(7))
    assert not old.core.is_leader and old.core.term == 7
    assert old.core.journal.getVotedForNodeId() is None


@pytest.mark.parametrize(("linked", "seconds"), [(False, 1.0), (True, 1.6)], ids=["links lost", "silence"])
def test_a_leader_without_a_majority_steps_down(linked: bool, seconds: float) -> None:
    """PySyncObj's default lets it believe for 30 s; reads and answers rely on no lease all the same.

    Followers that keep their links may only be slow: they have longer.
    """
    node = SingleVoter().elect()
    for peer in () if linked else (2, 3):
        node.core.disconnected(peer)
    node.now += seconds - 0.1
    node.step()
    assert node.core.is_leader
    node.now += 0.2
    node.step()
    assert not node.core.is_leader and node.core.leader_id is None


def test_a_slow_leader_waits_longer_for_answers() -> None:
    """It reads them late, and must not step down for that."""
    node = SingleVoter().elect()
    make_slow(node.core._lateness, 0.9, node.now)
    node.now += 3.0
    node.step()
    assert node.core.is_leader
    node.now += 1.0
    node.step()
    assert not node.core.is_leader


def test_a_stall_of_our_own_is_not_held_against_the_peers() -> None:
    """After a pause of this process the answers lie unread in the sockets."""
    node = SingleVoter().elect()
    node.now += 5
    node.core.reset_response_times(node.now - 0.9)
    node.step()
    assert node.core.is_leader


def test_nothing_commits_before_it_is_durable_here() -> None:
    """The core counts itself: it may tick only when no entry is staged."""
    node = SingleVoter(1, ())
    node.core.start_election()
    node.step()
    node.core.propose(b"x")
    with pytest.raises(AssertionError):
        node.core.tick()
    node.step()
    assert node.applied == [b"x"]


def test_only_entries_of_its_own_term_commit_by_counting() -> None:
    """Raft §5.4.2, figure 8."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 4, 1)))
    node.elect()
    node.step(2, AppendEntriesResponse(node.core.term, 5, False, True))
    assert node.core.commit_index == 1
    node.step(2, AppendEntriesResponse(node.core.term, 6, False, True))
    assert node.core.commit_index == 5 and node.core.has_applied_own_term


def test_a_raising_state_machine_stops_and_applies_nothing_twice() -> None:
    """A failed apply must not be retried, skipped or half counted."""
    node = SingleVoter()

    def fail(_command: bytes) -> None:
        node.applied.append(b"tried")
        raise RuntimeError("cannot")

    node.core.apply_command = fail
    with pytest.raises(RuntimeError):
        node.step(2, append(1, 1, 0, entries(2, 3, 1), commit=3))
    assert node.applied == [b"tried"] and node.core.applied_index == 1


class Bomb:
    """Its pickle raises when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("kind", [b"\x01", b"\x02", b"\x03"])
def test_no_command_is_ever_unpickled(kind: bytes) -> None:
    """PySyncObj would unpickle its own membership and version commands; here they have no effect (code execution
    proven).
    """
    node = SingleVoter()
    node.step(2, append(1, 1, 0, [(kind + pickle.dumps(Bomb()), 2, 1)], commit=2))
    assert node.core.applied_index == 2 and node.applied == []


def test_a_transfer_has_the_other_stand_at_once() -> None:
    """Leadership transfer (thesis §3.10), only to a voter that is caught up, only from the leader."""
    leader, target = SingleVoter(1, (2, 3)).elect(), SingleVoter(2, (1, 3))
    assert not leader.core.transfer_leadership()
    exchange(leader, target, 5)
    leader.step(2, *[message for peer, message in target.step() if peer == 1])
    leader.step(2, AppendEntriesResponse(1, leader.core.journal.last_index + 1, False, True))
    assert leader.core.transfer_leadership()
    order = next(message for peer, message in leader.step() if peer == 2)
    assert order == TimeoutNow(1)
    assert not any(isinstance(message, RequestVote) for _, message in target.step(3, order))
    assert (3, RequestVote(2, 2, 1)) in target.step(1, order)


def test_a_transfer_that_began_no_election_is_over_with_its_tick() -> None:
    """A voter without links cannot stand. PySyncObj would then ignore heartbeats of that term and later terms, so that
    this node looked for its leader for ever.
    """
    voter = SingleVoter(2, (1, 3))
    voter.step(1, append(1, 1, 0, entries(2, 3, 1)))
    for peer in (1, 3):
        voter.core.disconnected(peer)
    voter.step(1, TimeoutNow(1))
    assert voter.core.term == 1
    for peer in (1, 3):
        voter.core.connected(peer)
    assert voter.core.on_message(1, append(1, 3, 1, [])) is not None


def test_an_election_needs_to_be_begun() -> None:
    """The core's own deadline never fires: when to stand is decided with a pre-vote."""
    node = SingleVoter()
    node.now += 1_000
    assert node.step() == [] and node.core.term == 0


def message_strategy() -> st.SearchStrategy[Message]:
    """Messages with numbers near those of a small log, and some far away."""
    number = st.integers(0, 6) | st.sampled_from((1 << 40, (1 << 62) - 1))
    data = st.binary(max_size=8)
    entry = st.tuples(st.just(b"\x00") | data, number, number)
    row = st.integers(1, 4).map(lambda first: entries(first, first + 2, 1))
    return st.one_of(
        st.builds(AppendEntries, number, number, number, number, st.lists(entry, max_size=3) | row),
        st.builds(AppendEntriesResponse, number, number, st.booleans(), st.booleans()),
        st.builds(RequestVote, number, number, number),
        st.builds(SnapshotChunk, number, number, number, number, data),
        *(st.builds(kind, number) for kind in (VoteGranted, TimeoutNow, HigherTerm)),
    )


def test_a_voter_is_sent_a_snapshot_as_fast_as_its_link_takes_it() -> None:
    """The whole of it at once passed the limit of what may wait for a peer, above 64 MiB each time anew."""
    node = SingleVoter().elect()
    node.core.outbox.clear()
    size = 3 * core.ROUND_BYTES
    for number in range(4):
        node.core.propose(b"%d" % number)
    node.step(2, AppendEntriesResponse(1, node.core.journal.last_index + 1, False, True))
    index = node.core.applied_index
    node.core.journal.snapshot_files.write(index, bytes(size))
    node.core.journal.compact(index)
    node.sync()
    taking = True
    node.core.can_send = lambda peer: peer == 3 and taking

    def pieces(*messages: AppendEntriesResponse) -> int:
        node.core.request_resend()
        sent = [each for peer, each in node.step(3, *messages) if peer == 3]
        return sum(len(each.data) for each in sent if isinstance(each, SnapshotChunk))

    assert pieces(AppendEntriesResponse(1, 1, True, False)) == core.ROUND_BYTES and node.core.more_to_send
    taking = False
    assert pieces() == 0 and not node.core.more_to_send
    taking = True
    assert pieces() == core.ROUND_BYTES
    assert pieces() == core.ROUND_BYTES
    assert pieces() == 0


def test_a_voter_that_waits_for_a_snapshot_to_be_read_hears_its_leader() -> None:
    """A large file takes longer than an election timeout."""
    leader, follower = SingleVoter().elect(), SingleVoter(2, (1, 3))
    for number in range(4):
        leader.core.propose(b"%d" % number)
    leader.step(3, AppendEntriesResponse(1, leader.core.journal.last_index + 1, False, True))
    leader.core.journal.compact(leader.core.applied_index)
    leader.sync()
    sent = [each for peer, each in leader.step(2, AppendEntriesResponse(1, 1, True, False)) if peer == 2]
    assert sent == [SnapshotChunk(1, 0, 0, 0, b"")]
    assert follower.core.on_message(1, sent[0]) is not None, "it moves the follower's election deadline"


@given(st.lists(st.tuples(st.sampled_from((2, 3)), message_strategy()), max_size=20), st.booleans())
def test_no_message_of_a_peer_breaks_the_core(messages: list[tuple[int, Message]], leads: bool) -> None:
    """Every message is taken or left; only what breaks Raft's own promises stops a voter, and says so."""
    node = SingleVoter().elect() if leads else SingleVoter()
    for peer, message in messages:
        try:
            node.step(peer, decode_message(encode_message(message)))
        except RaftSafetyViolation:
            return
