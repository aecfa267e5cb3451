"""Kill -9 of the active controller."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode, the_controller
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class KillController(OfOneNode):
    name = "kill-controller"
    needs = frozenset({Ability.KILL})

    def pick(self, view: View, place: Place, chance: random.Random) -> int | None:
        return the_controller(view)

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.kill(node_id)
