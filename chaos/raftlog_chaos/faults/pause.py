"""SIGSTOP: a node stands still, its connections open, its kernel still answering."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class Pause(OneNodeFault):
    name = "pause"
    needs = frozenset({Ability.PAUSE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.pause(node_id)

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.resume(node_id)
