"""Kill -9 of the active controller."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault, the_controller
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class KillController(OneNodeFault):
    name = "kill-controller"
    needs = frozenset({Ability.KILL})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return the_controller(view)

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
