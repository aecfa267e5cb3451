"""Power cut of one node: what it had not synced is lost or torn."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, Place


class PowerCut(OneNode):
    """It is started again."""

    name: ClassVar[str] = "power-cut"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.POWER_CUT})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.power_cut(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.start(node)
