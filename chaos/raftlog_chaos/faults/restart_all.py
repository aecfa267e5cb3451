"""Kill -9 of all nodes at once; they start again at once, or when it is healed."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog_chaos.testbeds.testbed import Ability, Place


class RestartAll:
    name: ClassVar[str] = "restart-all"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.KILL})
    destructive: ClassVar[bool] = False

    async def inject(self, place: Place, chance: random.Random) -> str:
        for node_id in place.nodes:
            await place.kill(node_id)
        if chance.random() < 0.7:
            await self.heal(place)
        return "all nodes"

    async def heal(self, place: Place) -> None:
        for node_id in place.nodes:
            await place.start(node_id)
