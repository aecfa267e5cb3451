"""Power cut of all nodes at once: what none of them had synced is gone."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.place import Ability, Place


class Blackout:
    """They are all started again."""

    name: ClassVar[str] = "blackout"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.POWER_CUT})
    destructive: ClassVar[bool] = False

    async def inject(self, place: Place, chance: random.Random) -> str:
        running = sorted((await place.view()).running)
        for node in chance.sample(running, len(running)):
            await place.power_cut(node)
        return "all nodes" if running else ""

    async def heal(self, place: Place) -> None:
        for node in place.nodes:
            await place.start(node)
