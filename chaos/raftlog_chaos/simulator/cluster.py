"""Whole nodes on simulated hosts: the very `Node` that production runs, with a simulated disk, network and clock.

It starts, crashes and restarts them and looks inside; it has no notion of workloads and correctness.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from errno import EIO, EMFILE
from functools import partial
from typing import Any, Final

from raftlog.base.config import load_config
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.metadata.features import SUPPORTED_FEATURES
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.node import Node, NodeFailed
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.replication.partition import Partition
from raftlog_chaos.invariants import Invariants, Violations
from raftlog_chaos.simulator.disk import CHANGES, Extent, SimDisk
from raftlog_chaos.simulator.env import SimEnv
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.testbeds.testbed import NODE_ID

PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
LOOK_S: Final = 0.01
"""How often `until` looks, virtual seconds."""

HASTE: Final = {
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "512",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "900",
    "replica.high.watermark.checkpoint.interval.ms": "400",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
"""Small segments and frequent checkpoints, so that seconds hold what takes production days."""


class SimNode:
    """A place for a node: its host, its settings, and the running node, if any."""

    def __init__(self, host: Host, node_id: int, settings: Mapping[str, str]) -> None:
        self.host = host
        self.node_id = node_id
        self.config = load_config(settings)
        self.features = SUPPORTED_FEATURES
        """The levels that the installed release supports; a node has them from its next start on."""
        self.node: Node | None = None
        self.running = False
        self.started = False
        self.leaving = False
        self.back = False
        """It is to start again when it has left."""
        self.usual_sync: Callable[[], None] | None = None
        """The cost of a sync of its disk without a fault."""
        self.troubled = False
        """Its disk failed in this life: it may stop itself, and starts again on request."""
        self.cramped = False
        """Its disk was full while it started in this life: without room no log is recovered, so it may end as well."""
        self.too_old = False
        """The installed release lacks a level that the cluster has, so a node may end itself."""

    @property
    def ready(self) -> bool:
        node = self.node
        return node is not None and node.broker is not None and node.broker.lifecycle.unfenced.is_set()


class SimCluster:
    """Nodes 1 to `nodes` on hosts node1, node2, …, each broker and voter; `settings` go to all.

    `failures` gathers what no fault excuses: a node that cannot start or go on, and every broken invariant.
    """

    def __init__(
        self,
        loop: SimLoop,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        compaction: SnapshotPolicy | None = None,
    ) -> None:
        self.loop = loop
        self.compaction = compaction
        self.failures = Violations()
        self.failures.chronicle = loop.chronicle
        self.invariants = Invariants(self.failures, loop.chronicle)
        loop.observer = self.invariants.stepped
        self.watchers: list[Callable[[int, Node], object]] = []
        """They hear of each life of a node before it begins."""
        self.dead: set[int] = set()
        """Nodes that never start again."""
        self.may_rot = False
        """Whether disks may rot here, so that a damaged log is no failure."""
        voters = ",".join(f"{each}@node{each}:{CONTROLLER_PORT}" for each in range(1, nodes + 1))
        self.nodes: dict[int, SimNode] = {}
        for node_id in range(1, nodes + 1):
            own = {**HASTE, **_settings(node_id, voters)}
            own |= {name: value.replace(NODE_ID, str(node_id)) for name, value in (settings or {}).items()}
            self.nodes[node_id] = SimNode(loop.host(f"node{node_id}"), node_id, own)

    @property
    def bootstrap(self) -> tuple[tuple[str, int], ...]:
        return tuple((each.host.name, PORT) for each in self.nodes.values())

    # -- life and death -----------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Start stopped nodes (default: all); a node that is shutting down starts after that, a dead node never."""
        for node_id in [each for each in node_ids or self.nodes if each not in self.dead]:
            sim_node = self.nodes[node_id]
            sim_node.back = sim_node.leaving
            if not sim_node.running:
                sim_node.running = True
                sim_node.troubled = sim_node.host.disk.fails
                sim_node.cramped = sim_node.host.disk.is_full
                sim_node.host.start(self._run(sim_node))

    async def _run(self, sim_node: SimNode) -> None:
        node = sim_node.node = Node(sim_node.config, SimEnv(sim_node.host), features=sim_node.features)
        if self.compaction is not None and node.control.quorum is not None:
            node.control.quorum.snapshot_policy = self.compaction
        node.metadata.subscribe_each(self.invariants.began(sim_node.host, sim_node.node_id, node))
        for watcher in self.watchers:
            watcher(sim_node.node_id, node)
        try:
            await node.start()
        except Exception as error:
            if sim_node.node is not node:
                return  # its power went
            if not (sim_node.troubled or sim_node.too_old or sim_node.host.disk.is_full):
                self.failures.append(f"node {sim_node.node_id} did not start: {error!r}")
                if isinstance(error, NodeFailed):
                    return
                raise
        else:
            if sim_node.node is not node:
                return  # its power went, and it made the best of a disk that answers no more
            sim_node.started = True
            reason = await node.failed
            if not (sim_node.troubled or sim_node.too_old or sim_node.cramped):
                self.failures.append(f"node {sim_node.node_id} stopped itself: {reason}")
                return
        sim_node.host.note("ended itself")
        self.loop.main.call(self.crash_if, sim_node, node, False)

    def crash(self, *node_ids: int, power_loss: bool = True, silent: bool = False) -> None:
        """Kill -9, with or without the loss of what was not synced; paused nodes die as well."""
        for node_id in node_ids:
            sim_node = self.nodes[node_id]
            self.invariants.ended(sim_node.host.name, midway=self.loop.process() is sim_node.host.process)
            if sim_node.host.process.paused:
                sim_node.host.resume()
            sim_node.node = None
            sim_node.running = sim_node.started = sim_node.leaving = False
            sim_node.host.crash(power_loss=power_loss, silent=silent)

    def restart(self, *node_ids: int, power_loss: bool = True) -> None:
        self.crash(*node_ids, power_loss=power_loss)
        self.start(*node_ids)

    def leave(self, node_id: int, *, power_loss: bool = True) -> None:
        """Shut a started node down gently (SIGTERM); the process ends when that is done, and all must be durable."""
        sim_node = self.nodes[node_id]
        if sim_node.started and not sim_node.leaving:
            sim_node.leaving = True
            sim_node.host.start(self._leave(sim_node, power_loss))

    async def _leave(self, sim_node: SimNode, power_loss: bool) -> None:
        assert sim_node.node is not None
        await sim_node.node.shut_down()
        self.loop.main.call(self.crash_if, sim_node, sim_node.node, power_loss)

    def crash_if(self, sim_node: SimNode, node: Node, power_loss: bool) -> None:
        """Crash the place if that node still runs there; start it again if a start was requested meanwhile."""
        if sim_node.node is node:
            back, sim_node.back = sim_node.back, False
            self.crash(sim_node.node_id, power_loss=power_loss)
            if back:
                self.start(sim_node.node_id)

    def crash_at_work(
        self,
        node_id: int,
        changes: int,
        then: Callable[[], object],
        *,
        counted: frozenset[str] = CHANGES,
        under: str = "/",
    ) -> None:
        """Cut the power in the midst of the node's disk operations, after so many more changes; then `then`.

        It has no effect unless the node runs, nor if it crashes before. `counted`: the operations that count as
        changes, `under` a folder.
        """
        sim_node = self.nodes[node_id]

        def spring() -> None:
            self.crash(node_id)
            self.loop.main.call(then)

        if sim_node.running:
            sim_node.host.disk.set_trap(changes, spring, counted=counted, under=under)

    def wipe(self, node_id: int) -> None:
        """Empty the disk of a stopped node, as if the disk was replaced."""
        assert not self.nodes[node_id].running, f"node {node_id} runs"
        disk = self.nodes[node_id].host.disk
        with disk.undisturbed():
            disk.rmtree("/data")
            disk.mkdir("/data")
            disk.sync_dir("/")

    def trouble_disk(self, node_id: int, trouble: DiskTrouble, *failures: tuple[str, Extent]) -> None:
        """Set the state of a node's disk. While it fails, and until the node starts anew, the node may end itself.

        `failures`: which operations fail and where, instead of all of the kind that the trouble names. A full disk is
        no reason to end, but for a node that was starting: it can't recover its logs.
        """
        sim_node = self.nodes[node_id]
        disk = sim_node.host.disk
        disk.mend()
        disk.make_room()
        disk.on_sync = (
            partial(self._sync_slowly, disk, trouble.slow_s) if trouble.slow_s else sim_node.usual_sync
        )
        for operation, extent in failures or ((trouble.failing, Extent()),) * bool(trouble.failing):
            disk.fail(operation, error=EMFILE if trouble.failing == "open" else EIO, extent=extent)
        if trouble.full:
            disk.fill()
        sim_node.troubled |= bool(trouble.failing)
        sim_node.cramped |= trouble.full and not sim_node.started

    def _sync_slowly(self, disk: SimDisk, slow_s: float) -> None:
        disk.effects["sync slow"] += 1
        self.loop.spend(slow_s)

    @property
    def effects(self) -> Counter[str]:
        """Return how often nodes felt faults of disks, links and logs, by effect."""
        disks = (each.host.disk.effects for each in self.nodes.values())
        lines = sum(each.host.lines_failed for each in self.nodes.values())
        return sum(disks, start=Counter(self.loop.network.effects) + Counter({"line failed": lines}))

    def pause(self, node_id: int) -> None:
        if self.nodes[node_id].running:
            self.nodes[node_id].host.pause()

    def resume(self, node_id: int) -> None:
        if self.nodes[node_id].host.process.paused:
            self.nodes[node_id].host.resume()

    # -- looking inside -----------------------------------------------------------------------------------------

    def running(self) -> list[SimNode]:
        return [each for each in self.nodes.values() if each.running]

    def leader_id(self) -> int | None:
        """Return the node that leads the highest term of the quorum, of the nodes that consider themselves leader."""
        leading = [
            (each.node.control.quorum.term, each.node_id)
            for each in self.running()
            if each.node and each.node.control.quorum and each.node.control.quorum.leading
        ]
        return max(leading)[1] if leading else None

    def last_image(self) -> MetadataImage:
        """Return the newest metadata that any node ever had: while its holders are down, running nodes may be stale."""
        return self.invariants.newest_image

    def newest_image(self) -> MetadataImage | None:
        images = [each.node.metadata.image for each in self.running() if each.node]
        return max(images, key=lambda image: image.offset, default=None)

    def voters_behind(self) -> frozenset[int]:
        """Return the voters that lack metadata that any node ever had, or whose directory is not recorded."""
        image = self.last_image()
        return frozenset(each.node_id for each in self.nodes.values() if _is_behind(each, image))

    def voters_linked(self) -> bool:
        """Return whether all voters run and are linked to each other."""
        quorums = [each.node and each.node.control.quorum for each in self.nodes.values()]
        return all(quorum and quorum.linked(other) for quorum in quorums for other in self.nodes)

    def state(self, topic: str, index: int) -> PartitionState | None:
        """Return a partition's state in the newest image."""
        image = self.newest_image()
        return None if image is None else image.partition(topic, index)

    def replica(self, node_id: int, topic: str, index: int) -> Partition | None:
        """Return the replica in the node's memory; None on a node that is down, or if `node_id` is -1."""
        found = self.nodes.get(node_id)
        node = None if found is None else found.node
        if node is None or node.broker is None:
            return None
        return node.broker.replicas.partitions.get(TopicPartition(topic, index))

    def leader_replica(self, topic: str, index: int) -> tuple[SimNode, Partition] | None:
        """Return the leader of a partition, as the newest metadata says, and its replica; None if that node is down."""
        state = self.state(topic, index)
        replica = None if state is None else self.replica(state.leader, topic, index)
        return None if state is None or replica is None else (self.nodes[state.leader], replica)

    def all_in_sync(self) -> bool:
        """Return whether each partition has a leader, and all its replicas in its ISR, as the newest metadata says."""
        image = self.newest_image()
        return image is not None and all(
            state.leader != NO_BROKER and set(state.isr) == set(state.replicas)
            for topic in image.topics.values()
            for state in topic.partitions
        )

    def check(self) -> None:
        """Check that no event happened that no fault excuses. Raises AssertionError."""
        self.invariants.look_at_all()
        failures = [*self.failures, *map(_describe, self.loop.failures)]
        for sim_node in self.nodes.values():
            # snapshots of producers are never synced: a start without them reads the records
            risked = [each for each in sim_node.host.disk.risked if not each.endswith(".snapshot")]
            failures += [
                f"node {sim_node.node_id} replaced {each} before its bytes were synced" for each in risked[:1]
            ]
        for sim_node in self.running():
            broker = sim_node.node.broker if sim_node.node else None
            for name, each in broker.replicas.partitions.items() if broker else ():
                # without rot, these disks only forget and tear unsynced writes
                if each.log.damage is not None and not self.may_rot:
                    failures.append(f"node {sim_node.node_id} takes {name} for damaged: {each.log.damage}")
        assert not failures, "; ".join(failures)

    async def until(self, condition: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait in virtual time. AssertionError says what did not come."""
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"{what}: not within {seconds} virtual seconds"
            self.check()
            await asyncio.sleep(LOOK_S)

    async def until_ready(self, node_ids: Iterable[int] = (), seconds: float = 30.0) -> None:
        """Wait until nodes (default: all that are not dead) are unfenced."""
        chosen = tuple(node_ids) or tuple(each for each in self.nodes if each not in self.dead)
        await self.until(
            lambda: all(self.nodes[each].ready for each in chosen), seconds, f"nodes {chosen} unfenced"
        )


def _settings(node_id: int, voters: str) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://0.0.0.0:{PORT},CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://node{node_id}:{PORT}",
        "log.dirs": "/data",
        "raftlog.cluster.secret": "a secret of the simulation",
    }


def _is_behind(sim_node: SimNode, image: MetadataImage) -> bool:
    node = sim_node.node
    quorum = None if node is None else node.control.quorum
    if node is None or quorum is None or not quorum.started or node.metadata.image.offset < image.offset:
        return True
    directory_id = quorum.driver.directory_id
    return image.voters.get(sim_node.node_id, directory_id) != directory_id


def _describe(uncaught: dict[str, Any]) -> str:
    """Return the uncaught error, and where it was raised."""
    error = uncaught.get("exception")
    if error is None:
        return str(uncaught.get("message"))
    return "".join(traceback.format_exception(error)).rstrip()
