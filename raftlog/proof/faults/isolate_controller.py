"""The active controller reaches no other node; clients reach all."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog.proof.faults.targets import OneCut, around, the_controller
from raftlog.proof.place import Ability, View


class IsolateController(OneCut):
    """Its links are whole again."""

    name: ClassVar[str] = "isolate-controller"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.CUT})

    def links(self, view: View, nodes: tuple[int, ...], chance: random.Random) -> list[tuple[int, int]]:
        node = the_controller(view, chance)
        return [] if node is None else around(node, nodes)
