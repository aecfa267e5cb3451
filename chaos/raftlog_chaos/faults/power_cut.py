"""One node loses its power, and with it what it had not synced."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class PowerCut(OfOneNode):
    name = "power-cut"
    needs = frozenset({Ability.POWER_CUT})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.power_cut(node_id)
