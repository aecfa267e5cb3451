"""Every node hears a majority, and each another one."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut
from raftlog.proof.place import Ability, View


class MajoritiesRing(OneCut):
    """All links are whole again."""

    name: ClassVar[str] = "majorities-ring"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT_ONE_WAY})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        ring = chance.sample(nodes, len(nodes))
        heard = len(ring) // 2  # besides itself
        return [
            (ring[(place + step) % len(ring)], node)
            for place, node in enumerate(ring)
            for step in range(heard + 1, len(ring))
        ]
