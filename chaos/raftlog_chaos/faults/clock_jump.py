"""One node's wall clock jumps, by milliseconds or by minutes, ahead or back."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class ClockJump(OneNodeFault):
    name = "clock-jump"
    needs = frozenset({Ability.CLOCK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.set_clock(node_id, chance.choice((-1, 1)) * int(11 * 2 ** chance.uniform(0, 14.7)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.set_clock(node_id, 0)
