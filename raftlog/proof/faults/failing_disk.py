"""One node's disk fails to read, to write, or to sync."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneNode
from raftlog.proof.place import Ability, DiskTrouble, Place

HOW = ("read", "write", "sync")


class FailingDisk(OneNode):
    """The disk is replaced with all that was on it, and the node started anew."""

    name: ClassVar[str] = "failing-disk"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FAILING_DISK, Ability.KILL})

    async def strike(self, place: Place, node: int, chance: random.Random) -> bool:
        await place.trouble_disk(node, DiskTrouble(failing=chance.choice(HOW)))
        return True

    async def undo(self, place: Place, node: int) -> None:
        await place.trouble_disk(node, DiskTrouble())
        await place.kill(node)  # a node that has given up a folder looks at it again only when it starts
        await place.start(node)
