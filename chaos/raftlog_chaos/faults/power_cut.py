"""One node loses its power, and with it what it had not synced."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class PowerCut(OneNodeFault):
    name = "power-cut"
    needs = frozenset({Ability.POWER_CUT})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.power_cut(node_id)
