"""SIGSTOP: a node stands still, its connections open, its kernel still answering."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class Pause(OfOneNode):
    name = "pause"
    needs = frozenset({Ability.PAUSE})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.pause(node_id)

    async def cure(self, place: Place, node_id: int) -> None:
        await place.resume(node_id)
