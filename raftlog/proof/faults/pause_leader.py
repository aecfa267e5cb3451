"""A node that leads a partition stands still, its connections open."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode, a_leader
from raftlog.proof.place import Ability, Place, View


class PauseLeader(OneNode):
    """It goes on as if nothing had happened."""

    name: ClassVar[str] = "pause-leader"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.PAUSE})

    def choose(self, view: View, chance: random.Random) -> int | None:
        return a_leader(view, chance)

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.pause(node)
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.resume(node)
