"""SIGTERM: a node is asked to stop, and hands over what it leads."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class Terminate(OneNodeFault):
    name = "terminate"
    needs = frozenset({Ability.TERMINATE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.terminate(node_id)
