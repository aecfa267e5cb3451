"""One bit rots on one node's disk."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, Place


class FlipBit(OneNode):
    """The node is started anew; what it then finds, or a reader later, it repairs."""

    name: ClassVar[str] = "flip-bit"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FLIP_BIT, Ability.KILL})
    destructive: ClassVar[bool] = True

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        return await place.flip_bit(node, chance.random())

    async def undo(self, place: Place, node: int) -> None:
        await place.kill(node)
        await place.start(node)
