"""SIGTERM: a node is asked to stop, and hands over what it leads."""

from __future__ import annotations

import random

from raftlog.proof.faults.fault import OfOneNode
from raftlog.proof.place import Ability, Place


class Terminate(OfOneNode):
    name = "terminate"
    needs = frozenset({Ability.TERMINATE})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.terminate(node_id)
