"""Kill -9 of a node that leads a partition."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode, a_leader
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class KillLeader(OfOneNode):
    name = "kill-leader"
    needs = frozenset({Ability.KILL})

    def pick(self, view: View, place: Place, chance: random.Random) -> int | None:
        return a_leader(view, chance)

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.kill(node_id)
