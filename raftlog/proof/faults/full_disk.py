"""One node's disk is full."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, DiskTrouble, Place


class FullDisk(OneNode):
    """There is room again."""

    name: ClassVar[str] = "full-disk"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FULL_DISK})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.trouble_disk(node, DiskTrouble(full=True))
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.trouble_disk(node, DiskTrouble())
