"""Every sync of a node that leads little takes its time: does everybody have to wait for it?"""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode, a_follower
from raftlog.proof.place import Ability, DiskTrouble, Place, View

SLOW_S = 0.5
"""Each sync is so much later, seconds."""


class SlowFollower(OneNode):
    """The disk is as fast as before."""

    name: ClassVar[str] = "slow-follower"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.SLOW_DISK})

    def choose(self, view: View, chance: random.Random) -> int | None:
        return a_follower(view, chance)

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.trouble_disk(node, DiskTrouble(slow_s=SLOW_S))
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.trouble_disk(node, DiskTrouble())
