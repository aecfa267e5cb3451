"""One node's wall clock jumps, up to an hour either way."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, Place

LARGEST_MS = 3_600_000


class ClockJump(OneNode):
    """The clock tells the true time."""

    name: ClassVar[str] = "clock-jump"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CLOCK})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.set_clock(node, chance.randint(-LARGEST_MS, LARGEST_MS))
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.set_clock(node, 0)
