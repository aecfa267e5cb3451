"""PySyncObj's inside is where we left it. When this fails, read the difference before touching anything."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import pysyncobj.config
import pysyncobj.node
import pysyncobj.syncobj
import pysyncobj.transport
import pysyncobj.version
import pytest

from raftlog.quorum import pysyncobj_adapter
from raftlog.quorum.messages import AppendEntriesResponse, RequestVote, VoteGranted
from tests.quorum.single_voter import SingleVoter, append, entries

SOURCES = {
    pysyncobj.syncobj: "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    pysyncobj.transport: "0c9d89f9c4781ec9772df8011d7975a1a4a1a5f541357e12eae85a813e92b50b",
    pysyncobj.node: "e4a3f027cd8291f558334bb9c977e952f6b6989e7e1fa1588d3005ef0b990e2c",
    pysyncobj.config: "fbbc7ff9f18e4d15a7fd563376e42f5bd192956879d4b810b056d5248b955698",
}

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


@pytest.mark.parametrize("module", SOURCES, ids=lambda module: module.__name__)
def test_not_a_byte_of_the_source_has_moved(module: object) -> None:
    """A patched copy under the same version number would slip past the names."""
    path = inspect.getsourcefile(module)  # type: ignore[arg-type]
    assert path is not None
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == SOURCES[module]  # type: ignore[index]


@pytest.mark.parametrize("name", pysyncobj_adapter.PRIVATE_NAMES)
def test_a_private_attribute_has_the_type_we_rely_on(name: str) -> None:
    """Each name the room reads or writes exists, on a follower and on a leader."""
    for node in (SingleVoter(), SingleVoter().elect()):
        assert isinstance(getattr(node.core, name), pysyncobj_adapter.PRIVATE_NAMES[name]), name


@pytest.mark.parametrize("name", pysyncobj_adapter.PRIVATE_METHODS)
def test_a_private_method_takes_what_we_give_it(name: str) -> None:
    """Each method the room calls or overrides exists in SyncObj with these parameters."""
    method = getattr(pysyncobj.syncobj.SyncObj, name)
    assert tuple(inspect.signature(method).parameters)[1:] == pysyncobj_adapter.PRIVATE_METHODS[name]


def test_the_places_where_ours_is_put_in_are_used() -> None:
    """The journal comes from `createJournal`, time from `monotonicTime`, sending goes through the transport."""
    source = inspect.getsource(pysyncobj.syncobj)
    assert source.count("createJournal(") == 1 and "time.time()" not in source
    assert source.count("random.random()") == 1  # in the overridden __generateRaftTimeout
    assert source.count("time.sleep(") == 3  # in the tick thread, and while a transport is not ready
    node = SingleVoter()
    node.now = 12_345.0
    node.step()
    assert pysyncobj.syncobj.monotonicTime() == 12_345.0
    assert node.core.journal is node.core._SyncObj__raftLog


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
