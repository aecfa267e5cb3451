"""Two nodes do not reach each other; everybody else reaches both."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, a_pair
from raftlog.proof.place import Ability, View


class CutPair(OneCut):
    """The link is whole again."""

    name: ClassVar[str] = "cut-pair"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        pair = a_pair(nodes, chance)
        return [pair, pair[::-1]] if pair else []
