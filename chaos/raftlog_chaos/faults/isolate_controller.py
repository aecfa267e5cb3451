"""The active controller is cut off from all others; clients reach it still."""

from __future__ import annotations

import random
from collections.abc import Iterable

from raftlog_chaos.faults.fault import the_controller
from raftlog_chaos.faults.links import Link, LinkFault, around
from raftlog_chaos.testbeds.testbed import ClusterState, Testbed


class IsolateController(LinkFault):
    name = "isolate-controller"

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> tuple[str, Iterable[Link]]:
        node_id = the_controller(view)
        return ("", []) if node_id is None else (f"node {node_id}", around(node_id, testbed))
