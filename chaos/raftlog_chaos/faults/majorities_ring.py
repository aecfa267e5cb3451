"""Every node sees a majority, and each sees another one: a ring in which nobody sees everybody."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, LinkFault, all_links
from raftlog_chaos.testbeds.testbed import ClusterState, Testbed


class MajoritiesRing(LinkFault):
    name = "majorities-ring"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        ring = chance.sample(testbed.nodes, len(testbed.nodes))
        reach = (len(ring) // 2 + 1) // 2  # to both sides: with itself a majority
        near = {
            (ring[at], ring[(at + step) % len(ring)])
            for at in range(len(ring))
            for step in range(-reach, reach + 1)
        }
        if len(ring) == 3:  # everybody is everybody's neighbour: break the ring once
            near -= {(ring[0], ring[2]), (ring[2], ring[0])}
        return f"the ring {ring}", [each for each in all_links(testbed) if each not in near]
