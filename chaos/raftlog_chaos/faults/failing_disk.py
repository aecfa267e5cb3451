"""Reads, writes or syncs of one node's disk fail with EIO; the node may end itself, which is right."""

from __future__ import annotations

import random

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class FailingDisk(OneNodeFault):
    name = "failing-disk"
    needs = frozenset({Ability.FAILING_DISK, Ability.KILL})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(failing=chance.choice(("read", "write", "sync"))))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
        await testbed.kill(
            node_id
        )  # a node that gave its folder up runs on without it, and looks again when it starts
        await testbed.start(node_id)
