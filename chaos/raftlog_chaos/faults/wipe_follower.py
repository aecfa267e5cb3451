"""A node that leads little loses all its partitions and its identity, as after a change of its disk, and comes back."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OfOneNode, a_follower
from raftlog_chaos.testbeds.testbed import Ability, Place, View


class WipeFollower(OfOneNode):
    name = "wipe-follower"
    needs = frozenset({Ability.KILL, Ability.WIPE})
    destructive = True

    def pick(self, view: View, place: Place, chance: random.Random) -> int | None:
        node_id = a_follower(view, chance)
        return node_id if node_id is not None and view.is_whole_without(node_id) else None

    async def strike(self, place: Place, node_id: int, chance: random.Random) -> None:
        await place.kill(node_id)
        await place.wipe(node_id)
        if chance.random() < 0.5:  # back before anybody has fenced it
            await place.start(node_id)
