"""Kill -9 of the active controller's node."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode, the_controller
from raftlog.proof.place import Ability, Place, View


class KillController(OneNode):
    """It is started again."""

    name: ClassVar[str] = "kill-controller"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.KILL})

    def choose(self, view: View, chance: random.Random) -> int | None:
        return the_controller(view, chance)

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.kill(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.start(node)
