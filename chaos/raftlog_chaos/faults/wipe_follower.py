"""A node that leads little loses all its partitions and its identity, as after a change of its disk, and comes back."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import OneNodeFault, a_follower
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class WipeFollower(OneNodeFault):
    name = "wipe-follower"
    needs = frozenset({Ability.KILL, Ability.WIPE})
    destructive = True

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        node_id = a_follower(view, chance)
        return node_id if node_id is not None and view.is_whole_without(node_id) else None

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
        await testbed.wipe(node_id)
        if chance.random() < 0.5:  # back before anybody has fenced it
            await testbed.start(node_id)
