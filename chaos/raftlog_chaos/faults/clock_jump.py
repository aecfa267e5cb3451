"""One node's wall clock jumps, by milliseconds or by minutes, ahead or back."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class ClockJump(OfOneNode):
    name = "clock-jump"
    needs = frozenset({Ability.CLOCK})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.set_clock(node_id, chance.choice((-1, 1)) * int(11 * 2 ** chance.uniform(0, 14.7)))

    async def cure(self, place: Place, node_id: int) -> None:
        await place.set_clock(node_id, 0)
