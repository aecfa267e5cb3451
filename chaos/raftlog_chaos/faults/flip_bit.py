"""One bit of a segment rots on one node: it must be noticed, never served, and repaired from the leader."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog_chaos.faults.fault import any_of
from raftlog_chaos.testbeds.testbed import Ability, Testbed


class FlipBit:
    name: ClassVar[str] = "flip-bit"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FLIP_BIT})
    destructive: ClassVar[bool] = True

    def __init__(self, only: int | None = None) -> None:
        """`only`: the node that rotted before. Nobody may have met that yet, and all others must stay sound."""
        self.only = only

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        """Pick a node without which every partition is whole."""
        view = await testbed.view()
        nodes = testbed.nodes if self.only is None else (self.only,)
        node_id = any_of(frozenset(each for each in nodes if view.is_whole_without(each)), chance)
        if node_id is None or not await testbed.flip_bit(node_id, chance.random()):
            return ""
        self.only = node_id
        return f"node {node_id}"

    async def heal(self, testbed: Testbed) -> None:
        """Nothing: the cluster repairs it."""
