"""Two nodes don't reach each other; all others reach both."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, LinkFault, both_ways
from raftlog_chaos.testbeds.testbed import ClusterState, Testbed


class CutPair(LinkFault):
    name = "cut-pair"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        one, other = chance.sample(testbed.nodes, 2)
        return f"nodes {one} and {other}", both_ways([(one, other)])
