"""SIGSTOP of a node that leads a partition: when it wakes up it still believes that it does."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode, a_leader
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class PauseLeader(OfOneNode):
    name = "pause-leader"
    needs = frozenset({Ability.PAUSE})

    def pick(self, view: View, place: Place, chance: random.Random) -> int | None:
        return a_leader(view, chance)

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.pause(node_id)

    async def cure(self, place: Place, node_id: int) -> None:
        await place.resume(node_id)
