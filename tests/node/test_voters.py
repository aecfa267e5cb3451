"""Claims about whole nodes with voters that change, in virtual time (KIP-853)."""

from __future__ import annotations

import dataclasses
from typing import Any

from raftlog.metadata.controller_api import FeatureUpdate, UpdateFeatures
from raftlog.metadata.features import KRAFT_VERSION
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster


def test_a_new_leader_writes_the_first_set_that_the_former_could_not() -> None:
    """By itself: configs may be edited from kraft.version 1 on."""

    async def program(loop: SimLoop) -> Any:
        cluster = SimCluster(loop, 3)
        for each in cluster.nodes.values():
            each.config = dataclasses.replace(
                each.config,
                roles=frozenset({"controller"}),
                listeners=tuple(each for each in each.config.listeners if each.name == "CONTROLLER"),
            )
        cluster.start()
        quorums = await _quorums(cluster)
        leader = cluster.leader_id()
        assert leader is not None

        async def nothing() -> None: ...

        quorums[leader].write_first_set = nothing
        node = cluster.nodes[leader].node
        assert node is not None
        asked = cluster.nodes[leader].host.start(
            node.control.submit(UpdateFeatures((FeatureUpdate(KRAFT_VERSION, 1),)))
        )
        await cluster.until(
            lambda: asked.done() and all(each.voters_may_change() for each in quorums.values()),
            10,
            "the level",
        )
        assert all(each.has_static_voters for each in quorums.values()), asked.result()
        cluster.crash(leader)
        others = [each for node_id, each in quorums.items() if node_id != leader]
        await cluster.until(lambda: not any(each.has_static_voters for each in others), 10, "a set")

    simulate(program, seed=1)


async def _quorums(cluster: SimCluster) -> dict[int, Any]:
    """Wait until all nodes know a leader and the directories of all; return their quorums."""

    def known() -> bool:
        nodes = [each.node for each in cluster.nodes.values()]
        return cluster.leader_id() is not None and all(
            node is not None and len(node.metadata.image.voters) == 3 for node in nodes
        )

    await cluster.until(known, 20, "a leader")
    return {node_id: each.node.control.quorum for node_id, each in cluster.nodes.items() if each.node}
