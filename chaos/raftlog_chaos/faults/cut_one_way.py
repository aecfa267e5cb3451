"""One direction is dead: a node is not heard by another, or by anybody, or hears nobody."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, OfLinks
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class CutOneWay(OfLinks):
    name = "cut-one-way"
    needs = frozenset({Ability.CUT_ONE_WAY})

    def pick(self, view: View, place: Place, chance: random.Random) -> tuple[str, Iterable[Link]]:
        one, other = chance.sample(place.nodes, 2)
        how = chance.choice(("to one", "mute", "deaf"))
        if how == "to one":
            return f"from {one} to {other}", [(one, other)]
        if how == "mute":
            return f"from {one} to all", [(one, each) for each in place.nodes if each != one]
        return f"from all to {one}", [(each, one) for each in place.nodes if each != one]
