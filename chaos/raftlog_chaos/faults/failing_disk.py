"""Reads, writes or syncs of one node's disk fail with EIO; the node may end itself, which is right."""

from __future__ import annotations

import random

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import OfOneNode
from raftlog_chaos.testbeds.testbed import Ability, Place


class FailingDisk(OfOneNode):
    name = "failing-disk"
    needs = frozenset({Ability.FAILING_DISK, Ability.KILL})

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.trouble_disk(node_id, DiskTrouble(failing=chance.choice(("read", "write", "sync"))))

    async def cure(self, place: Place, node_id: int) -> None:
        await place.trouble_disk(node_id, DiskTrouble())
        await place.kill(
            node_id
        )  # a node that gave its folder up runs on without it, and looks again when it starts
        await place.start(node_id)
