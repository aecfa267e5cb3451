"""The simulated cluster as a place: what can be done to processes can be done to it, in virtual time.

Cuts are silent, as between machines whose cable was pulled: what was on its way stands still until the healing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from raftlog.proof.place import Ability, DiskTrouble, PartitionView, View
from raftlog.proof.simulator.cluster import SimCluster
from raftlog.proof.simulator.loop import SimLoop


class SimPlace:
    """See `Place`."""

    name = "simulator"
    abilities = frozenset(
        {
            Ability.KILL,
            Ability.TERMINATE,
            Ability.PAUSE,
            Ability.CUT,
            Ability.CUT_ONE_WAY,
            Ability.SLOW_DISK,
            Ability.POWER_CUT,
        }
    )

    def __init__(self, loop: SimLoop, cluster: SimCluster) -> None:
        self.loop = loop
        self.cluster = cluster
        self.nodes = tuple(cluster.nodes)

    async def view(self) -> View:
        cluster = self.cluster
        running = frozenset(each.node_id for each in cluster.running())
        return View(
            running=running,
            paused=frozenset(each for each in running if cluster.nodes[each].host.process.paused),
            ready=frozenset(each for each in running if cluster.nodes[each].ready),
            controller=cluster.leader_id(),
            partitions=dict(self._partitions()),
        )

    def _partitions(self) -> Iterator[tuple[str, PartitionView]]:
        image = self.cluster.newest_image()
        for topic in sorted(image.topics) if image is not None else ():
            index = 0
            while not topic.startswith("__") and (state := self.cluster.state(topic, index)) is not None:
                leader = state.leader if state.leader >= 0 else None
                yield (
                    f"{topic}-{index}",
                    PartitionView(leader, frozenset(state.isr), frozenset(state.replicas)),
                )
                index += 1

    # --- life and death

    async def start(self, node_id: int) -> None:
        if self.cluster.nodes[node_id].leaving:
            await self.cluster.until(lambda: not self.cluster.nodes[node_id].leaving, 30, "a gentle stop")
        self.cluster.start(node_id)

    async def kill(self, node_id: int) -> None:
        self.cluster.crash(node_id, power_loss=False)

    async def power_cut(self, node_id: int) -> None:
        self.cluster.crash(node_id)

    async def terminate(self, node_id: int) -> None:
        self.cluster.leave(node_id)

    async def pause(self, node_id: int) -> None:
        self.cluster.pause(node_id)

    async def resume(self, node_id: int) -> None:
        self.cluster.resume(node_id)

    # --- the network

    async def cut(self, source: int, target: int) -> None:
        self.loop.clog(self.cluster.nodes[source].host, self.cluster.nodes[target].host)

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        raise NotImplementedError

    async def heal_links(self) -> None:
        self.loop.heal()

    # --- the disk and the clock

    async def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        disk = self.cluster.nodes[node_id].host.disk
        disk.on_sync = partial(self.loop.spend, trouble.slow_s) if trouble.slow_s else None

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        raise NotImplementedError

    async def wipe(self, node_id: int) -> None:
        raise NotImplementedError

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        raise NotImplementedError
