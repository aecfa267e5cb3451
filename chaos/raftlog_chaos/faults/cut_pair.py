"""Two nodes don't reach each other; all others reach both."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, OfLinks, both_ways
from raftlog_chaos.testbeds.testbed import Place, View


class CutPair(OfLinks):
    name = "cut-pair"

    def pick(self, view: View, place: Place, chance: random.Random) -> tuple[str, Iterable[Link]]:
        one, other = chance.sample(place.nodes, 2)
        return f"nodes {one} and {other}", both_ways([(one, other)])
