"""The simulated cluster as a place: what the faults of `raftlog.proof.faults` can do to it. Every deed is instant."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from raftlog.metadata.image import MetadataImage
from raftlog.proof.place import Ability, DiskTrouble, PartitionView, View, guarded_batches
from raftlog.proof.simulator.cluster import SimCluster


class SimPlace:
    """Hurts a `SimCluster`. `topics`: those whose partitions a view shows; all, unless given."""

    name = "simulator"
    abilities = frozenset(Ability)

    def __init__(
        self, cluster: SimCluster, chance: random.Random, *, topics: frozenset[str] | None = None
    ) -> None:
        self.cluster = cluster
        self.nodes = tuple(cluster.nodes)
        self.topics = topics
        self._chance = chance

    async def view(self) -> View:
        nodes = self.cluster.nodes
        image = self.cluster.newest_image()
        return View(
            running=frozenset(each.node_id for each in self.cluster.running()),
            paused=frozenset(node_id for node_id, each in nodes.items() if each.host.process.paused),
            ready=frozenset(node_id for node_id, each in nodes.items() if each.running and each.ready),
            controller=self.cluster.leader_id(),
            partitions={} if image is None else self._partitions(image),
        )

    def _partitions(self, image: MetadataImage) -> Mapping[str, PartitionView]:
        return {
            f"{name}-{index}": PartitionView(
                leader=state.leader if state.leader >= 0 else None,
                isr=frozenset(state.isr),
                replicas=frozenset(state.replicas),
            )
            for name, topic in image.topics.items()
            if self.topics is None or name in self.topics
            for index, state in enumerate(topic.partitions)
        }

    # --- life and death

    async def start(self, node_id: int) -> None:
        self.cluster.start(node_id)

    async def kill(self, node_id: int) -> None:
        self.cluster.crash(node_id, power_loss=False)

    async def power_cut(self, node_id: int) -> None:
        """Peers may get a reset (a power supply that goes last) or no word at all."""
        self.cluster.crash(node_id, silent=self._chance.random() < 0.5)

    async def terminate(self, node_id: int) -> None:
        self.cluster.leave(node_id, power_loss=self._chance.random() < 0.5)

    async def pause(self, node_id: int) -> None:
        self.cluster.pause(node_id)

    async def resume(self, node_id: int) -> None:
        self.cluster.resume(node_id)

    # --- the network

    async def cut(self, source: int, target: int) -> None:
        hosts = self.cluster.nodes
        self.cluster.loop.clog(hosts[source].host, hosts[target].host)

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        hosts = self.cluster.nodes
        link = self.cluster.loop.network.link(hosts[source].host, hosts[target].host)
        link.extra_s = delay_s
        link.loss = loss

    async def heal_links(self) -> None:
        self.cluster.loop.heal()

    # --- the disk and the clock

    async def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        self.cluster.trouble_disk(node_id, trouble)

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        disk = self.cluster.nodes[node_id].host.disk
        batches = [
            (path, each)
            for folder in disk.listdir("/data")
            if self._concerns(folder)
            for name in disk.listdir(f"/data/{folder}")
            if name.endswith(".log")
            for path in (f"/data/{folder}/{name}",)
            for each in guarded_batches(disk.read_file(path))
        ]
        if not batches:
            return False
        path, batch = batches[int(chance * len(batches))]
        disk.flip_bit(path, batch.start + int(self._chance.random() * len(batch)), self._chance.randrange(8))
        self.cluster.may_rot = True
        return True

    def _concerns(self, folder: str) -> bool:
        topic, _, index = folder.rpartition("-")
        return (
            index.isdigit() and not topic.startswith("__") and (self.topics is None or topic in self.topics)
        )

    async def wipe(self, node_id: int) -> None:
        assert not self.cluster.nodes[node_id].running, f"node {node_id} runs"
        disk = self.cluster.nodes[node_id].host.disk
        for name in disk.listdir("/data"):
            path = f"/data/{name}"
            if name in QUORUM_FILES:
                continue
            if disk.is_folder(path):
                disk.rmtree(path)
            else:
                disk.remove(path)
        disk.sync_dir("/data")

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        self.cluster.nodes[node_id].host.clock_offset_ms = offset_ms


QUORUM_FILES: Final = frozenset({"raftlog-metadata"})
"""What a voter must not lose: its vote and its journal."""
