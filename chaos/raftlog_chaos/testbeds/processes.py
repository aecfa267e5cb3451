"""Nodes as processes on loopback: signals, and each node's own interface for injected faults.

The network between them is the machine's, so no link is cut here.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import write_file
from raftlog.base.types import METADATA_FOLDER
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.storage.log_directory import META_PROPERTIES
from raftlog.testing.certificates import CertificatesUnusable
from raftlog.testing.cluster import AdminCluster, Cluster
from raftlog.testing.fake_clock import clock_environment, find_libfaketime
from raftlog.testing.node_process import NodeProcess
from raftlog.testing.probe import NO_QUORUM, QuorumView, Topics, view_quorum, view_topics
from raftlog.testing.progress import Stalled
from raftlog.testing.snapshots import copy_data, replace_data
from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.runs.rot import RotWatch
from raftlog_chaos.testbeds.node_clone import NodeClone
from raftlog_chaos.testbeds.restart_in_turn import restart_in_turn
from raftlog_chaos.testbeds.secured import SecuredListener
from raftlog_chaos.testbeds.testbed import Ability, ClusterState, PartitionView, settings_by_node

ASK_TIMEOUT_S = 5.0
CAN_SECURE = True
"""Whether a case may ask for TLS and logins here."""


class ProcessTestbed:
    """A cluster of processes. The nodes themselves do the faults of the disk and the clock, on request."""

    name = "processes"

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.nodes = tuple(cluster.nodes)
        self.abilities = ABILITIES
        self.bootstrap = cluster.bootstrap_servers
        self.client_settings: Mapping[str, str] = {}
        self._secured: SecuredListener | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._chance = chance
        self._down: set[int] = set(self.nodes)
        """Nodes that were stopped on request."""
        self._fallen: dict[int, str] = {}
        """How nodes ended by themselves that were stopped or started again since."""
        self._hung: list[str] = []
        self._rot = RotWatch()
        self._copies: dict[int, Mapping[Path, Path]] = {}
        self._unrefused: list[str] = []
        self._clones: dict[int, NodeClone] = {}

    # --- what it is like

    @property
    def registries(self) -> Mapping[int, str]:
        has_registry = self.cluster.admin and all(
            each.schema_port for each in self.cluster.addresses.values()
        )
        return {each: self.cluster.schema_registry_url(each) for each in self.nodes if has_registry}

    @property
    def admin_urls(self) -> Mapping[int, str]:
        return {each: self.cluster.admin_url(each) for each in self.registries}

    def logs(self) -> Mapping[int, Path]:
        return {node_id: node.log_path for node_id, node in self.cluster.nodes.items()}

    def fallen(self) -> Mapping[int, str]:
        for node_id in self.nodes:
            self._see(node_id)
        return dict(self._fallen)

    def violations(self) -> Sequence[str]:
        secured = self._secured
        unsafe = (
            ()
            if secured is None
            else secured.faults or ("no certificate was renewed",) * (not secured.renewed)
        )
        return (*self._hung, *self._unrefused, *self._rot.unnoticed(), *unsafe)

    def secure(self, folder: Path) -> None:
        """Make clients and brokers use a listener with TLS and logins, before any node starts."""
        self._secured = SecuredListener(self.cluster, folder)
        self.bootstrap, self.client_settings = self._secured.bootstrap, self._secured.client_settings

    async def let_in(self) -> None:
        """Create the clients' logins, once all nodes run, and begin to renew certificates."""
        if self._secured is not None:
            await asyncio.to_thread(self._secured.let_in)
            self._renewing = asyncio.create_task(self._secured.renew_for_ever())

    def _see(self, node_id: int) -> None:
        """Record a node that ended by itself, before a fault or a cure hides it."""
        node = self.cluster.nodes[node_id]
        if node_id not in self._down and not node.running:
            self._fallen.setdefault(node_id, f"ended by itself: {node.log_tail(3)}")

    def _stopping(self, node_id: int) -> None:
        self._see(node_id)
        self._down.add(node_id)

    def running(self) -> frozenset[int]:
        return frozenset(node_id for node_id, node in self.cluster.nodes.items() if node.running)

    def address(self, node_id: int) -> tuple[str, int]:
        """Return the address at which a node serves its HTTP API."""
        host, _, port = self.cluster.nodes[node_id].address.rpartition(":")
        return host, int(port)

    async def view(self) -> ClusterState:
        running = self.running()
        paused = frozenset(node_id for node_id in running if self.cluster.nodes[node_id].paused)
        return await look({node_id: self.address(node_id) for node_id in running}, paused=paused)

    # --- life and death

    async def start(self, node_id: int) -> None:
        if node_id in self._down and self.cluster.nodes[node_id].running:
            await self._gone(node_id)
        if not self.cluster.nodes[node_id].running:
            self._see(node_id)
            self._down.discard(node_id)
            self.cluster.nodes[node_id].start()

    async def kill(self, node_id: int) -> None:
        self._stopping(node_id)
        await asyncio.to_thread(self.cluster.kill, node_id)

    async def power_cut(self, node_id: int) -> None:
        self._stopping(node_id)
        await self._deed("power_cut", node_id, self._chance)

    async def terminate(self, node_id: int) -> None:
        self._stopping(node_id)
        self.cluster.nodes[node_id].signal(signal.SIGTERM)

    async def restart_in_turn(self) -> None:
        await restart_in_turn(self.cluster.admin_url(), self.restart)

    async def restart(self, node_id: int) -> None:
        """Stop a node by SIGTERM, and start it when it has ended."""
        await self.terminate(node_id)
        await self.start(node_id)

    async def _gone(self, node_id: int) -> None:
        """Wait for a node to end; a node without progress hangs, and is killed."""
        node = self.cluster.nodes[node_id]
        try:
            if not node.paused:
                await asyncio.to_thread(node.wait)
        except Stalled as error:
            self._hung.append(f"{error}: {node.log_tail(3)}")
        await asyncio.to_thread(node.kill)

    async def pause(self, node_id: int) -> None:
        if self.cluster.nodes[node_id].running:
            self.cluster.pause(node_id)

    async def resume(self, node_id: int) -> None:
        self.cluster.resume(node_id)

    # --- the network

    async def cut(self, source: int, target: int) -> None:
        raise NotImplementedError

    async def slow_link(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        raise NotImplementedError

    async def heal_links(self) -> None:
        """Return at once: no link is ever cut here."""

    # --- the disk and the clock

    async def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        await self._deed("trouble_disk", node_id, trouble)

    async def flip_bit(self, node_id: int, chance: float) -> bool:
        """Flip it while the node does not run: disks rot, not the pages that a process has just written."""
        topics = sorted({key.rpartition("-")[0] for key in (await self.view()).partitions})
        await self.kill(node_id)
        rot = await self._deed("flip_bit", node_id, topics, chance)
        if rot is not None:
            self._rot.note(node_id, rot, self.cluster.nodes[node_id].log_path)
        await self.start(node_id)
        return rot is not None

    async def wipe(self, node_id: int) -> None:
        await self._deed("wipe", node_id)
        self._rot.forget(node_id)

    async def copy_disk(self, node_id: int) -> None:
        target = self.cluster.directory / "copies" / str(node_id)
        await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
        self._copies[node_id] = await asyncio.to_thread(copy_data, self.cluster.nodes[node_id], target)

    async def roll_back(self, node_id: int, *, metadata: bool) -> bool:
        copies = self._copies.get(node_id)
        if copies is None:
            return False
        kept = "" if metadata else METADATA_FOLDER
        await asyncio.to_thread(replace_data, self.cluster.nodes[node_id], copies, but=kept)
        self._rot.forget(node_id)
        return True

    async def start_without_identity(self, node_id: int, *, foreign: bool) -> None:
        node = self.cluster.nodes[node_id]
        fault = await asyncio.to_thread(_refusal_of, node, foreign)
        if fault:
            self._unrefused.append(f"node {node_id} {fault}")

    async def start_clone(self, node_id: int) -> None:
        await self.pause(node_id)
        try:
            folder = self.cluster.directory / f"clone-{node_id}"
            self._clones[node_id] = await asyncio.to_thread(NodeClone, self.cluster.nodes[node_id], folder)
        finally:
            await self.resume(node_id)
        self._clones[node_id].start()

    async def end_clone(self, node_id: int) -> None:
        clone = self._clones.pop(node_id, None)
        if clone is not None and (fault := await clone.end()):
            self._unrefused.append(fault)

    async def set_clock(self, node_id: int, offset_ms: int) -> None:
        await self._deed("set_clock", node_id, offset_ms)

    async def trouble_log(self, node_id: int, rate: float) -> None:
        raise NotImplementedError

    async def set_start_clock(self, node_id: int, offset_ms: int) -> None:
        self.cluster.nodes[node_id].environment = clock_environment(offset_ms)

    async def _deed(self, name: str, *arguments: Any) -> Any:
        method: Callable[..., Any] = getattr(self.cluster, name)
        return await asyncio.to_thread(method, *arguments)

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        for node_id in list(self._clones):
            await self.end_clone(node_id)
        self.cluster.close()


DEEDS = {
    Ability.SLOW_DISK: "trouble_disk",
    Ability.FULL_DISK: "trouble_disk",
    Ability.FAILING_DISK: "trouble_disk",
    Ability.POWER_CUT: "power_cut",
    Ability.FLIP_BIT: "flip_bit",
    Ability.WIPE: "wipe",
    Ability.CLOCK: "set_clock",
}
ABILITIES = frozenset(
    {Ability.KILL, Ability.TERMINATE, Ability.PAUSE}
    | {Ability.ROLL_BACK, Ability.LOSE_IDENTITY, Ability.CLONE, Ability.RESTART_IN_TURN}
    | {ability for ability, method in DEEDS.items() if hasattr(Cluster, method)}
    | ({Ability.START_CLOCK} if find_libfaketime() else set())
)


def _refusal_of(node: NodeProcess, foreign: bool) -> str:
    """Start a node with wrong meta.properties, and put its own back; return what it did wrong, if anything."""
    logged = node.log_path.stat().st_size
    own = [Path(folder) / META_PROPERTIES for folder in node.folders]
    files = [path for each in own for path in (each, each.with_name(each.name + CHECKSUMS))]
    kept = {path: path.read_bytes() for path in files if path.exists()}
    for path, content in kept.items():
        if path in own:
            write_file(path, _of_another_cluster(content) if foreign else b"")
        else:
            path.unlink()
    try:
        node.start()
        code = node.wait()
    except Stalled:
        return f"runs with a {'foreign' if foreign else 'empty'} {META_PROPERTIES}"
    finally:
        node.kill()
        for path, content in kept.items():
            write_file(path, content)
    said = node.log_path.read_bytes()[logged:].decode(errors="replace")
    reasons = [line for line in said.splitlines() if '"node_failed"' in line]
    if code and any(str(each.parent) in line for each in own for line in reasons):
        return ""
    return f"ended with {code} and names no folder: {said[-300:]}"


def _of_another_cluster(content: bytes) -> bytes:
    return re.sub(rb"(?m)^cluster\.id=.*$", b"cluster.id=AAAAAAAAAAAAAAAAAAAAAA", content)


async def look(addresses: Mapping[int, tuple[str, int]], *, paused: frozenset[int]) -> ClusterState:
    """Ask every running node, at its (host, port), unless it is paused; the newest of the answers counts."""
    awake = sorted(addresses.keys() - paused)
    asked = (asyncio.to_thread(_ask, *addresses[each]) for each in awake)
    answers = dict(zip(awake, await asyncio.gather(*asked), strict=True))
    newest = max((quorum for quorum, _ in answers.values()), key=lambda each: each.term, default=NO_QUORUM)
    known = {node_id: topics for node_id, (_, topics) in answers.items() if topics is not None}
    alive = _alive(known, newest.leader_id)
    return ClusterState(
        running=frozenset(addresses),
        paused=paused,
        ready=frozenset(known) & alive,
        controller=newest.leader_id if newest.leader_id in addresses else None,
        partitions=_newest(known, newest.leader_id, internal=False),
        internal=_newest(known, newest.leader_id, internal=True),
        voters_behind=newest.voters_behind,
    )


def _ask(host: str, port: int) -> tuple[QuorumView, Topics | None]:
    try:
        topics = view_topics(host, port, timeout_s=ASK_TIMEOUT_S)
        return view_quorum(host, port, timeout_s=ASK_TIMEOUT_S), topics
    except (OSError, IndexError, ValueError):
        return NO_QUORUM, None


def _alive(known: Mapping[int, Topics], controller: int) -> frozenset[int]:
    """Return the unfenced nodes as the controller knows them; without it the nodes that all others know."""
    if controller in known:
        return known[controller].broker_ids
    named = [topics.broker_ids for topics in known.values()]
    return frozenset.intersection(*named) if named else frozenset()


def _newest(known: Mapping[int, Topics], controller: int, *, internal: bool) -> dict[str, PartitionView]:
    """Merge the nodes' views of partitions: the highest leader epoch counts, then the controller's view."""
    ranked: dict[tuple[str, int], tuple[tuple[int, bool], PartitionView]] = {}
    for node_id, topics in known.items():
        for where, (epoch, each) in topics.partitions.items():
            if where[0].startswith("__") != internal:
                continue
            rank = (epoch, node_id == controller)
            if where not in ranked or rank > ranked[where][0]:
                view = PartitionView(
                    each.leader if each.leader >= 0 else None, frozenset(each.isr), frozenset(each.replicas)
                )
                ranked[where] = (rank, view)
    return {f"{topic}-{index}": view for (topic, index), (_, view) in sorted(ranked.items())}


P = TypeVar("P", bound=ProcessTestbed)


async def open_testbed(
    directory: Path, *, nodes: int, settings: Mapping[str, str], seed: int, secured: bool = False
) -> ProcessTestbed:
    """Start a cluster in that folder and return it once every node sees all. Raises ClusterError, Unavailable."""
    own = settings_by_node(settings, nodes)
    cluster = AdminCluster(nodes, node_settings=own, directory=directory, faults=True)
    testbed = ProcessTestbed(cluster, random.Random(seed))
    if secured:
        try:
            testbed.secure(directory / "certificates")
        except CertificatesUnusable as error:
            await testbed.close()
            raise Unavailable(str(error)) from error
    return await started(testbed)


async def started(testbed: P) -> P:
    """Start a testbed's nodes, and return it once every node sees all. Raises ClusterError."""
    try:
        for node_id in testbed.nodes:
            await testbed.start(node_id)
        await asyncio.to_thread(testbed.cluster.wait_ready)
        await testbed.let_in()
    except BaseException:
        await testbed.close()
        raise
    return testbed
