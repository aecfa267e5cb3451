"""Kill -9 of a node that leads a partition."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode, a_leader
from raftlog.proof.place import Ability, Place, View


class KillLeader(OneNode):
    """It is started again."""

    name: ClassVar[str] = "kill-leader"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.KILL})

    def choose(self, view: View, chance: random.Random) -> int | None:
        return a_leader(view, chance)

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.kill(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.start(node)
