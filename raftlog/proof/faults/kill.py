"""Kill -9 of any node."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, Place


class Kill(OneNode):
    """It is started again."""

    name: ClassVar[str] = "kill"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.KILL})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.kill(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.start(node)
