"""One core with a disk, driven by hand: for tests of single messages."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog.quorum.core import RaftCore
from raftlog.quorum.election import Timing
from raftlog.quorum.journal import Journal
from raftlog.quorum.messages import AppendEntries, Message, MessageSizes, VoteGranted
from raftlog.quorum.snapshot_sender import LoadedSnapshot, SnapshotCursor
from raftlog.quorum.wal import Entry
from raftlog_chaos.simulator.disk import SimDisk

NOOP = b"\x01"


class SingleVoter:
    """A core with a disk, driven by hand: a step is deliver, sync, tick, sync."""

    def __init__(
        self,
        node_id: int = 1,
        peers: Iterable[int] = (2, 3),
        disk: SimDisk | None = None,
        *,
        sizes: MessageSizes = MessageSizes(),  # noqa: B008 (immutable)
    ) -> None:
        self.node_id = node_id
        self.peers = tuple(peers)
        self.disk = disk or SimDisk()
        self.now = 100.0
        self.applied: list[bytes] = []
        self.core = RaftCore(
            node_id,
            self.peers,
            journal=Journal(self.disk, "/data/quorum", node_id),
            apply=self.applied.append,
            snapshot=self._snapshot,
            chance=random.Random(1),
            now=lambda: self.now,
            timing=Timing(),
            sizes=sizes,
        )
        self.sync()
        for peer in self.peers:
            self.core.connected(peer)

    def _snapshot(self, first_index: int) -> SnapshotCursor | None:
        files = self.core.journal.snapshot_files
        newest = files.indexes()[-1:]
        return (
            SnapshotCursor(LoadedSnapshot(newest[0], files.read(newest[0])))
            if newest and newest[0] >= first_index
            else None
        )

    def sync(self) -> None:
        while self.core.journal.dirty:
            self.core.journal.take_staged()()

    def step(self, peer: int = 2, *messages: Message) -> list[tuple[int, Message]]:
        """Deliver, tick, and return what may now be sent."""
        for message in messages:
            self.core.on_message(peer, message)
        self.sync()
        self.core.tick()
        self.sync()
        sent, self.core.outbox = self.core.outbox, []
        return sent

    def elect(self) -> SingleVoter:
        """Make it the leader of the next term, with the vote of each peer."""
        self.core.start_election()
        self.step()
        for peer in self.peers:
            self.core.on_message(peer, VoteGranted(self.core.term))
        self.step()
        assert self.core.is_leader
        return self

    def restarted(self) -> SingleVoter:
        """Lose power, and start again on the same disk."""
        self.disk.crash()
        return SingleVoter(self.node_id, self.peers, self.disk)

    @property
    def log(self) -> list[Entry]:
        return self.core.journal[:]  # type: ignore[no-any-return]


def entries(first: int, last: int, term: int, letter: bytes = b"") -> list[Entry]:
    return [(b"\x00%s%d" % (letter, index), index, term) for index in range(first, last + 1)]


def append(term: int, previous: int, previous_term: int, new: list[Entry], commit: int = 1) -> AppendEntries:
    return AppendEntries(term, commit, previous, previous_term, new)


def exchange(leader: SingleVoter, follower: SingleVoter, rounds: int) -> int:
    """Carry messages both ways until the logs are equal; return the rounds it took."""
    to_follower = leader.step(follower.node_id)
    for count in range(rounds):
        if leader.log == follower.log:
            return count
        leader.now += 0.2
        to_leader = follower.step(
            leader.node_id, *[each for peer, each in to_follower if peer == follower.node_id]
        )
        to_follower = leader.step(
            follower.node_id, *[each for peer, each in to_leader if peer == leader.node_id]
        )
    raise AssertionError(f"not equal after {rounds} rounds")
