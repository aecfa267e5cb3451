"""All nodes lose their power at once, and what none of them had synced is gone; they come back one after the other."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog_chaos.testbeds.testbed import Ability, Testbed


class Blackout:
    name: ClassVar[str] = "blackout"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.POWER_CUT})
    destructive: ClassVar[bool] = False

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        for node_id in testbed.nodes:
            await testbed.power_cut(node_id)
        return "all nodes"

    async def heal(self, testbed: Testbed) -> None:
        for node_id in testbed.nodes:
            await testbed.start(node_id)
