"""Faults of whole nodes: killed, stopped, paused, without power, with a wrong clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import ClassVar, Final

from raftlog.faults.troubled_disk import DiskTrouble
from raftlog_chaos.faults.fault import (
    AtController,
    AtCoordinator,
    AtFollower,
    AtLeader,
    AtSchemaLeader,
    OneNodeFault,
)
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, Testbed

LOOK_S: Final = 0.1
LOOKS: Final = 50
"""How often a node that was killed for a copy of its disk is checked for readiness."""


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


class KillSchemaLeader(AtSchemaLeader, Kill):
    """Kill -9 of the leader of `_schemas`, which writes for all schema registries."""

    name = "kill-schema-leader"


class Terminate(OneNodeFault):
    """SIGTERM: a node is asked to stop, and hands over the partitions that it leads."""

    name = "terminate"
    needs = frozenset({Ability.TERMINATE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.terminate(node_id)


class SafeRestarts:
    """All nodes are restarted, one after the other, each only when that is safe; one node's disk is slow all the while.

    Healing waits until all nodes have caught up.
    """

    name: ClassVar[str] = "safe-restarts"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.RESTART_IN_TURN, Ability.SLOW_DISK})
    destructive: ClassVar[bool] = False
    slow_s: ClassVar[float] = 0.05
    """How much longer each sync of the slow disk takes, seconds."""

    def __init__(self) -> None:
        self._slow: int | None = None
        self._restarts: asyncio.Task[None] | None = None

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        self._slow = chance.choice(testbed.nodes)
        await testbed.trouble_disk(self._slow, DiskTrouble(slow_s=self.slow_s))
        self._restarts = asyncio.create_task(testbed.restart_in_turn())
        return f"all nodes, node {self._slow} with a slow disk"

    async def heal(self, testbed: Testbed) -> None:
        restarts, self._restarts = self._restarts, None
        if restarts is None or self._slow is None:
            return
        try:
            await restarts
        finally:
            await testbed.trouble_disk(self._slow, DiskTrouble())


class Pause(OneNodeFault):
    """SIGSTOP: a node stops, with open connections and a kernel that still answers."""

    name = "pause"
    needs = frozenset({Ability.PAUSE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.pause(node_id)

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.resume(node_id)


class PauseLeader(AtLeader, Pause):
    """SIGSTOP of a node that leads a partition: after it resumes it still believes that it leads."""

    name = "pause-leader"


class PauseCoordinator(AtCoordinator, Pause):
    """SIGSTOP of a node that coordinates transactions or groups: after it resumes it still believes that it does."""

    name = "pause-coordinator"


class PauseSchemaLeader(AtSchemaLeader, Pause):
    """SIGSTOP of the leader of `_schemas`: after it resumes it still believes that it leads."""

    name = "pause-schema-leader"


class PowerCut(OneNodeFault):
    """One node loses power, and with it all its unsynced writes."""

    name = "power-cut"
    needs = frozenset({Ability.POWER_CUT})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.power_cut(node_id)


class Blackout:
    """All nodes lose power at once, and with it all unsynced writes; they come back in turn."""

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
        if chance.random() < 0.5:  # back before it is fenced
            await testbed.start(node_id)


class LogTrouble(OneNodeFault):
    """Log lines of one node cannot be written, as after the reader of its standard error is gone."""

    name = "log-trouble"
    needs = frozenset({Ability.LOG_TROUBLE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.trouble_log(node_id, chance.choice((1.0, 1.0, 0.3)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.trouble_log(node_id, 0.0)


class RollBackFollower(AtFollower, OneNodeFault):
    """A node that leads little comes back with an older copy of its logs, as from a backup of that node alone.

    The node is killed for the copy, runs again for a while, and is killed once more: so it has registered since. Its
    metadata may be older as well, if all voters have heard of that start.
    """

    name = "roll-back-follower"
    needs = frozenset({Ability.KILL, Ability.ROLL_BACK})
    destructive = True

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        node_id = self.pick(await testbed.view(), testbed, chance)
        if node_id is None or not await self._is_whole(testbed, node_id):
            return ""
        self.node_id = node_id
        await testbed.kill(node_id)
        await testbed.copy_disk(node_id)
        await testbed.start(node_id)
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_S)
            if node_id in (await testbed.view()).ready and await self._is_whole(testbed, node_id):
                break
        await asyncio.sleep(LOOK_S * chance.randint(0, 10))
        view = await testbed.view()
        if not view.is_whole_without(node_id):
            return f"node {node_id}, not rolled back"
        await testbed.kill(node_id)
        await testbed.roll_back(node_id, metadata=view.voters_linked and chance.random() < 0.5)
        if chance.random() < 0.5:  # back before it is fenced
            await testbed.start(node_id)
        return f"node {node_id}"

    async def _is_whole(self, testbed: Testbed, node_id: int) -> bool:
        return (await testbed.view()).is_whole_without(node_id)


class LoseIdentity(OneNodeFault):
    """Kill -9 of some node, which starts with an empty meta.properties, or another cluster's, and must refuse that.

    Its own file is put back before it is healed.
    """

    name = "lose-identity"
    needs = frozenset({Ability.KILL, Ability.LOSE_IDENTITY})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.kill(node_id)
        await testbed.start_without_identity(node_id, foreign=chance.random() < 0.5)


class CloneNode(OneNodeFault):
    """A second process of some node runs beside it, with a copy of its folders, and must be refused."""

    name = "clone-node"
    needs = frozenset({Ability.CLONE})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.start_clone(node_id)

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.end_clone(node_id)


class ClockJump(OneNodeFault):
    """One node's wall clock jumps, by milliseconds or by minutes, ahead or back."""

    name = "clock-jump"
    needs = frozenset({Ability.CLOCK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await testbed.set_clock(node_id, chance.choice((-1, 1)) * int(11 * 2 ** chance.uniform(0, 14.7)))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await testbed.set_clock(node_id, 0)


WRONG_BY_MS: Final = (40 * 86_400_000, -40 * 86_400_000, 2 * 86_400_000)
"""How wrong the clocks of starting nodes are: with the first, all data with a retention of a week is expired."""


READY_S: Final = 20.0
"""How long a node with a wrong clock may take to become ready: before that it deletes no data in any case."""
READY_LOOK_S: Final = 0.3


class WrongStart(OneNodeFault):
    """Kill -9 of some node, which starts again with a clock that is days wrong, until it is healed."""

    name = "wrong-start"
    needs = frozenset({Ability.KILL, Ability.START_CLOCK})

    async def strike(self, testbed: Testbed, node_id: int, chance: random.Random) -> None:
        await _start_with_clock(testbed, (node_id,), chance.choice(WRONG_BY_MS))

    async def cure(self, testbed: Testbed, node_id: int) -> None:
        await _start_with_clock(testbed, (node_id,), 0)


class WrongStarts(Blackout):
    """Kill -9 of all nodes, which start again with clocks that are wrong by the same days, until it is healed."""

    name = "wrong-starts"
    needs = frozenset({Ability.KILL, Ability.START_CLOCK})

    def __init__(self) -> None:
        self._is_wrong = False

    async def inject(self, testbed: Testbed, chance: random.Random) -> str:
        self._is_wrong = True
        await _start_with_clock(testbed, testbed.nodes, chance.choice(WRONG_BY_MS))
        return "all nodes"

    async def heal(self, testbed: Testbed) -> None:
        if self._is_wrong:
            self._is_wrong = False
            await _start_with_clock(testbed, testbed.nodes, 0)


async def _start_with_clock(testbed: Testbed, node_ids: Iterable[int], offset_ms: int) -> None:
    for node_id in node_ids:
        await testbed.kill(node_id)
        await testbed.set_start_clock(node_id, offset_ms)
    for node_id in node_ids:
        await testbed.start(node_id)
    deadline = asyncio.get_running_loop().time() + READY_S
    while not (await testbed.view()).ready.issuperset(node_ids):
        if asyncio.get_running_loop().time() >= deadline:
            return  # the fault strikes all the same, and the healing waits until the cluster is whole
        await asyncio.sleep(READY_LOOK_S)
