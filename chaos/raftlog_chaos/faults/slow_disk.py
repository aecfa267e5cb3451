"""Every sync of one node's disk takes long."""

from __future__ import annotations

import random

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed

SLOW_S = (0.005, 0.02, 0.1, 0.5)
"""How much longer each sync takes, seconds."""


class SlowDisk(OneNodeFault):
    name = "slow-disk"
    needs = frozenset({Ability.SLOW_DISK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(slow_s=chance.choice(SLOW_S)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
