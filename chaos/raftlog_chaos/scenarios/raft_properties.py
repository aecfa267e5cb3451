"""Raft's promises (figure 3 of the paper), checked against voters' messages, their memory, and their disks.

It sees every message that leaves a voter and may look into voters and disks; it knows no hosts, faults or workload. Its
findings are collected, not raised: it is called from inside the voters that it watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raftlog.base.disk import Disk
from raftlog.quorum import wal
from raftlog.quorum.driver import Driver
from raftlog.quorum.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HigherTerm,
    Message,
    RequestVote,
    SnapshotChunk,
    VoteGranted,
)
from raftlog.quorum.snapshot import SnapshotFiles

_OWN_TERM = (AppendEntries, HigherTerm, AppendEntriesResponse, RequestVote, SnapshotChunk, VoteGranted)
"""Messages that carry their sender's term; the others name a future term."""


class HeldLog(NamedTuple):
    """One voter's log: everything up to `covered` by a snapshot, and the terms of the entries that it has."""

    covered: int
    terms: Mapping[int, int]

    def holds(self, index: int, term: int) -> bool:
        return index <= self.covered or self.terms.get(index) == term


class RaftProperties:
    """The promises so far, and the `violations` of them."""

    def __init__(self, voters: int) -> None:
        self.violations: list[str] = []
        self.leaders: dict[int, int] = {}
        """The leader by term, as it spoke."""
        self.majority = voters // 2 + 1
        self._terms: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int | None]] = {}
        self._committed: dict[int, int] = {}
        """Terms of committed entries by index; next, the latest term in which they can have been committed."""
        self._committed_in: dict[int, int] = {}
        self._committed_to = 1
        self._first_unsettled = 2
        self._seen: dict[int, tuple[object, ...]] = {}
        self._complete: set[tuple[int, int]] = set()

    def _broken(self, promise: str) -> None:
        if promise not in self.violations:
            self.violations.append(promise)

    # -- what voters say ---------------------------------------------------------------------------

    def on_sent(self, node: int, peer: int, message: Message) -> bool:
        """Judge a message that leaves `node`; returns whether it is the first message of a new leader."""
        if isinstance(message, _OWN_TERM):
            self._hold_term(node, message.term)
        if isinstance(message, RequestVote):
            self._hold_vote(node, message.term, node)
        elif isinstance(message, VoteGranted):
            self._hold_vote(node, message.term, peer)
        elif isinstance(message, AppendEntries | SnapshotChunk):
            first = message.term not in self.leaders
            leader = self.leaders.setdefault(message.term, node)
            if leader != node:
                self._broken(f"nodes {leader} and {node} both lead term {message.term}")
            return first
        return False

    def _hold_term(self, node: int, term: int) -> None:
        known = self._terms.get(node, 0)
        if term < known:
            self._broken(f"node {node} forgot term {known} and speaks of {term}")
        self._terms[node] = max(term, known)

    def _hold_vote(self, node: int, term: int, candidate: int) -> None:
        voted = self._votes.setdefault((node, term), candidate)
        if voted != candidate:
            self._broken(f"node {node} voted for {voted} and for {candidate} in term {term}")

    # -- what voters have --------------------------------------------------------------------------

    def inspect(self, running: Mapping[int, Driver], down: Mapping[int, HeldLog]) -> None:
        """Judge all logs. `running`: voters that run; `down`: what the disks of the others hold."""
        logs = dict(down)
        changed = False
        for node, driver in running.items():
            logs[node] = held_in_memory(driver)
            state = (len(logs), driver.journal.last_index, driver.core.term, driver.core.commit_index)
            if self._seen.get(node) != state:
                self._seen[node] = state
                changed = True
                self._match_logs(node, driver)
                self._take_commit(node, driver, logs[node])
        for node, driver in running.items():
            self._judge_leader(node, driver, running, logs[node])
        if changed or down:
            self._count_holders(self._counted(logs))

    def _counted(self, logs: Mapping[int, HeldLog]) -> Iterable[HeldLog]:
        """Return the logs of the voters, of which `majority` hold what is committed."""
        return logs.values()

    def _match_logs(self, node: int, driver: Driver) -> None:
        """Log matching: an entry's index and term say what it is, and what comes before it."""
        before: int | None = None
        for command, index, term in driver.journal[:]:
            known = self._entries.get((index, term))
            if known is None or (known[1] is None and before is not None):
                self._entries[index, term] = (command, before)
            elif known[0] != command or (None not in (before, known[1]) and before != known[1]):
                self._broken(f"node {node} has another entry {index} of term {term}")
            before = term

    def _take_commit(self, node: int, driver: Driver, log: HeldLog) -> None:
        """State machine safety, entry by entry: what is committed somewhere is never anything else anywhere."""
        for index in range(max(2, driver.journal.first_index), driver.core.commit_index + 1):
            term = log.terms.get(index)
            if term is None:
                continue
            known = self._committed.setdefault(index, term)
            self._committed_in.setdefault(index, driver.core.term)
            if known != term:
                self._broken(
                    f"node {node} committed entry {index} of term {term}, another one that of {known}"
                )
        self._committed_to = max(self._committed_to, driver.core.commit_index)

    def _judge_leader(self, node: int, driver: Driver, running: Mapping[int, Driver], log: HeldLog) -> None:
        core = driver.core
        if not core.is_leader:
            return
        if (node, core.term) not in self._complete:
            self._complete.add((node, core.term))
            missing = [
                index
                for index, term in self._committed.items()
                if index >= self._first_unsettled
                and self._committed_in[index] < core.term
                and not log.holds(index, term)
            ]
            if missing:
                self._broken(
                    f"node {node} leads term {core.term} without the committed entries {missing[:5]}"
                )
        for peer, other in running.items():
            if peer == node or other.core.term != core.term:
                continue
            match = core.match_index(peer)
            term = log.terms.get(match)
            if term is not None and not held_in_memory(other).holds(match, term):
                self._broken(
                    f"node {node} takes entry {match} for held by node {peer}, which does not hold it"
                )

    def _count_holders(self, logs: Iterable[HeldLog]) -> None:
        """A committed entry is on a majority, for ever: disks of stopped nodes count, too."""
        logs = list(logs)
        if len(logs) < self.majority:
            return
        covered = sorted((log.covered for log in logs), reverse=True)[self.majority - 1]
        self._first_unsettled = max(self._first_unsettled, covered + 1)
        for index in range(self._first_unsettled, self._committed_to + 1):
            term = self._committed.get(index)
            if term is not None and sum(log.holds(index, term) for log in logs) < self.majority:
                self._broken(f"entry {index} of term {term} is committed and no majority holds it")
                return


def held_in_memory(driver: Driver) -> HeldLog:
    """Return what a running voter holds."""
    journal = driver.journal
    return HeldLog(journal.snapshot_index, {index: term for _, index, term in journal[:]})


def held_on_disk(disk: Disk, directory: str) -> HeldLog:
    """Return what a voter that is down would find at its start. Raises DamagedJournal."""
    path = f"{directory}/{wal.NAME}"
    if not disk.exists(path):
        return HeldLog(0, {})
    snapshot = SnapshotFiles(disk, directory).load_newest()
    entries = wal.replay(disk.read_file(path)).entries
    return HeldLog(snapshot.end if snapshot else 0, {index: term for _, index, term in entries})
