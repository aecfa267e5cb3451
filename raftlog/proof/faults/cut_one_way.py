"""Nothing gets from one node to another; the other way is open."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, a_pair
from raftlog.proof.place import Ability, View


class CutOneWay(OneCut):
    """The link is whole again."""

    name: ClassVar[str] = "cut-one-way"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT_ONE_WAY})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        pair = a_pair(nodes, chance)
        return [pair] if pair else []
