"""Every sync of one node takes its time."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, DiskTrouble, Place

SLOW_S = 0.25
"""Each sync is so much later, seconds."""


class SlowDisk(OneNode):
    """The disk is as fast as before."""

    name: ClassVar[str] = "slow-disk"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.SLOW_DISK})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.trouble_disk(node, DiskTrouble(slow_s=SLOW_S))
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.trouble_disk(node, DiskTrouble())
