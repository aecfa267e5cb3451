"""Kill -9 of all nodes at once; they start again at once, or when it is healed."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog_chaos.testbeds.testbed import Ability, Testbed


class RestartAll:
    name: ClassVar[str] = "restart-all"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.KILL})
    destructive: ClassVar[bool] = False

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        for node_id in testbed.nodes:
            await testbed.kill(node_id)
        if chance.random() < 0.7:
            await self.heal(testbed)
        return "all nodes"

    async def heal(self, testbed: Testbed) -> None:
        for node_id in testbed.nodes:
            await testbed.start(node_id)
