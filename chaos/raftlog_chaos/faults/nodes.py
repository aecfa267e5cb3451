"""Faults of whole nodes: killed, stopped, paused, without power, with a wrong clock."""

from __future__ import annotations

import random
from typing import ClassVar

from raftlog_chaos.faults.fault import AtController, AtCoordinator, AtFollower, AtLeader, OneNodeFault
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed


class Kill(OneNodeFault):
    """Kill -9 of some node."""

    name = "kill"
    needs = frozenset({Ability.KILL})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)


class KillLeader(AtLeader, Kill):
    """Kill -9 of a node that leads a partition."""

    name = "kill-leader"


class KillController(AtController, Kill):
    """Kill -9 of the active controller."""

    name = "kill-controller"


class KillCoordinator(AtCoordinator, Kill):
    """Kill -9 of a node that coordinates transactions or groups."""

    name = "kill-coordinator"


class Terminate(OneNodeFault):
    """SIGTERM: a node is asked to stop, and hands over the partitions that it leads."""

    name = "terminate"
    needs = frozenset({Ability.TERMINATE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.terminate(node_id)


class Pause(OneNodeFault):
    """SIGSTOP: a node stands still, its connections open, its kernel still answering."""

    name = "pause"
    needs = frozenset({Ability.PAUSE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.pause(node_id)

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.resume(node_id)


class PauseLeader(AtLeader, Pause):
    """SIGSTOP of a node that leads a partition: when it wakes up it still believes that it does."""

    name = "pause-leader"


class PauseCoordinator(AtCoordinator, Pause):
    """SIGSTOP of a node that coordinates transactions or groups: when it wakes up it still believes that it does."""

    name = "pause-coordinator"


class PowerCut(OneNodeFault):
    """One node loses its power, and with it all writes that it had not synced."""

    name = "power-cut"
    needs = frozenset({Ability.POWER_CUT})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.power_cut(node_id)


class Blackout:
    """All nodes lose their power at once, and with it all writes not synced; they come back one after the other."""

    name: ClassVar[str] = "blackout"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.POWER_CUT})
    destructive: ClassVar[bool] = False

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        for node_id in testbed.nodes:
            await testbed.power_cut(node_id)
        return "all nodes"

    async def heal(self, testbed: Testbed) -> None:
        for node_id in testbed.nodes:
            await testbed.start(node_id)


class RestartAll(Blackout):
    """Kill -9 of all nodes at once; they start again at once, or when it is healed."""

    name = "restart-all"
    needs = frozenset({Ability.KILL})

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        for node_id in testbed.nodes:
            await testbed.kill(node_id)
        if chance.random() < 0.7:
            await self.heal(testbed)
        return "all nodes"


class WipeFollower(AtFollower, OneNodeFault):
    """A node that leads little gets an empty disk: its partitions, its metadata log and its identity are gone."""

    name = "wipe-follower"
    needs = frozenset({Ability.KILL, Ability.WIPE})
    destructive = True

    def pick(self, view: ClusterState, testbed: Testbed, chance: random.Random) -> int | None:
        node_id = super().pick(view, testbed, chance)
        return node_id if node_id is not None and view.is_whole_without(node_id) else None

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
        await testbed.wipe(node_id)
        if chance.random() < 0.5:  # back before anybody has fenced it
            await testbed.start(node_id)


class ClockJump(OneNodeFault):
    """One node's wall clock jumps, by milliseconds or by minutes, ahead or back."""

    name = "clock-jump"
    needs = frozenset({Ability.CLOCK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.set_clock(node_id, chance.choice((-1, 1)) * int(11 * 2 ** chance.uniform(0, 14.7)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.set_clock(node_id, 0)
