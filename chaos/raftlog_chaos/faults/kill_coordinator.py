"""Kill -9 of a node that coordinates transactions or groups."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode, a_coordinator
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class KillCoordinator(OfOneNode):
    name = "kill-coordinator"
    needs = frozenset({Ability.KILL})

    def pick(self, view: View, place: Place, chance: random.Random) -> int | None:
        return a_coordinator(view, chance)

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.kill(node_id)
