"""Packets between some nodes are late."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, OfLinks, all_links, around
from raftlog_chaos.testbeds.testbed import Ability, Place, View

DELAYS_S = (0.005, 0.05, 0.3)
"""One way, seconds."""


class SlowLink(OfLinks):
    name = "slow-link"
    needs = frozenset({Ability.SLOW_LINK})

    def pick(self, view: View, place: Place, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(place.nodes)
        if chance.random() < 0.5:
            return f"around node {node_id}", around(node_id, place)
        return "everywhere", all_links(place)

    async def strike(self, place: Place, source: int, target: int, chance: random.Random) -> None:
        await place.slow_link(source, target, delay_s=chance.choice(DELAYS_S), loss=0.0)
