"""Kill -9 of a node that coordinates transactions or groups."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault, a_coordinator
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class KillCoordinator(OneNodeFault):
    name = "kill-coordinator"
    needs = frozenset({Ability.KILL})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return a_coordinator(view, chance)

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
