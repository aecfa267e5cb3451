"""SIGTERM to any node, which then stops by itself."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, Place


class Terminate(OneNode):
    """It is started again once it has stopped."""

    name: ClassVar[str] = "terminate"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.TERMINATE})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.terminate(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.start(node)
