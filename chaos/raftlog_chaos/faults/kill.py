"""Kill -9 of some node."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class Kill(OfOneNode):
    name = "kill"
    needs = frozenset({Ability.KILL})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.kill(node_id)
