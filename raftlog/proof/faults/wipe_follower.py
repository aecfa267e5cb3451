"""A node that leads little loses all data and its identity."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode, a_follower
from raftlog.proof.place import Ability, Place, View


class WipeFollower(OneNode):
    """It is started empty."""

    name: ClassVar[str] = "wipe-follower"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.WIPE, Ability.KILL})
    destructive: ClassVar[bool] = True

    def choose(self, view: View, chance: random.Random) -> int | None:
        return a_follower(view, chance)

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.kill(node)
        await place.wipe(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.start(node)
