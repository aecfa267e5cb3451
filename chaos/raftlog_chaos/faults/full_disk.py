"""Nothing more fits on one node's disk."""

from __future__ import annotations

import random

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class FullDisk(OneNodeFault):
    name = "full-disk"
    needs = frozenset({Ability.FULL_DISK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(full=True))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
        await testbed.start(node_id)
