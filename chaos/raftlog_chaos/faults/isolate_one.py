"""A node reaches no other and is reached by none; clients reach it still."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.links import Link, LinkFault, around
from raftlog_chaos.testbeds.testbed import ClusterState, Testbed


class IsolateOne(LinkFault):
    name = "isolate-one"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = chance.choice(testbed.nodes)
        return f"node {node_id}", around(node_id, testbed)
