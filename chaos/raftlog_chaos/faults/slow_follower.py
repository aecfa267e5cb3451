"""A follower's disk is so slow that it lags behind."""

from __future__ import annotations

import random

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import OneNodeFault, a_follower
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

SLOW_S = (0.5, 1.0, 2.0)
"""How much longer each sync takes, seconds: about replica.lag.time.max.ms in tests."""


class SlowFollower(OneNodeFault):
    name = "slow-follower"
    needs = frozenset({Ability.SLOW_DISK})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return a_follower(view, chance)

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble(slow_s=chance.choice(SLOW_S)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_disk(node_id, DiskTrouble())
