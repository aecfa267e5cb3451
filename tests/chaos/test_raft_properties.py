"""raftlog_chaos.scenarios.raft_properties: each of Raft's promises, kept and broken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.quorum.journal import Journal
from raftlog.quorum.messages import (
    AppendEntries,
    AppendEntriesResponse,
    PreVote,
    RequestVote,
    VoteGranted,
)
from raftlog.quorum.wal import DamagedJournal, Entry
from raftlog_chaos.scenarios.raft_properties import HeldLog, RaftProperties, held_on_disk
from raftlog_chaos.simulator.disk import SimDisk

Log = list[tuple[int, str]]
"""(term, command) from index 1 on."""


class Journalled(list[Entry]):
    """A log as a driver's journal shows it."""

    snapshot_index = 0
    first_index = 1

    @property
    def last_index(self) -> int:
        return len(self)


def voter(
    log: Log, *, term: int, commit: int = 1, leads: bool = False, match: dict[int, int] | None = None
) -> Any:
    """A driver, as far as the law looks at it."""
    entries = Journalled((text.encode(), index, each) for index, (each, text) in enumerate(log, 1))
    core = SimpleNamespace(
        term=term, commit_index=commit, is_leader=leads, match_index=lambda peer: (match or {}).get(peer, 0)
    )
    return SimpleNamespace(journal=entries, core=core)


A: Log = [(0, "noop"), (1, "a")]
AB: Log = [*A, (1, "b")]
AC: Log = [*A, (2, "c")]


def test_a_voter_votes_once_a_term() -> None:
    """Raft §5.2; saying so twice to the same candidate is saying it once, and encouraging is no vote."""
    law = RaftProperties(3)
    law.on_sent(1, 2, VoteGranted(5))
    law.on_sent(1, 2, VoteGranted(5))
    law.on_sent(1, 3, PreVote(6, 1, 1))
    assert not law.violations
    law.on_sent(1, 3, VoteGranted(5))
    assert law.violations == ["node 1 voted for 2 and for 3 in term 5"]


def test_a_candidate_votes_for_itself() -> None:
    """Raft §5.2."""
    law = RaftProperties(3)
    law.on_sent(1, 2, RequestVote(5, 1, 1))
    law.on_sent(1, 3, VoteGranted(5))
    assert law.violations == ["node 1 voted for 1 and for 3 in term 5"]


def test_a_term_is_never_taken_back() -> None:
    """Raft figure 2: currentTerm increases monotonically, over restarts too."""
    law = RaftProperties(3)
    law.on_sent(1, 2, AppendEntriesResponse(5, 9, False, True))
    law.on_sent(2, 1, AppendEntriesResponse(4, 9, False, True))
    assert not law.violations
    law.on_sent(1, 2, AppendEntriesResponse(4, 9, False, True))
    assert law.violations == ["node 1 forgot term 5 and speaks of 4"]


def test_a_term_has_one_leader() -> None:
    """Raft figure 3, election safety; the first sign of a leader is noted."""
    law = RaftProperties(3)
    heartbeat = AppendEntries(2, 1, 1, 0, [])
    assert law.on_sent(1, 2, heartbeat)
    assert not law.on_sent(1, 3, heartbeat)
    assert not law.on_sent(2, 3, heartbeat)
    assert law.violations == ["nodes 1 and 2 both lead term 2"]


def test_entries_of_one_index_and_term_match() -> None:
    """Raft figure 3: an entry of one index and term is the same everywhere."""
    law = RaftProperties(3)
    law.inspect({1: voter(AB, term=1), 2: voter(AB, term=1), 3: voter(A, term=1)}, {})
    assert not law.violations
    law.inspect({2: voter([*A, (1, "other")], term=2)}, {})
    assert law.violations == ["node 2 has another entry 3 of term 1"]


def test_what_is_committed_is_never_another() -> None:
    """Raft figure 3, state machine safety."""
    law = RaftProperties(3)
    law.inspect({1: voter(AB, term=1, commit=3), 2: voter(AB, term=1), 3: voter(AB, term=1)}, {})
    assert not law.violations
    law.inspect({1: voter(AC, term=2, commit=3), 2: voter(AB, term=1), 3: voter(AB, term=1)}, {})
    assert "node 1 committed entry 3 of term 2, another one that of 1" in law.violations


def test_a_leader_has_everything_committed_before_its_term() -> None:
    """Raft figure 3, leader completeness; the leader of an older term need not have it."""
    law = RaftProperties(3)
    majority = {1: voter(AB, term=2, commit=3), 2: voter(AB, term=2)}
    law.inspect({**majority, 3: voter(A, term=2, leads=True)}, {})
    assert not law.violations
    law.inspect({**majority, 3: voter(A, term=3, leads=True)}, {})
    assert law.violations == ["node 3 leads term 3 without the committed entries [3]"]


@pytest.mark.parametrize(
    ("disk", "broken"),
    [(HeldLog(0, {1: 0, 2: 1, 3: 1}), False), (HeldLog(3, {}), False), (HeldLog(0, {1: 0, 2: 1}), True)],
)
def test_a_majority_holds_what_is_committed(disk: HeldLog, broken: bool) -> None:
    """Disks of nodes that are down count, snapshots too; entries lost in a crash are missed."""
    law = RaftProperties(3)
    law.inspect({1: voter(AB, term=1, commit=3), 3: voter(A, term=1)}, {2: disk})
    assert law.violations == (["entry 3 of term 1 is committed and no majority holds it"] if broken else [])


def test_a_leader_is_right_about_what_its_followers_hold() -> None:
    """Raft figure 2, matchIndex; a follower in a later term may have truncated its log since."""
    law = RaftProperties(3)
    leader = voter(AB, term=1, leads=True, match={2: 3})
    law.inspect({1: leader, 2: voter(A, term=2)}, {})
    assert not law.violations
    law.inspect({1: leader, 2: voter(A, term=1)}, {})
    assert law.violations == ["node 1 takes entry 3 for held by node 2, which does not hold it"]


def test_a_disk_holds_what_a_restart_would_find() -> None:
    """Entries by index; none where no voter ever ran; and damage is no empty disk."""
    disk = SimDisk()
    assert held_on_disk(disk, "/data/quorum") == HeldLog(0, {})
    journal = Journal(disk, "/data/quorum", 1)
    journal.add(b"one", 1, 3)
    journal.take_staged()()
    assert held_on_disk(disk, "/data/quorum") == HeldLog(0, {1: 3})
    disk.flip_bit("/data/quorum/quorum.wal", 0)
    with pytest.raises(DamagedJournal):
        held_on_disk(disk, "/data/quorum")
