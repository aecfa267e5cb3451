"""A cluster of node processes: started, killed, paused, resumed, restarted, given faults, healed, and reliably stopped.

Nodes are reached by the Kafka port, by signals, and through their files while they do not run. With `faults` they also
inject faults into their own disks, clocks and links on request. They end with the process that holds the cluster, even
when that is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from raftlog.base.faults import ClockJump, CutOff, name_of
from raftlog.faults import harm
from raftlog.faults.node_faults import faults_of
from raftlog.faults.power_cut import Loss, at_risk, cut_power
from raftlog.faults.troubled_disk import DiskTrouble
from raftlog.testing import topics
from raftlog.testing.evidence import NodeAddress
from raftlog.testing.forked_process import fork_server
from raftlog.testing.hosts import Addresses, Hosts, Loopback, own_settings
from raftlog.testing.node_process import NOT_MADE_FOR_FAULTS, NodeProcess, Nodes, environment_of_nodes
from raftlog.testing.ports import HeldPorts
from raftlog.testing.probe import (
    ClusterView,
    Login,
    NewTopic,
    PartitionView,
    find_controller,
    is_open,
    view_cluster,
    view_topic,
    view_topics,
)
from raftlog.testing.progress import Stalled, wait_until
from raftlog.testing.snapshots import Snapshot, copy_data, replace_data
from raftlog.testing.topics import TopicRefused

if TYPE_CHECKING:
    from raftlog.testing.reading import ConsumedRecord

PROTOCOLS = "listener.security.protocol.map"


class ClusterError(RuntimeError):
    """The cluster did not do what was waited for. The lines after the first are the logs of the nodes concerned."""


class Cluster:
    """Nodes 1 to `nodes`, on loopback. Use as a context manager, `async` or not, or call `start` and `close`.

    `settings` go to every node, `node_settings` to single nodes. The first `voters` nodes (default: all, at most five)
    are broker and controller, the others brokers only. `directory` is kept, a temporary folder is removed at the end.
    With `faults` nodes can be troubled and lose their power; a folder that ran so must go on so.
    """

    admin = False
    """Whether each node has its HTTP API, at `admin_url`; see AdminCluster."""

    listener = "PLAINTEXT"
    """The name of the listener for clients and brokers."""

    login: Login | None = None
    """How this cluster's own questions log in; see SecureCluster."""

    forked = True
    """Whether nodes are forked from one process that has imported raftlog, which takes them less time."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        node_settings: Mapping[int, Mapping[str, str]] | None = None,
        voters: int | None = None,
        directory: Path | str | None = None,
        faults: bool = False,
    ) -> None:
        if not isinstance(nodes, int) or nodes < 1:
            raise ValueError(f"nodes: must be a whole number of at least 1, not {nodes!r}")
        if self.forked:
            fork_server(environment_of_nodes())  # it imports while the rest is made ready
        self.errors_have_logs = True  # a test's report has them in sections instead
        self.fault_log: list[str] = []
        """The faults of nodes so far, for the report of a failed test."""
        self._owner = os.getpid()
        self._chance = random.Random()
        self._more_ports: list[HeldPorts] = []
        self._temporary = False
        self.nodes: dict[int, NodeProcess] = Nodes()
        self._hosts = self.open_hosts(nodes)
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="raftlog-") if directory is None else directory)
            self._temporary = directory is None
            voters = min(nodes, 5) if voters is None else voters
            for node_id, own in own_settings(
                self._hosts.addresses, voters, admin=self.admin, listener=self.listener
            ).items():
                more = {**(settings or {}), **(node_settings or {}).get(node_id, {})}
                self.nodes[node_id] = self._prepare(node_id, own, more, faults=faults)
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    def _prepare(
        self, node_id: int, own: Mapping[str, str], more: Mapping[str, str], *, faults: bool
    ) -> NodeProcess:
        folder = self.directory / f"node-{node_id}"
        merged = {
            "group.initial.rebalance.delay.ms": "0",  # no test needs to wait three seconds for a first consumer
            **own,
            "log.dirs": str(folder / "data"),
            **self.settings_of(node_id),
            **more,
        }
        port = self._hosts.addresses[node_id].port
        node = self.make_node(node_id, folder, settings=merged, port=port, hosts=self._hosts, faults=faults)
        node.forked = self.forked
        return node

    def open_hosts(self, nodes: int) -> Hosts:
        """Return where the nodes are to live; a cluster elsewhere than on loopback overrides this."""
        return Loopback(nodes)

    def make_node(self, node_id: int, folder: Path, **options: Any) -> NodeProcess:
        """Return a node that does not run yet; a cluster without node processes overrides this."""
        return NodeProcess(node_id, folder, **options)

    def settings_of(self, node_id: int) -> Mapping[str, str]:
        """Return settings of a node that depend on the kind of cluster; the caller's settings take precedence."""
        assert node_id in self._hosts.addresses
        return {}

    # --- the whole

    def start(self) -> float:
        """Start all nodes and wait until they are ready; returns how many seconds that took. Raises ClusterError."""
        began = time.monotonic()
        for node in self.nodes.values():
            node.start()
        self._wait_started(self.nodes)
        return time.monotonic() - began

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        with ThreadPoolExecutor(1) as thread:  # a loop in the same network as this thread
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, self.__enter__)
            except asyncio.CancelledError:
                self.leave()
                thread.submit(self.close)  # which comes after the start
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        await asyncio.to_thread(self.close)

    def leave(self) -> None:
        """Bring the calling thread back to where it was before it made the cluster; on loopback it is there."""

    def close(self) -> None:
        """Kill whatever runs, remove temporary data, give the ports back. May be called again.

        A forked child of the process that made the cluster leaves it alone, when the child ends too.
        """
        atexit.unregister(self.close)
        if os.getpid() != self._owner:
            return
        for node in self.nodes.values():
            node.signal(signal.SIGKILL)
        for node in self.nodes.values():
            node.kill()
        self._hosts.release()
        for held in self._more_ports:
            held.release()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def addresses(self) -> Mapping[int, Addresses]:
        """The address of each node."""
        return self._hosts.addresses

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def servers(self) -> list[str]:
        """The same as a list, for clients that take a text as a single server."""
        return [node.address for node in self.nodes.values()]

    def node_addresses(self) -> list[NodeAddress]:
        """Return where others find each node."""
        return [
            NodeAddress(
                node_id, node.address, str(node.log_path), self.admin_url(node_id) if self.admin else ""
            )
            for node_id, node in self.nodes.items()
        ]

    def add_listener(self, name: str, protocol: str) -> Mapping[int, int]:
        """Let nodes that are started from now on have a further listener; returns its port on each node."""
        held = HeldPorts(len(self.nodes))
        self._more_ports.append(held)
        ports = dict(zip(self.nodes, held.ports, strict=True))
        for node_id, node in self.nodes.items():
            known = node.setting(PROTOCOLS) or "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            more = {PROTOCOLS: f"{known},{name}:{protocol}"}
            for setting in ("listeners", "advertised.listeners"):
                more[setting] = f"{node.setting(setting)},{name}://{node.host}:{ports[node_id]}"
            node.configure(more)
        return ports

    def limit_files(self, count: int) -> None:
        """Let nodes that are started from now on open so many files at most."""
        for node in self.nodes.values():
            node.open_files = count

    # --- single nodes

    def admin_url(self, node_id: int = 1) -> str:
        """Return where a node's HTTP API is, without a slash at the end. Raises ValueError where there is none."""
        if not self.admin:
            raise ValueError("the nodes of this cluster have no HTTP API: use an AdminCluster")
        each = self._hosts.addresses[node_id]
        return f"http://{each.host}:{each.admin_port}"

    def schema_registry_url(self, node_id: int = 1) -> str:
        """Return the URL of a node's schema registry."""
        each = self.addresses[node_id]
        assert self.admin and each.schema_port, "this cluster has no schema registry; see AdminCluster"
        return f"http://{each.host}:{each.schema_port}"

    def note_fault(self, event: str) -> None:
        """Note what was done to a node, for the report of a failed test: after it was done, as it may be refused."""
        self.fault_log.append(f"{datetime.now(UTC):%H:%M:%S.%f}"[:12] + f" {event}")

    def kill(self, node_id: int) -> None:
        """Kill -9 a node."""
        self.nodes[node_id].kill()
        self.note_fault(f"node {node_id} killed")

    def stop(self, node_id: int) -> int:
        """Ask a node to stop (SIGTERM) and wait for it; returns its exit code. Raises ClusterError."""
        self.nodes[node_id].signal(signal.SIGTERM)
        self.note_fault(f"node {node_id} stopped")
        try:
            return self.nodes[node_id].wait()
        except Stalled as error:
            raise self._error(str(error), [node_id]) from None

    def pause(self, node_id: int) -> None:
        """Stop a node in its tracks (SIGSTOP); its connections stay open."""
        self.nodes[node_id].signal(signal.SIGSTOP)
        self.nodes[node_id].paused = True
        self.note_fault(f"node {node_id} paused")

    def resume(self, node_id: int) -> None:
        """Let a paused node go on (SIGCONT)."""
        self.nodes[node_id].signal(signal.SIGCONT)
        self.nodes[node_id].paused = False
        self.note_fault(f"node {node_id} resumed")

    def restart(self, node_id: int, *, wait: bool = True) -> None:
        """Start a node again on its old data, killing it first if it runs."""
        self.nodes[node_id].kill()
        self.nodes[node_id].start()
        self.note_fault(f"node {node_id} restarted")
        if wait:
            self._wait_started([node_id])

    # --- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every partition has a leader. Raises ClusterError with the broker's reason.

        A replication factor of -1 is three, or as many as there are nodes.
        """
        topic = NewTopic(name, partitions, replication_factor, settings or {})
        try:
            topics.create(self._running_places(), topic, login=self.login)
        except (TopicRefused, Stalled, OSError) as error:
            raise self._error(str(error), self.nodes) from error

    def read(self, topic: str, count: int = 0, *, timeout: float | None = None) -> list[ConsumedRecord]:
        """Return the committed records of a topic by partition and offset, once there are at least `count`.

        Raises ClusterError if they cannot be read, or do not come (within `timeout` seconds, if it is given).
        """
        from raftlog.testing.reading import CannotRead, read

        places = self._running_places()
        try:
            return read(places, topic, count=count, timeout_s=timeout, login=self.login)
        except (CannotRead, Stalled) as error:
            raise self._error(str(error), self.nodes) from None

    def _running_places(self) -> list[tuple[str, int]]:
        return [(self.nodes[each].host, self.nodes[each].port) for each in sorted(self.running_ids())]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Wait until a partition has a leader that runs, and return its node id.

        Raises ClusterError, at once if all nodes that run answer and none of them knows the partition.
        """
        found = -1

        def is_led() -> bool:
            nonlocal found
            if (view := self.partitions(topic).get(partition)) is None:
                self._check_exists(topic, partition)
            found = -1 if view is None else view.leader
            return found in self.running_ids()

        self.wait_until(is_led, f"{topic}-{partition} has a leader", seen=lambda: self._leaders(topic))
        return found

    def _check_exists(self, topic: str, partition: int) -> None:
        """Raise ClusterError if all nodes that run answer, and none of them knows a partition."""
        known: set[int] = set()
        for node_id in self.running_ids():
            node = self.nodes[node_id]
            try:
                known |= view_topic(node.host, node.port, topic, login=self.login).keys()
            except OSError:
                return
        if partition not in known:
            raise self._error(
                f"topic {topic} has no partition {partition}, but 0 to {max(known)}"
                if known
                else f"there is no topic {topic}",
                (),
            )

    def _leaders(self, topic: str) -> str:
        led = ", ".join(f"{index} {each.leader}" for index, each in sorted(self.partitions(topic).items()))
        return f"the leaders of its partitions ({led}); nodes {sorted(self.running_ids())} run"

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kill -9 the leader of a partition and return its node id. Raises ClusterError, as `leader`."""
        leader = self.leader(topic, partition)
        self.kill(leader)
        return leader

    # --- harm

    def slow_disk(self, node_id: int, seconds: float) -> None:
        """Let every sync of a node's disk take that much longer; needs `faults`. Raises TimeoutError."""
        self.trouble_disk(node_id, DiskTrouble(slow_s=seconds))
        self.note_fault(f"node {node_id} syncs its disk {seconds} s more slowly")

    def heal(self) -> None:
        """End all faults: paused nodes continue, killed nodes restart, and other faults end.

        Raises ClusterError.
        """
        for node_id, node in self.nodes.items():
            if node.can_be_hurt:
                self.trouble_disk(node_id, DiskTrouble())
                self.set_clock(node_id, 0)
                self.cut_off(node_id, is_cut=False)
            if node.paused and node.running:
                self.resume(node_id)
            elif not node.running:
                self.restart(node_id, wait=False)
        self._wait_started(self.nodes)

    def trouble_disk(self, node_id: int, trouble: DiskTrouble) -> None:
        """Set the state of a node's disk, also for its next lives; `DiskTrouble()` heals it. Raises TimeoutError."""
        for name, fault in faults_of(trouble).items():
            self.nodes[node_id].hurt(name, fault)

    def set_clock(self, node_id: int, offset_ms: int) -> None:
        """Let a node's wall clock be that far from the true time, also in its next lives. Raises TimeoutError."""
        self.nodes[node_id].hurt("clock-jump", ClockJump(offset_ms) if offset_ms else None)

    def cut_off(self, node_id: int, *, is_cut: bool = True) -> None:
        """Cut a node off from the other nodes, also in its next lives, but not from clients. Raises TimeoutError."""
        self.nodes[node_id].hurt(name_of(CutOff()), CutOff() if is_cut else None)

    def power_cut(self, node_id: int, chance: random.Random | None = None) -> Loss:
        """Kill -9 a node and take from its files what was not synced, or a part of it; returns what that was."""
        node = self.nodes[node_id]
        if not node.can_be_hurt:
            raise ValueError(NOT_MADE_FOR_FAULTS)  # what it has not synced is written down nowhere
        node.kill()
        return cut_power(node.folders, chance or self._chance)

    def at_risk(self, node_id: int) -> dict[str, int]:
        """Return how many bytes of which files of a node a power cut could take now."""
        return at_risk(self.nodes[node_id].folders)

    def flip_bit(self, node_id: int, topics: Iterable[str], share: float) -> harm.Rot | None:
        """Flip one bit in a segment of these topics, at that share (0 to 1) of their bytes; None: there are none."""
        return harm.flip_bit(self.nodes[node_id].folders, topics, share)

    def wipe(self, node_id: int) -> None:
        """Empty a stopped node's folders, its metadata log too: it comes back with a new disk.

        It votes again only after it has been back for five seconds, so losing another node before may stop the quorum.
        """
        assert not self.nodes[node_id].running, f"node {node_id} is running"
        harm.wipe(self.nodes[node_id].folders)

    # --- snapshots

    def snapshot(self) -> Snapshot:
        """Stop all nodes, copy their data, and start them again; returns the copy, for `restore`. Raises ClusterError.

        It is removed with the cluster's folder.
        """
        folder = self.directory / "snapshots" / secrets.token_hex(4)
        self._end_gently()
        copied = Snapshot({node_id: copy_data(node, folder) for node_id, node in self.nodes.items()})
        self._start_again()
        return copied

    def restore(self, snapshot: Snapshot) -> None:
        """Kill all nodes, put the data of a snapshot in the place of theirs, and start them. Raises ClusterError."""
        for node in self.nodes.values():
            node.signal(signal.SIGKILL)
        for node_id, node in self.nodes.items():
            node.kill()
            replace_data(node, snapshot.folders[node_id])
        self._start_again()

    def _end_gently(self) -> None:
        """Let every node write down what it knows. The second signal spares it the search for new leaders."""
        for node in self.nodes.values():
            if node.paused:
                self.resume(node.node_id)
            node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            if node.running:
                node.wait()

    def _start_again(self) -> None:
        for node in self.nodes.values():
            node.start()
        self._wait_started(self.nodes)

    # --- what it is like

    def running_ids(self) -> frozenset[int]:
        """Return the ids of the nodes that run, and are neither paused nor cut off."""
        return frozenset(
            node_id
            for node_id, node in self.nodes.items()
            if node.running and not node.paused and not node.is_cut_off
        )

    def view(self, node_id: int) -> ClusterView:
        """Return how a node sees the cluster. Raises OSError while it does not answer."""
        return view_cluster(self.nodes[node_id].host, self.nodes[node_id].port, login=self.login)

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """Return a topic's partitions as the first answering node sees them; empty while none answers."""
        for host, port in self._running_places():
            try:
                return view_topic(host, port, topic, login=self.login)
            except OSError:
                continue
        return {}

    def controller_id(self) -> int | None:
        """Return the active controller as the first answering node knows it, or None."""
        for host, port in self._running_places():
            try:
                controller = find_controller(host, port, login=self.login)
            except OSError:
                continue
            if controller in self.running_ids():
                return controller
        return None

    def _wait_started(self, node_ids: Iterable[int]) -> None:
        """Wait for nodes that were just started. Raises ClusterError, also if a node ended at once."""
        self.wait_ready()
        ended = sorted(set(node_ids) - self.running_ids())
        if ended:
            raise self._error(f"node {ended[0]} ended while starting", ended)

    def wait_ready(self) -> None:
        """Wait until every running node sees exactly the running nodes. Raises ClusterError."""
        waiting = set(self.running_ids())
        seen: dict[int, str] = {}

        def ready() -> bool:
            for node_id in sorted(waiting):
                if not self.nodes[node_id].running:
                    raise self._error(f"node {node_id} ended while starting", [node_id])
                try:
                    view = self.view(node_id)
                except OSError as error:
                    seen[node_id] = f"no answer ({error})"
                    return False
                seen[node_id] = f"sees {sorted(view.broker_ids)}"
                if view.broker_ids != self.running_ids():
                    return False
                waiting.discard(node_id)
            return True

        self.wait_until(ready, "all nodes see each other", seen=lambda: dict(seen))

    def wait_until_healthy(self) -> None:
        """Wait until every node takes part, and every partition has a leader and all replicas in sync.

        Raises ClusterError, at once if a node was killed or paused and not healed.
        """
        away = sorted(set(self.nodes) - self.running_ids())
        if away:
            raise self._error(
                f"node {away[0]} is not running: call heal() or restart({away[0]}) it first", away
            )
        self.wait_ready()
        unhealthy: list[str] = []

        def healthy() -> bool:
            node = self.nodes[1]
            try:
                partitions = view_topics(node.host, node.port, login=self.login).partitions
            except OSError as error:
                unhealthy[:] = [f"node 1 does not answer ({error})"]
                return False
            unhealthy[:] = [
                f"{topic}-{index}: {view}"
                for (topic, index), (_, view) in partitions.items()
                if view.leader < 0 or set(view.isr) != set(view.replicas)
            ]
            return not unhealthy

        self.wait_until(healthy, "all replicas are in sync", seen=lambda: list(unhealthy))

    def wait_until(
        self, holds: Callable[[], object], what: str, *, seen: Callable[[], object] = lambda: None
    ) -> float:
        """Wait until `holds()`; returns the seconds that took. Raise ClusterError when progress stops.

        `seen` returns the state that the condition looks at, which must be comparable.
        """
        try:
            return wait_until(holds, what, seen=seen)
        except Stalled as error:
            raise self._error(str(error), self.nodes) from None

    def _error(self, message: str, node_ids: Iterable[int]) -> ClusterError:
        with_logs = node_ids if self.errors_have_logs else ()
        tails = (f"--- node {node_id}: {self.nodes[node_id].log_tail()}" for node_id in with_logs)
        return ClusterError("\n".join([message, *tails]))


class AdminCluster(Cluster):
    """A cluster of nodes with HTTP APIs, which answer once it is ready."""

    admin = True

    def wait_ready(self) -> None:
        """Wait for the HTTP APIs, too: they open after the node takes part. Raises ClusterError."""
        super().wait_ready()
        places = [self._hosts.addresses[node_id] for node_id in self.running_ids()]
        self.wait_until(lambda: all(is_open(each.host, each.admin_port) for each in places), "HTTP answers")
