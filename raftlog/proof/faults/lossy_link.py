"""Of what two nodes say to each other a part is lost, and sent again."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, a_pair
from raftlog.proof.place import Ability, Place, View

LOSS = 0.1


class LossyLink(OneCut):
    """The link is whole again."""

    name: ClassVar[str] = "lossy-link"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.LOSSY_LINK})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        pair = a_pair(nodes, chance)
        return [pair, pair[::-1]] if pair else []

    async def strike(self, place: Place, source: int, target: int) -> None:
        await place.slow_link(source, target, delay_s=0.0, loss=LOSS)
