"""A node that coordinates transactions or groups is cut off from all others; clients still ask it."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.fault import a_coordinator
from raftlog_chaos.faults.links import Link, LinkFault, around
from raftlog_chaos.testbeds.testbed import ClusterState, Testbed


class IsolateCoordinator(LinkFault):
    name = "isolate-coordinator"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = a_coordinator(view, chance)
        return ("", []) if node_id is None else (f"node {node_id}", around(node_id, testbed))
