"""Kill -9 of all nodes at once, and all are started again at once."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.place import Ability, Place


class RestartAll:
    """Whoever does not run is started."""

    name: ClassVar[str] = "restart-all"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.KILL})
    destructive: ClassVar[bool] = False

    async def inject(self, place: Place, chance: random.Random) -> str:
        running = sorted((await place.view()).running)
        for node in running:
            await place.kill(node)
        for node in chance.sample(running, len(running)):
            await place.start(node)
        return "all nodes" if running else ""

    async def heal(self, place: Place) -> None:
        for node in place.nodes:
            await place.start(node)
