"""Kill -9 of a node that leads a partition."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault, a_leader
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class KillLeader(OneNodeFault):
    name = "kill-leader"
    needs = frozenset({Ability.KILL})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return a_leader(view, chance)

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
