"""The pinned PySyncObj still calls and keeps what the adapter relies on, seen by running it.

When a test here fails, read the difference between the two versions of PySyncObj before touching any code.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
import tomllib
from typing import Any

import pysyncobj
import pytest
from pysyncobj.node import Node
from pysyncobj.syncobj import SyncObj
from pysyncobj.transport import Transport

from raftlog.quorum import pysyncobj_adapter
from raftlog.quorum.core import RaftCore
from raftlog.quorum.election import Timing
from raftlog.quorum.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HigherTerm,
    Message,
    RequestVote,
    TimeoutNow,
    VoteGranted,
)
from raftlog.quorum.pysyncobj_adapter import VERSION, PySyncObjAdapter, pysyncobj_conf
from tests.house.source import PACKAGE, ROOT, modules_under
from tests.quorum.single_voter import NOOP, SingleVoter, append, entries, exchange

WIRE = {
    "request_vote": {"type", "term", "last_log_index", "last_log_term"},
    "response_vote": {"type", "term"},
    "next_node_idx": {"type", "next_node_idx", "reset", "success"},
    "timeout_now": {"type", "term"},
}
"""Every message that the core makes on its regular paths; append_entries are made in the room."""

ADAPTER = "raftlog/quorum/pysyncobj_adapter.py"


def bare_core() -> SyncObj:
    """Return PySyncObj's core as it is without ours."""
    return SyncObj(
        Node(1),
        [Node(2)],
        pysyncobj_conf(Timing(), SingleVoter().core.journal),
        transport=Transport(None, None, []),
    )


def names_of_pysyncobj() -> set[str]:
    found = {*dir(SyncObj), *vars(bare_core()), *dir(Transport), *dir(Node), *vars(pysyncobj.syncobj)}
    return {name for name in found if not name.startswith("__")}


def test_the_version_is_the_one_that_was_read() -> None:
    """The adapter was written against this release, asserts it, and pyproject.toml pins it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"pysyncobj=={VERSION}" in project["dependencies"]


def test_each_private_name_that_the_adapter_uses_exists() -> None:
    """An assignment to a name that is gone would create a new attribute, without effect."""
    text = inspect.getsource(pysyncobj_adapter)
    names = set(re.findall(r"_SyncObj__(\w+)", text)) | set(re.findall(r'_private\("(\w+)"\)', text))
    assert len(names) > 10
    assert {f"_SyncObj__{name}" for name in names} <= names_of_pysyncobj()


@pytest.mark.parametrize("name", [name for name in vars(PySyncObjAdapter) if name.startswith("_SyncObj__")])
def test_an_overridden_method_takes_what_the_core_gives_it(name: str) -> None:
    """Each of them exists in SyncObj, with these parameters."""
    ours, theirs = getattr(PySyncObjAdapter, name), getattr(SyncObj, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_only_the_adapter_knows_pysyncobj() -> None:
    """No other file of the room imports it, or names what is private in it: the next version is one file's business."""
    private = {name for name in names_of_pysyncobj() if name.startswith("_")}
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules_under(PACKAGE / "quorum")
        if module.name != ADAPTER
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and node.attr in private)
        or (isinstance(node, ast.FunctionDef) and node.name in private)
        or (isinstance(node, ast.Name | ast.alias) and "pysyncobj" in ast.unparse(node).split("."))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pysyncobj")
    ]
    assert not found, found


def test_ours_replaces_nothing_of_the_cores_by_accident() -> None:
    """A method of ours with a name of PySyncObj's would be called by it."""
    ours = {
        name
        for name in {**vars(RaftCore), **vars(PySyncObjAdapter)}
        if not name.startswith(("__", "_SyncObj__"))
    }
    assert not ours & {*dir(SyncObj), *vars(bare_core())}


def test_time_and_chance_are_ours() -> None:
    """The deadline after a vote is our clock's time plus the second timeout that our chance gave."""
    chance, timing = random.Random(1), Timing()
    _, second = (chance.uniform(timing.election_min, timing.election_max) for _ in range(2))
    node = SingleVoter()
    node.now = 12_345.0
    assert node.core.on_message(3, RequestVote(3, 1, 0)) == 12_345.0 + second


def test_cores_of_one_process_have_a_clock_each() -> None:
    """The core that runs sets the time: simulated nodes take turns."""
    early, late = SingleVoter().elect(), SingleVoter().elect()
    late.now += 1_000
    late.step()
    early.step()
    assert early.core.is_leader and not late.core.is_leader


def test_the_log_term_and_vote_are_our_journals() -> None:
    """The core stages each change of them in the journal before it counts."""
    node = SingleVoter()
    journal = node.core.journal
    assert [journal[at] for at in range(len(journal))] == [(NOOP, 1, 0)] and not journal.dirty
    node.core.start_election()
    node.core.tick()
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId(), journal.dirty) == (1, 1, True)
    node.sync()
    node.core.on_message(2, VoteGranted(1))
    assert journal[-1] == (NOOP, 2, 1) and journal.dirty
    node.step(2, AppendEntriesResponse(1, 3, False, True))
    assert journal.getRaftCommitIndex() == node.core.commit_index == 2


def test_a_new_leader_knows_nothing_of_the_others_logs() -> None:
    """It takes its own log for sent, matches for unknown, and every voter for alive now."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 5, 1)))
    node.core.send_append_entries = lambda: None  # type: ignore[method-assign]
    node.core.start_election()
    node.step()
    node.step(2, VoteGranted(node.core.term))
    peers = node.core._nodes.values()
    assert node.core.next_indexes == dict.fromkeys(peers, 6)
    assert node.core.match_indexes == dict.fromkeys(peers, 0)
    assert node.core.response_times == dict.fromkeys(peers, node.now)


def test_append_entries_are_sent_by_us_at_once_and_when_a_heartbeat_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The core calls ours on becoming leader, and not before the time that we set."""
    calls: list[float] = []
    send = RaftCore.send_append_entries
    monkeypatch.setattr(RaftCore, "send_append_entries", lambda core: (calls.append(core._now()), send(core)))
    node = SingleVoter()
    node.core.start_election()
    node.step()
    assert not calls
    node.core.on_message(2, VoteGranted(1))
    assert len(calls) == 1
    node.step()
    calls.clear()
    node.step()
    node.now = node.core.next_heartbeat_at - 0.001
    node.step()
    assert not calls
    node.now = node.core.next_heartbeat_at + 0.001
    node.step()
    assert calls == [node.now]


def test_commands_are_applied_by_us_one_by_one_and_before_they_count() -> None:
    """Each call sees the applied index before its own entry; the no-op reaches no state machine."""
    node = SingleVoter()
    seen: list[tuple[bytes, int]] = []
    node.core.apply_command = lambda command: seen.append((command, node.core.applied_index))
    log = [*entries(2, 3, 1), (NOOP, 4, 1), *entries(5, 5, 1)]
    node.step(2, append(1, 1, 0, log, commit=5))
    assert seen == [(b"2", 1), (b"3", 2), (b"5", 4)]
    assert node.core.applied_index == 5


def test_what_conflicts_is_cut_by_us_before_the_new_entries_are_added() -> None:
    """The core names the first index that goes."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 6, 1)))
    seen: list[tuple[int, int]] = []
    truncate = node.core.truncate_from

    def watch(index: int) -> None:
        seen.append((index, node.core.journal.last_index))
        truncate(index)

    node.core.truncate_from = watch  # type: ignore[method-assign]
    node.step(3, append(2, 3, 1, entries(4, 7, 2)))
    assert seen == [(4, 6)]
    assert node.core.journal.last_index == 7


def test_the_core_compacts_nothing_by_itself() -> None:
    """By PySyncObj's defaults 5,000 entries or 300 s would do."""
    node = SingleVoter()
    node.step(2, append(1, 1, 0, entries(2, 6_000, 1), commit=6_000))
    assert len(node.applied) == 5_999
    for _ in range(3):
        node.now += 1_000
        node.step(2, append(1, 6_000, 1, [], commit=6_000))
    assert node.core.journal.first_index == 1 and len(node.log) == 6_000


def test_a_leader_that_resigns_is_a_follower_without_a_leader() -> None:
    """It votes again, in a later term, and sends no heartbeats."""
    node = SingleVoter().elect()
    node.core.resign()
    assert not node.core.is_leader and node.core.leader_id is None
    node.now += 10
    assert node.step() == []
    assert node.step(2, RequestVote(9, 99, 9)) == [(2, VoteGranted(9))]


def test_the_cores_messages_have_the_shape_we_translate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types and keys of what the core sends in an election, a replication, an answer and a transfer."""
    seen: dict[str, set[str]] = {}
    translate = RaftCore._outbound

    def watch(core: RaftCore, peer: int, message: dict[str, Any]) -> Message:
        seen.setdefault(str(message["type"]), set()).update(message)
        return translate(core, peer, message)

    monkeypatch.setattr(RaftCore, "_outbound", watch)
    live_through_everything()
    assert seen == WIRE


def test_votes_come_in_as_the_core_reads_them() -> None:
    """A leader is made by answers alone."""
    node = SingleVoter()
    node.core.start_election()
    node.step()
    node.step(2, VoteGranted(1))
    assert node.core.is_leader and node.core.has_applied_own_term is False


class Untouched:
    """Stands for a module that must not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"PySyncObj asks for {name} itself")


def test_the_core_has_no_time_chance_disk_pickle_or_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal comes from `createJournal`, time from `monotonicTime`, timeouts from `__generateRaftTimeout`.

    A simulation repeats itself only if no other source is touched, and no bytes of a peer are ever unpickled.
    """
    for module in ("time", "random", "os", "pickle"):
        monkeypatch.setattr(pysyncobj.syncobj, module, Untouched())
    monkeypatch.setattr(pysyncobj.syncobj.threading, "Thread", None)
    live_through_everything()


def live_through_everything() -> None:
    """Elect, replicate, commit, transfer, truncate, vote, step down and be idle."""
    leader, follower = SingleVoter(1, (2, 3)).elect(), SingleVoter(2, (1, 3))
    leader.core.propose(b"x")
    assert exchange(leader, follower, 5) < 5
    leader.step(2, AppendEntriesResponse(1, leader.core.journal.last_index + 1, False, True))
    assert leader.applied == [b"x"]
    assert leader.core.transfer_leadership()
    assert (2, TimeoutNow(1)) in leader.step()
    assert any(isinstance(message, RequestVote) for _, message in follower.step(1, TimeoutNow(1)))
    follower.step(3, append(3, 2, 1, entries(3, 6, 3), commit=6))
    assert follower.applied[-1] == b"6"
    assert (3, VoteGranted(5)) in follower.step(3, RequestVote(5, 99, 5))
    leader.step(2, HigherTerm(4))
    assert not leader.core.is_leader
    for _ in range(50):
        leader.now += 10
        leader.step(3, AppendEntries(9, 1, 99, 9, []))
