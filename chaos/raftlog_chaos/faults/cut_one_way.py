"""One direction is dead: a node is not heard by another, or by anybody, or hears nobody."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, LinkFault
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class CutOneWay(LinkFault):
    name = "cut-one-way"
    needs = frozenset({Ability.CUT_ONE_WAY})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        one, other = chance.sample(testbed.nodes, 2)
        how = chance.choice(("to one", "mute", "deaf"))
        if how == "to one":
            return f"from {one} to {other}", [(one, other)]
        if how == "mute":
            return f"from {one} to all", [(one, each) for each in testbed.nodes if each != one]
        return f"from all to {one}", [(each, one) for each in testbed.nodes if each != one]
