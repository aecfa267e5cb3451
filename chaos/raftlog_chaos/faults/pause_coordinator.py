"""SIGSTOP of a node that coordinates transactions or groups: when it wakes up it still believes that it does."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode, a_coordinator
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class PauseCoordinator(OfOneNode):
    name = "pause-coordinator"
    needs = frozenset({Ability.PAUSE})

    def pick(self, view: View, place: Place, chance: random.Random) -> int | None:
        return a_coordinator(view, chance)

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.pause(node_id)

    async def cure(self, place: Place, node_id: int) -> None:
        await place.resume(node_id)
