"""What two nodes say to each other is late."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, a_pair
from raftlog.proof.place import Ability, Place, View

DELAY_S = 0.3


class SlowLink(OneCut):
    """The link is as fast as before."""

    name: ClassVar[str] = "slow-link"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.SLOW_LINK})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        pair = a_pair(nodes, chance)
        return [pair, pair[::-1]] if pair else []

    async def strike(self, place: Place, source: int, target: int) -> None:
        await place.slow_link(source, target, delay_s=DELAY_S, loss=0.0)
