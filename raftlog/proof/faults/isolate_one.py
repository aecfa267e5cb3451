"""One node reaches no other, and none reaches it; clients reach all."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, around, one_of
from raftlog.proof.place import Ability, View


class IsolateOne(OneCut):
    """Its links are whole again."""

    name: ClassVar[str] = "isolate-one"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        node = one_of(nodes, chance)
        return [] if node is None else around(node, nodes)
