"""Claims about /v1/quorum: the leader's clock decides which voters keep up."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftlog.admin.native.quorum import ChangeUnderWay, quorum_of
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.base.types import NO_DIRECTORY, encode_uuid
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.quorum_description import (
    QuorumDescription,
    QuorumReplica,
    VotersChanged,
    VotersInChange,
)

LEADER_MS = 1_000_000


@pytest.mark.parametrize("own_clock_ms", [LEADER_MS - 60_000, LEADER_MS, LEADER_MS + 60_000])
async def test_a_node_with_another_clock_judges_the_voters_as_the_leader_does(own_clock_ms: int) -> None:
    """A voter that is silent for three seconds lags, and a voter seen a moment ago does not, whatever this node's clock
    says.
    """

    async def submit(_request: object, **_options: object) -> Any:
        heard = {1: LEADER_MS, 2: LEADER_MS - 100, 3: LEADER_MS - 3_000}
        voters = tuple(QuorumReplica(voter, 9, ms, ms) for voter, ms in heard.items())
        return QuorumDescription(leader_id=1, leader_epoch=1, high_watermark=9, voters=voters, observers=())

    node = NodeView(load_config(), lambda: EMPTY_IMAGE, list, lambda: own_clock_ms, submit=submit)
    found = await quorum_of(node)
    assert {each.node_id: (each.state, each.last_heard_ms_ago) for each in found.voters} == {
        1: ("leads", 0),
        2: ("follows", 100),
        3: ("silent", 3_000),
    }


async def test_the_voter_that_is_being_added_is_shown() -> None:
    """With what the change waits for, as the leader says it."""
    change = VotersInChange(4, UUID(int=4), adds=True, waits_for="node 4 has not caught up")

    async def submit(_request: object, **_options: object) -> Any:
        return QuorumDescription(1, 1, 9, (QuorumReplica(1, 9, 1, 1),), change=change)

    node = NodeView(load_config(), lambda: EMPTY_IMAGE, list, lambda: LEADER_MS, submit=submit)
    found = await quorum_of(node)
    assert found.change == ChangeUnderWay(4, encode_uuid(UUID(int=4)), True, "node 4 has not caught up")
    assert found.kraft_version == 0


async def test_the_quorum_says_who_changed_the_voters() -> None:
    """The newest change first, each with its sentence; a kind of a later release is shown by its name."""
    changes = (
        VotersChanged("dynamic", -1, NO_DIRECTORY, "", 1_000),
        VotersChanged("removed", 2, UUID(int=2), "User:ann", 2_000),
        VotersChanged("promoted", 3, UUID(int=3), "", 3_000),
    )

    async def submit(_request: object, **_options: object) -> Any:
        return QuorumDescription(1, 1, 9, (QuorumReplica(1, 9, 1, 1),), changes=changes)

    node = NodeView(load_config(), lambda: EMPTY_IMAGE, list, lambda: LEADER_MS, submit=submit)
    found = (await quorum_of(node)).changes
    assert [(each.kind, each.node_id, each.by) for each in found] == [
        ("promoted", 3, None),
        ("removed", 2, "User:ann"),
        ("dynamic", None, None),
    ]
    assert found[1].message == f"User:ann removed voter 2 with directory {encode_uuid(UUID(int=2))}"
    assert found[1].at == "1970-01-01T00:00:02.000+00:00" and found[0].message == "promoted"
