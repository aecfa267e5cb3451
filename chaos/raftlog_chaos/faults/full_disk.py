"""Nothing more fits on one node's disk."""

from __future__ import annotations

import random

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class FullDisk(OfOneNode):
    name = "full-disk"
    needs = frozenset({Ability.FULL_DISK})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.trouble_disk(node_id, DiskTrouble(full=True))

    async def cure(self, place: Place, node_id: int) -> None:
        await place.trouble_disk(node_id, DiskTrouble())
        await place.start(node_id)
