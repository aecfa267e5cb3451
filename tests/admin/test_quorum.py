"""Claims about /v1/quorum: the leader's clock decides which voters keep up."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.admin.native.quorum import quorum_of
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.quorum_description import QuorumDescription, QuorumReplica

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
