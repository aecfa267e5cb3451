"""A node comes back with an older copy of its folders: a restored backup of that node alone, or a machine's snapshot.

All the others have everything, so no record may be lost, whichever node comes back first. A node that was only killed,
at any moment of its start, must count as the same node. Otherwise a cluster that lost its power would not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.simulator.medium import Folder

if TYPE_CHECKING:
    from raftlog.node import Node

LOGS: Final = ("/data/a", "/data/b")
METADATA: Final = "/data/metadata"
SETTINGS: Final = {"log.dirs": ",".join(LOGS), "metadata.log.dir": METADATA}
CHANGES: Final = 25
"""A start makes about as many changes of the disk before it has registered."""


class RolledBack(Choreography):
    """The stage, and the nodes that reported an older copy of one of their folders."""

    def __init__(self, loop: SimLoop, *, nodes: int = 3, settings: Mapping[str, str] = SETTINGS) -> None:
        super().__init__(loop, nodes=nodes, settings=settings)
        self.noticed: list[int] = []
        self.rolled_back: list[int] = []
        for each in self.cluster.nodes.values():
            each.host.disk.add_folders(*LOGS, METADATA)
        self.cluster.watchers.append(self._watch)

    def _watch(self, node_id: int, node: Node) -> None:
        assert node.broker is not None
        lifecycle = node.broker.lifecycle
        report = lifecycle.on_went_back

        def note(directory_ids: tuple[UUID, ...]) -> None:
            self.noticed.append(node_id)
            report(directory_ids)

        lifecycle.on_went_back = note

    # -- copies

    async def copy(self, victim: int) -> Folder:
        """Return a copy of a node's disk, taken while it runs or once it has stopped gently."""
        disk = self.cluster.nodes[victim].host.disk
        if self.chance.random() < 0.5:
            return disk.snapshot()
        await self.stop_gently(victim)
        copied = disk.snapshot()
        self.cluster.start(victim)
        return copied

    def bring_back(self, victim: int, copied: Folder) -> None:
        """Restore the copy: of everything, of the logs, or of one of the two log directories."""
        folders = self.chance.choice(((*LOGS, METADATA), LOGS, LOGS[:1], LOGS[1:]))
        for folder in folders:
            self.cluster.nodes[victim].host.disk.restore(copied, folder)
        self.rolled_back.append(victim)

    def judge_copies(self) -> None:
        """Check that each copy was noticed, perhaps by several registrations, and that no other folder was reported as
        a copy.
        """
        missed = set(self.rolled_back) - set(self.noticed)
        assert not missed, f"nodes {sorted(missed)} brought back an older copy, and it passed for the newest"
        wrong = set(self.noticed) - set(self.rolled_back)
        assert not wrong, f"nodes {sorted(wrong)} were only killed, and their folders passed for older copies"
        self.noticed.clear()
        self.rolled_back.clear()

    # -- ends of nodes

    async def stop_gently(self, node_id: int) -> None:
        self.cluster.leave(node_id)
        await self.cluster.until(lambda: not self.cluster.nodes[node_id].running, 30, "a gentle stop")

    async def end_life(self, node_id: int) -> None:
        """Stop a node, gently or not, and start it again; it may be killed at any moment of that start."""
        if self.chance.random() < 0.3:
            await self.stop_gently(node_id)
        else:
            self.cluster.crash(node_id, power_loss=self.power())
        self.cluster.start(node_id)
        for _ in range(self.chance.choice((0, 0, 1, 3))):
            if self.chance.random() < 0.5:
                self.cluster.crash_at_work(node_id, self.chance.randrange(CHANGES), lambda: None)
            await asyncio.sleep(self.a_while(0.02, 0.1, 0.5))
            if self.chance.random() < 0.5:
                self.cluster.crash(node_id, power_loss=self.power())
            self.cluster.start(node_id)
        self.cluster.nodes[node_id].host.disk.disarm()

    async def everywhere(self) -> None:
        """Wait until all nodes have everything, metadata too, and no leader is about to shrink an ISR."""
        while True:
            await self.whole()
            if self.images_agree() and self.cluster.all_in_sync() and not self._is_leaving():
                return
            await asyncio.sleep(0.01)

    def _is_leaving(self) -> bool:
        return any(
            replica.pending_isr_change() is not None
            for index in range(3)
            for replica in self.replicas(index).values()
        )


async def rolled_back(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Copy a node's disk and bring it back later, again and again for some virtual seconds. Raises AssertionError."""
    scene = RolledBack(loop)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.everywhere()
        victim = scene.chance.choice(sorted(scene.cluster.nodes))
        copied = await scene.copy(victim)
        await scene.everywhere()
        await scene.end_life(victim)
        await scene.everywhere()
        await scene.served(scene.chance.choice((3, 10)))
        await scene.everywhere()
        if scene.chance.random() < 0.3:
            scene.cluster.crash(victim)
        else:
            scene.cluster.crash(*scene.cluster.nodes)
        if scene.chance.random() < 0.8:
            scene.bring_back(victim, copied)
        scene.cluster.start(victim)
        await asyncio.sleep(scene.a_while(0.0, 0.3))
        await scene.others_follow(victim)
        await scene.cluster.until_ready(seconds=SERVED_S)
        scene.judge_copies()
    return await scene.end()
