"""SIGTERM: a node is asked to stop, and hands over what it leads."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class Terminate(OfOneNode):
    name = "terminate"
    needs = frozenset({Ability.TERMINATE})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.terminate(node_id)
