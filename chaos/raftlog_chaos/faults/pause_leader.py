"""SIGSTOP of a node that leads a partition: when it wakes up it still believes that it does."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault, a_leader
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class PauseLeader(OneNodeFault):
    name = "pause-leader"
    needs = frozenset({Ability.PAUSE})

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        return a_leader(view, chance)

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.pause(node_id)

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.resume(node_id)
