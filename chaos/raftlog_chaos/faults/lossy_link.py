"""Packets between some nodes are lost and sent again: bytes come late, in bursts."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, OfLinks, all_links, around
from raftlog_chaos.testbeds.testbed import Ability, Place, View

LOSSES = (0.02, 0.1, 0.3)
"""Share of lost packets."""


class LossyLink(OfLinks):
    name = "lossy-link"
    needs = frozenset({Ability.LOSSY_LINK})

    def pick(self, view: View, place: Place, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(place.nodes)
        if chance.random() < 0.5:
            return f"around node {node_id}", around(node_id, place)
        return "everywhere", all_links(place)

    async def strike(self, place: Place, source: int, target: int, chance: random.Random) -> None:
        await place.slow_link(source, target, delay_s=0.0, loss=chance.choice(LOSSES))
