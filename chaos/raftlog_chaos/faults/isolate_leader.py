"""A node that leads a partition is cut off from all others; clients still write to it."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.fault import a_leader
from raftlog_chaos.faults.links import Link, LinkFault, around
from raftlog_chaos.testbeds.testbed import ClusterState, Testbed


class IsolateLeader(LinkFault):
    name = "isolate-leader"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = a_leader(view, chance)
        return ("", []) if node_id is None else (f"node {node_id}", around(node_id, testbed))
