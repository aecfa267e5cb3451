"""A node that leads a partition reaches no other; clients reach all."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, a_leader, around
from raftlog.proof.place import Ability, View


class IsolateLeader(OneCut):
    """Its links are whole again."""

    name: ClassVar[str] = "isolate-leader"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        node = a_leader(view, chance)
        return [] if node is None else around(node, nodes)
