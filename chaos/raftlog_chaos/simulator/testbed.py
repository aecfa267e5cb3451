"""The simulated cluster as a place: what the faults of `raftlog_chaos.faults` can do to it. Every deed is instant."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator, Mapping
from typing import Final

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.faults.harm import guarded_batches
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.metadata.image import MetadataImage
from raftlog.replication.isr import PendingShrink
from raftlog.replication.leader_role import LeaderRole
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.disk import Extent, SimDisk
from raftlog_chaos.simulator.medium import Folder
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, PartitionView

METADATA: Final = "/data/raftlog-metadata"
"""The files that a voter must not lose: its vote and its journal."""
FOLDERS: Final = 3
"""Folders that are as likely to fail alone as the metadata's folder."""
DRIFTS: Final = (0.0, 0.0, -0.05, 0.05, 10.0)
"""How much too fast a clock goes that jumped, as a share of time."""


class SimTestbed:
    """Injects faults into a `SimCluster`. `topics`: a view shows their partitions; all, unless given."""

    name = "simulator"
    abilities = frozenset(Ability) - {
        Ability.RESTART_IN_TURN,
        Ability.LOSE_IDENTITY,
        Ability.CLONE,
    }

    def __init__(
        self, cluster: SimCluster, chance: random.Random, *, topics: frozenset[str] | None = None
    ) -> None:
        self.cluster = cluster
        self.nodes = tuple(cluster.nodes)
        self.topics = topics
        self._chance = chance
        self._copies: dict[int, Folder] = {}

    async def view(self) -> ClusterState:
        nodes = self.cluster.nodes
        return ClusterState(
            running=frozenset(each.node_id for each in self.cluster.running()),
            paused=frozenset(node_id for node_id, each in nodes.items() if each.host.process.paused),
            ready=frozenset(node_id for node_id, each in nodes.items() if each.running and each.ready),
            controller=self.cluster.leader_id(),
            partitions=self._partitions(self.cluster.last_image(), self.topics),
            internal=self._partitions(self.cluster.last_image(), INTERNAL_TOPICS),
            voters_behind=self.cluster.voters_behind(),
            voters_linked=self.cluster.voters_linked(),
        )

    def _partitions(self, image: MetadataImage, topics: frozenset[str] | None) -> Mapping[str, PartitionView]:
        return {
            f"{name}-{index}": PartitionView(
                leader=state.leader if state.leader >= 0 else None,
                isr=frozenset(state.isr) - self._about_to_leave(state.leader, name, index),
                replicas=frozenset(state.replicas),
            )
            for name, topic in image.topics.items()
            if topics is None or name in topics
            for index, state in enumerate(topic.partitions)
        }

    def _about_to_leave(self, leader_id: int, topic: str, index: int) -> frozenset[int]:
        """Return the node that leaves the ISR by a request that may outlive its leader."""
        leader = self.cluster.replica(leader_id, topic, index) if leader_id in self.cluster.nodes else None
        isr = leader.role.isr if leader is not None and isinstance(leader.role, LeaderRole) else None
        return isr.leaving if isinstance(isr, PendingShrink) else frozenset()

    # --- life and death

    async def start(self, node_id: int) -> None:
        self.cluster.start(node_id)

    async def kill(self, node_id: int) -> None:
        self.cluster.crash(node_id, power_loss=False)

    async def power_cut(self, node_id: int) -> None:
        """Cut a node's power. Peers may get a reset (a power supply that goes last) or no packet at all."""
        self.cluster.crash(node_id, silent=self._chance.random() < 0.5)

    async def terminate(self, node_id: int) -> None:
        self.cluster.leave(node_id, power_loss=self._chance.random() < 0.5)

    async def restart_in_turn(self) -> None:
        raise NotImplementedError

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
        """Disturb a node's disk. A failing disk fails as a whole or in one folder, always or now and then, or only
        once.
        """
        failures = self._failures(node_id, trouble.failing) if trouble.failing else ()
        self.cluster.trouble_disk(node_id, trouble, *failures)

    def _failures(self, node_id: int, kind: str) -> Iterator[tuple[str, Extent]]:
        disk = self.cluster.nodes[node_id].host.disk
        with disk.undisturbed():
            folders = [f"/data/{each}" for each in disk.listdir("/data") if disk.is_folder(f"/data/{each}")]
        extent = Extent(
            under=self._chance.choice(
                ("/", "/", METADATA, *self._chance.sample(folders, min(FOLDERS, len(folders))))
            ),
            rate=self._chance.choice((1.0, 1.0, 0.2)),
            times=self._chance.choice((None, None, 1, 5)),
            torn=self._chance.random() < 0.5,
        )
        yield kind, extent
        if kind != "open" and self._chance.random() < 0.6:  # the file system needs its device for names, too
            yield ("open" if kind == "read" else "name"), extent

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        disk = self.cluster.nodes[node_id].host.disk
        with disk.undisturbed():
            batches = list(self._batches(disk))
        if not batches:
            return False
        path, batch = batches[int(chance * len(batches))]
        position = batch.start + int(self._chance.random() * len(batch))
        self.cluster.may_rot = True
        return disk.rot(path, position, self._chance.randrange(8))

    def _batches(self, disk: SimDisk) -> Iterator[tuple[str, range]]:
        """Yield (path of a segment, where in it rot must be noticed)."""
        for folder in disk.listdir("/data"):
            for name in disk.listdir(f"/data/{folder}") if self._concerns(folder) else ():
                if name.endswith(".log"):
                    path = f"/data/{folder}/{name}"
                    yield from ((path, each.where) for each in guarded_batches(disk.read_file(path)))

    def _concerns(self, folder: str) -> bool:
        topic, _, index = folder.rpartition("-")
        return (
            index.isdigit() and not topic.startswith("__") and (self.topics is None or topic in self.topics)
        )

    async def wipe(self, node_id: int) -> None:
        self.cluster.wipe(node_id)

    async def copy_disk(self, node_id: int) -> None:
        """Copy a node's disk. The node may run, since a snapshot of a machine is such a copy, too."""
        self._copies[node_id] = self.cluster.nodes[node_id].host.disk.snapshot()

    async def roll_back(self, node_id: int, *, metadata: bool) -> bool:
        assert not self.cluster.nodes[node_id].running, f"node {node_id} runs"
        copy = self._copies.get(node_id)
        if copy is not None:
            kept = "" if metadata else posixpath.basename(METADATA)
            self.cluster.nodes[node_id].host.disk.restore(copy, "/data", but=kept)
        return copy is not None

    async def start_without_identity(self, node_id: int, *, foreign: bool) -> None:
        raise NotImplementedError  # the scenario `voter-identity` does it

    async def start_clone(self, node_id: int) -> None:
        raise NotImplementedError  # the scenario `voter-identity` does it

    async def end_clone(self, node_id: int) -> None:
        raise NotImplementedError

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        """Let a node's wall clock jump; from then on it may drift, too."""
        drift = self._chance.choice(DRIFTS) if offset_ms else 0.0
        self.cluster.nodes[node_id].host.set_clock(offset_ms, drift=drift)

    async def trouble_log(self, node_id: int, rate: float) -> None:
        self.cluster.nodes[node_id].host.log_failure_rate = rate

    async def set_start_clock(self, node_id: int, offset_ms: int) -> None:
        assert not self.cluster.nodes[node_id].running, f"node {node_id} runs"
        self.cluster.nodes[node_id].host.set_clock(offset_ms)
