"""Packets between some nodes are lost and sent again: bytes come late, in bursts."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, LinkFault, all_links, around
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

LOSSES = (0.02, 0.1, 0.3)
"""Share of lost packets."""


class LossyLink(LinkFault):
    name = "lossy-link"
    needs = frozenset({Ability.LOSSY_LINK})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(testbed.nodes)
        if chance.random() < 0.5:
            return f"around node {node_id}", around(node_id, testbed)
        return "everywhere", all_links(testbed)

    async def strike(self, testbed: Testbed, source: int, target: int, chance: random.Random) -> None:
        await testbed.slow_link(source, target, delay_s=0.0, loss=chance.choice(LOSSES))
