"""A node stands still, its connections open."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, Place


class Pause(OneNode):
    """It goes on as if nothing had happened."""

    name: ClassVar[str] = "pause"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.PAUSE})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.pause(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.resume(node)
