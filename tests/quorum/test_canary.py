"""PySyncObj's inside is where we left it. When this fails, read the difference before touching anything."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pysyncobj.syncobj
import pysyncobj.version
import pytest
from pysyncobj.node import Node

from raftlog.quorum import pysyncobj_adapter
from raftlog.quorum.messages import AppendEntriesResponse, RequestVote, VoteGranted
from tests.quorum.single_voter import SingleVoter, append, entries

PRIVATE_NAMES: Final = {
    "_SyncObj__raftState": int,
    "_SyncObj__raftCurrentTerm": int,
    "_SyncObj__raftCommitIndex": int,
    "_SyncObj__raftLastApplied": int,
    "_SyncObj__raftElectionDeadline": float,
    "_SyncObj__raftNextIndex": dict,
    "_SyncObj__raftMatchIndex": dict,
    "_SyncObj__lastResponseTime": dict,
    "_SyncObj__newAppendEntriesTime": (int, float),
    "_SyncObj__needLoadDumpFile": bool,
    "_SyncObj__transferInProgress": bool,
    "_SyncObj__raftLeader": (Node, type(None)),
    "_SyncObj__noopIDx": (int, type(None)),
}
"""Private attributes read or written by `quorum.core`, and their types."""

PRIVATE_METHODS: Final = {
    "_SyncObj__sendAppendEntries": (),
    "_SyncObj__onMessageReceived": ("node", "message"),
    "_SyncObj__onNodeConnected": ("node",),
    "_SyncObj__onNodeDisconnected": ("node",),
    "_SyncObj__doApplyCommand": ("command",),
    "_SyncObj__deleteEntriesFrom": ("fromIDx",),
    "_SyncObj__generateRaftTimeout": (),
    "_SyncObj__tryLogCompaction": (),
    "_checkCommandsToApply": (),
}
"""Private methods called or overridden by `quorum.core`, and their parameters."""

WIRE = {
    "request_vote": {"type", "term", "last_log_index", "last_log_term"},
    "response_vote": {"type", "term"},
    "next_node_idx": {"type", "next_node_idx", "reset", "success"},
    "timeout_now": {"type", "term"},
}
"""Every message that the core makes on its regular paths; append_entries are made in the room."""


def test_the_version_is_the_one_that_was_read() -> None:
    """The filters were written against this release; pyproject.toml pins it."""
    assert pysyncobj.version.VERSION == "0.3.17"


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_a_private_attribute_has_the_type_we_rely_on(name: str) -> None:
    """Each name the room reads or writes exists, on a follower and on a leader."""
    for node in (SingleVoter(), SingleVoter().elect()):
        assert isinstance(getattr(node.core, name), PRIVATE_NAMES[name]), name


@pytest.mark.parametrize("name", PRIVATE_METHODS)
def test_a_private_method_takes_what_we_give_it(name: str) -> None:
    """Each method the room calls or overrides exists in SyncObj with these parameters."""
    method = getattr(pysyncobj.syncobj.SyncObj, name)
    assert tuple(inspect.signature(method).parameters)[1:] == PRIVATE_METHODS[name]


class Untouched:
    """Stands for a module that must not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"PySyncObj asks for {name} itself")


def test_the_core_has_no_time_chance_or_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal comes from `createJournal`, time from `monotonicTime`, timeouts from `__generateRaftTimeout`.

    A simulation repeats itself only if an election, a replication and a change of leaders touch nothing else.
    """
    for module in ("time", "random", "os"):
        monkeypatch.setattr(pysyncobj.syncobj, module, Untouched())
    monkeypatch.setattr(pysyncobj.syncobj.threading, "Thread", None)
    node = SingleVoter()
    node.now = 12_345.0
    node.step()
    assert pysyncobj.syncobj.monotonicTime() == 12_345.0
    assert node.core.journal is node.core._SyncObj__raftLog
    leader = SingleVoter().elect()
    leader.core.propose(b"x")
    leader.step()
    leader.step(2, AppendEntriesResponse(1, leader.core.journal.last_index + 1, False, True))
    assert leader.core.commit_index == leader.core.journal.last_index
    follower = SingleVoter()
    follower.step(2, append(1, 1, 0, entries(2, 3, 1)))
    assert follower.core.journal.last_index == 3
    follower.step(3, RequestVote(3, 1, 0))


def test_the_cores_messages_have_the_shape_we_translate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types and keys of what the core sends in an election, a replication, an answer and a transfer."""
    seen: dict[str, set[str]] = {}
    translate = pysyncobj_adapter.OutboxTransport.send

    def watch(outbound: pysyncobj_adapter.OutboxTransport, node: object, message: dict[str, object]) -> bool:
        seen.setdefault(str(message["type"]), set()).update(message)
        return bool(translate(outbound, node, message))

    monkeypatch.setattr(pysyncobj_adapter.OutboxTransport, "send", watch)
    leader = SingleVoter().elect()
    leader.core.propose(b"x")
    leader.step()
    leader.step(2, AppendEntriesResponse(1, leader.core.journal.last_index + 1, False, True))
    assert leader.core.transfer_leadership()
    follower = SingleVoter()
    follower.step(2, append(1, 1, 0, entries(2, 3, 1)))
    voter = SingleVoter()
    voter.step(3, RequestVote(3, 1, 0))
    assert seen == WIRE


def test_votes_come_in_as_the_core_reads_them() -> None:
    """A leader is made by answers alone."""
    node = SingleVoter()
    node.core.start_election()
    node.step()
    node.step(2, VoteGranted(1))
    assert node.core.is_leader and node.core.has_applied_own_term is False
