"""Kill -9 of some node."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class Kill(OneNodeFault):
    name = "kill"
    needs = frozenset({Ability.KILL})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
