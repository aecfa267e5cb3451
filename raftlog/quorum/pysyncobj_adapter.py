"""The adapter to PySyncObj: the only file that imports it or uses its private names.

It gives PySyncObj's Raft state names of ours, and replaces its clock, randomness, journal and transport by ours. The
version is pinned, since any release may change private names. `tests/quorum/test_canary.py` checks that this release
still uses each as this file expects.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, cast

from raftlog.quorum.election import Timing
from raftlog.quorum.journal import Journal
from raftlog.quorum.wal import COMMAND_PREFIX

# It imports `cryptography` where that is installed, for its own transport: 25 modules and 7 MB a node.
_hides_cryptography = "cryptography" not in sys.modules
if _hides_cryptography:
    sys.modules["cryptography"] = cast(ModuleType, None)
import pysyncobj.syncobj as raft  # noqa: E402
from pysyncobj import SyncObj, SyncObjConf  # noqa: E402
from pysyncobj.node import Node  # noqa: E402
from pysyncobj.transport import Transport  # noqa: E402
from pysyncobj.version import VERSION  # noqa: E402

if _hides_cryptography:
    del sys.modules["cryptography"]

assert VERSION == "0.3.17", f"this file was written against PySyncObj 0.3.17, not {VERSION}"

for _name in ("pysyncobj", "pysyncobj.syncobj"):  # a logger's children do not ask whether it is disabled
    logging.getLogger(_name).disabled = True  # it warns of truncations that `core` filters out

_LEADER: Final = raft._RAFT_STATE.LEADER

_ABSENT: Final = Node(-1)
"""A voter that never answers. PySyncObj counts each leader itself, even a leader that is no voter. This voter makes up
for it: `1 + n > (voters + 1 + 1) / 2` is `n > voters / 2`.
"""

raft.createJournal = lambda journal: journal  # ours, given as the name of a file


def pysyncobj_conf(timing: Timing, journal: Journal | None = None) -> SyncObjConf:
    """Return PySyncObj's settings: no thread, fork, compaction or membership change of its own; it asserts times."""
    return SyncObjConf(
        autoTick=False,
        raftMinTimeout=timing.election_min,
        raftMaxTimeout=timing.election_max,
        appendEntriesPeriod=timing.heartbeat,
        leaderFallbackTimeout=timing.check_quorum_timeout,
        connectionTimeout=max(3.5, timing.election_max),
        appendEntriesUseBatch=True,
        journalFile=journal,
        logCompactionMinEntries=sys.maxsize,
        logCompactionMinTime=float("inf"),
        dynamicMembershipChange=False,
        useFork=False,
    )


def _private(name: str) -> Any:
    """Return a property that reads and writes an attribute that is private to SyncObj."""
    mangled = f"_SyncObj__{name}"
    return property(attrgetter(mangled), lambda core, value: setattr(core, mangled, value))


class PySyncObjAdapter(SyncObj):  # type: ignore[misc]
    """PySyncObj's Raft core under names of ours.

    A subclass has `send(peer, message)`, `send_append_entries()`, `apply_command(command)` and `truncate_from(index)`.
    """

    term: int = _private("raftCurrentTerm")
    commit_index: int = _private("raftCommitIndex")
    applied_index: int = _private("raftLastApplied")
    election_deadline: float = _private("raftElectionDeadline")
    next_heartbeat_at: float = _private("newAppendEntriesTime")
    """Leaders only, and so are the three that follow."""
    next_indexes: dict[Node, int] = _private("raftNextIndex")
    match_indexes: dict[Node, int] = _private("raftMatchIndex")
    response_times: dict[Node, float] = _private("lastResponseTime")
    other_voters: set[Node] = _private("otherNodes")

    def __init__(
        self,
        node_id: int,
        peers: Iterable[int],
        *,
        journal: Journal,
        timing: Timing,
        chance: random.Random,
        now: Callable[[], float],
    ) -> None:
        self.journal = journal
        self._timing = timing
        self._random = chance
        self._now = raft.monotonicTime = now
        self._nodes = {peer: Node(peer) for peer in sorted(peers)}
        self._transport = Transport(None, None, [])
        self._transport.send = lambda node, message: node == _ABSENT or self.send(node.id, message)
        self.next_heartbeat_at = 0.0  # the constructor reads every property, this property before it is set
        conf = pysyncobj_conf(timing, journal)
        super().__init__(Node(node_id), self._nodes.values(), conf, transport=self._transport)

    @property
    def is_leader(self) -> bool:
        """Whether it considers itself leader; others may have moved on."""
        # asked many times in a round, so not by a method of the core
        return bool(self._SyncObj__raftState == _LEADER)

    @property
    def leader_id(self) -> int | None:
        leader = self._SyncObj__raftLeader
        return None if leader is None else leader.id

    @property
    def has_applied_own_term(self) -> bool:
        """Whether it leads and has applied its term's no-op, and so everything ever committed before."""
        return self.is_leader and self.applied_index >= self._SyncObj__noopIDx

    def run_tick(self, check_quorum_timeout_s: float) -> None:
        """Begin an election, commit, apply, step down and send heartbeats, as due."""
        raft.monotonicTime = self._now  # of the running core: several share a process in simulations
        self.conf.leaderFallbackTimeout = check_quorum_timeout_s
        self.doTick(0)
        # A TimeoutNow that began no election in this tick (its voter had no link) is over. The core would remember it
        # until a message of a higher term, and ignore every leader's heartbeats meanwhile.
        self._SyncObj__transferInProgress = False

    def receive(self, peer: int, **message: Any) -> None:
        """Deliver a message, as the core's own transport would."""
        raft.monotonicTime = self._now
        self._transport._onMessageReceived(self.node(peer), message)

    def connected(self, peer: int) -> None:
        self._transport._onNodeConnected(self.node(peer))

    def disconnected(self, peer: int) -> None:
        self._transport._onNodeDisconnected(self._nodes[peer])

    def set_voters(self, peers: Iterable[int], *, votes: bool) -> None:
        """Count by another set of voters from now on: by `peers`, and by this node if it `votes`."""
        self.other_voters = {self.node(peer) for peer in sorted(peers)}
        if not votes:
            self.other_voters.add(_ABSENT)
        if not self.is_leader:
            return
        for node in self.other_voters:
            self.next_indexes.setdefault(node, self.journal.last_index + 1)
            self.match_indexes.setdefault(node, 0)
            self.response_times.setdefault(node, float("-inf") if node == _ABSENT else self._now())
        for node in self.response_times.keys() - self.other_voters:
            del self.response_times[node]

    def node(self, peer: int) -> Node:
        """Return the core's name of another node."""
        if peer not in self._nodes:
            self._nodes[peer] = Node(peer)
        return self._nodes[peer]

    def resign(self) -> None:
        """Give up leadership, as when a majority stopped answering."""
        if self.is_leader:
            self._SyncObj__raftState = raft._RAFT_STATE.FOLLOWER
            self._SyncObj__raftLeader = None

    def _SyncObj__sendAppendEntries(self) -> None:
        """Called on becoming leader, and when a heartbeat is due."""
        if (
            _ABSENT in self.response_times
        ):  # a new leader counts all as heard, for as long as check quorum waits
            self.response_times[_ABSENT] = float("-inf")
        self.send_append_entries()

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        """Called before the applied index is advanced. The log holds our bytes, never a pickle."""
        if command.startswith(COMMAND_PREFIX):
            self.apply_command(command[1:])

    def _SyncObj__deleteEntriesFrom(self, fromIDx: int) -> None:
        """Called before entries are added, if the log has any in their places."""
        self.truncate_from(fromIDx)

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self._random.uniform(self._timing.election_min, self._timing.election_max)
