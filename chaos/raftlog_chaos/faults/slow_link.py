"""Packets between some nodes are late."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, LinkFault, all_links, around
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

DELAYS_S = (0.005, 0.05, 0.3)
"""One way, seconds."""


class SlowLink(LinkFault):
    name = "slow-link"
    needs = frozenset({Ability.SLOW_LINK})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(testbed.nodes)
        if chance.random() < 0.5:
            return f"around node {node_id}", around(node_id, testbed)
        return "everywhere", all_links(testbed)

    async def strike(self, testbed: Testbed, source: int, target: int, chance: random.Random) -> None:
        await testbed.slow_link(source, target, delay_s=chance.choice(DELAYS_S), loss=0.0)
