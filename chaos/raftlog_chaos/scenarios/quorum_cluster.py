"""A quorum in the simulated world: hosts that crash, pause and lose each other, and the checks that watch them.

The oracle judges the inputs of the state machines, the law judges what voters say and hold. No faults and no workload
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from raftlog.base.errors import KafkaError
from raftlog.quorum.messages import Message, RequestVote, VoteGranted
from raftlog.quorum.observer import Observer
from raftlog.quorum.quorum import Quorum
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog.quorum.wal import DamagedJournal
from raftlog_chaos.scenarios.raft_properties import HeldLog, RaftProperties, held_on_disk
from raftlog_chaos.simulator.env import SimEnv
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop

PORT = 9093
SECRET = b"a secret of the simulation"
DIRECTORY = "/data/quorum"
OBSERVER_FOLDER = "/data"
OBSERVER = 9
"""The node id of the observer, if the cluster has an observer."""


class Oracle:
    """The rules for all nodes together (Raft figure 3)."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []
        self.leaders: dict[int, int] = {}
        self.failures: list[BaseException] = []
        self.acked = 0
        """Batches that committed while their proposer still led, so that their senders got an acknowledgement."""

    def applied(self, node: int, position: int, data: bytes) -> None:
        """Check state machine safety: at one position all nodes apply the same."""
        if position == len(self.committed):
            self.committed.append(data)
        assert self.committed[position] == data, f"node {node} applied {data!r} at {position}"

    def led(self, node: int, term: int) -> None:
        """Check election safety: at most one leader a term."""
        assert self.leaders.setdefault(term, node) == node, f"{node} and {self.leaders[term]} lead {term}"


class WatchedNode:
    """The state machine of one node's life, which reports every step to the oracle."""

    def __init__(self, oracle: Oracle, node: int) -> None:
        self.oracle = oracle
        self.node = node
        self.data: list[bytes] = []
        self.led_terms: list[int] = []
        self.leads: int | None = None
        self.broken = False

    def apply(self, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("the state machine is broken")
        signature = b"@%d.%d" % (self.node, self.leads or 0)
        assert self.leads is None or data.endswith(signature), "a loss was not told before another's batch"
        self.oracle.applied(self.node, len(self.data), data)
        self.data.append(data)
        self.oracle.acked += self.leads is not None

    def snapshot(self) -> Callable[[], bytes]:
        captured = list(self.data)
        return lambda: b"\n".join(captured)

    def restore(self, data: bytes) -> None:
        assert self.leads is None, "a loss was not told before another's snapshot"
        self.data = data.split(b"\n") if data else []
        assert self.data == self.oracle.committed[: len(self.data)], (
            f"node {self.node} restored what never was"
        )

    def leadership_changed(self, leader_id: int | None, term: int, leading: bool) -> None:
        self.leads = term if leading else None
        if leading:
            assert leader_id == self.node
            self.oracle.led(self.node, term)
            self.led_terms.append(term)


class QuorumCluster:
    """Voters 1..n on hosts n1..nn."""

    def __init__(
        self, loop: SimLoop, voters: int, *, compaction: SnapshotPolicy | None = None, **options: Any
    ) -> None:
        self.loop = loop
        self.oracle = Oracle()
        self.law = RaftProperties(voters)
        self.hosts: dict[int, Host] = {node: loop.host(f"n{node}") for node in range(1, voters + 1)}
        self.voters = {node: (host.name, PORT) for node, host in self.hosts.items()}
        self.compaction = compaction or SnapshotPolicy()
        self.options = options
        self.may_fail = False
        self.configs: dict[int, dict[int, tuple[str, int]]] = {}
        """The voters by the configs of single nodes."""
        self.ports: dict[int, int] = {}
        """Where single nodes listen, default PORT."""
        self.on_made: Callable[[Quorum, WatchedNode], None] = lambda _quorum, _machine: None
        """Called with each voter, and its state machine, before it starts."""
        self.nodes: dict[int, Quorum] = {}
        self.machines: dict[int, WatchedNode] = {}
        self.observers: dict[int, Observer] = {}
        self.on_new_leader: Callable[[int], None] = lambda _node: None
        """Called in no node's process when a voter speaks as leader of a term for the first time."""
        self.on_vote: Callable[[int], None] = lambda _node: None
        """The same when a voter is about to send its vote, or to announce to one peer that it votes for itself."""
        self._down: dict[int, HeldLog] = {}

    def boot(self, *nodes: int) -> None:
        """Start voters (default: all)."""
        for node in nodes or tuple(self.hosts):
            self.hosts[node].start(self._run(node))

    async def _run(self, node: int) -> None:
        machine = WatchedNode(self.oracle, node)
        quorum = Quorum(
            SimEnv(self.hosts[node]),
            node_id=node,
            voters=self.configs.get(node, self.voters),
            directory=DIRECTORY,
            secret=SECRET,
            cluster_id=lambda: None,
            machine=machine,
            compaction=self.compaction,
            **self.options,
        )
        self.on_made(quorum, machine)
        quorum.on_failure = self.oracle.failures.append
        self.nodes[node], self.machines[node] = quorum, machine
        try:
            await quorum.start(("", self.ports.get(node, PORT)))
        except (DamagedJournal, OSError) as error:
            if self.nodes.get(node) is not quorum:
                return  # it lost its power meanwhile
            self.oracle.failures.append(error)
            raise
        self._down.pop(node, None)
        send = quorum.driver.send
        quorum.driver.send = lambda peer, message: self._sent(node, peer, message, send)

    def _sent(self, node: int, peer: int, message: Message, send: Callable[[int, Message], None]) -> None:
        if self.law.on_sent(node, peer, message):
            self.loop.main.call(self.on_new_leader, node)
        if isinstance(message, RequestVote | VoteGranted):
            self.loop.main.call(self.on_vote, node)
        send(peer, message)

    def boot_observer(self) -> None:
        """Start a node that follows without a vote, held to the same oracle."""
        self.loop.host(f"n{OBSERVER}").start(self._run_observer())

    async def _run_observer(self) -> None:
        machine = self.machines[OBSERVER] = WatchedNode(self.oracle, OBSERVER)
        env = SimEnv(self.loop.host(f"n{OBSERVER}"))
        observer = self.observers[OBSERVER] = Observer(
            env,
            node_id=OBSERVER,
            voters=self.configs.get(OBSERVER, self.voters),
            secret=SECRET,
            cluster_id=lambda: None,
            machine=machine,
        )
        observer.on_failure = self.oracle.failures.append
        env.disk.mkdir(OBSERVER_FOLDER)
        observer.keep_voters_in(OBSERVER_FOLDER)
        await observer.start()

    def crash_observer(self) -> None:
        """End the observer by a power loss."""
        self.loop.host(f"n{OBSERVER}").crash(power_loss=True)
        del self.observers[OBSERVER], self.machines[OBSERVER]

    def crash(self, *nodes: int, power_loss: bool = True) -> None:
        """End voters at once; `power_loss`: with what was not synced."""
        for node in nodes:
            quorum, host = self.nodes.pop(node, None), self.hosts[node]
            if host.process.paused:
                host.resume()
            host.crash(power_loss=power_loss)
            if quorum is not None:
                self._look_at_disk(node)

    def wipe(self, node: int) -> None:
        """Empty the disk of a voter that is down."""
        disk = self.hosts[node].disk
        with disk.undisturbed():
            disk.rmtree("/data")
            disk.mkdir("/data")
            disk.sync_dir("/")
        self._down.pop(node, None)

    def _look_at_disk(self, node: int) -> None:
        try:
            self._down[node] = held_on_disk(self.hosts[node].disk, DIRECTORY)
        except DamagedJournal as error:
            self.oracle.failures.append(error)

    def leading(self) -> int | None:
        """Return the node that leads the highest term, of the nodes that consider themselves leader."""
        leaders = [(quorum.term, node) for node, quorum in self.nodes.items() if quorum.leading]
        return max(leaders)[1] if leaders else None

    def append(self, data: bytes, node: int | None = None) -> None:
        """Propose on a node (default: the leader), in its own process; refusals are ignored."""
        node = node or self.leading()
        if node is not None and node in self.nodes:
            self.hosts[node].call(self._append, node, data)

    def _append(self, node: int, data: bytes) -> None:
        """Propose a batch, signed with the proposer and its term."""
        quorum = self.nodes[node]
        try:
            quorum.append(b"%s@%d.%d" % (data, node, quorum.term))
        except KafkaError:
            pass

    async def until(self, condition: Callable[[], Any], seconds: float = 30.0) -> None:
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"not within {seconds} virtual seconds"
            self.check()
            await asyncio.sleep(0.005)

    def check(self) -> None:
        """Check that no voter stopped itself, unless the test causes a stop, and that the law holds. Raises
        AssertionError.
        """
        assert self.may_fail or not self.oracle.failures, self.oracle.failures
        running = {node: quorum.driver for node, quorum in self.nodes.items() if quorum.started}
        self.law.inspect(running, self._down)
        assert not self.law.violations, "; ".join(self.law.violations)

    async def leader(self, seconds: float = 30.0, *, among: Iterable[int] | None = None) -> int:
        """Wait until one node leads and all (or those given) know it."""

        def agreed() -> bool:
            voters, leader = sorted(among or self.nodes), self.leading()
            return leader in voters and all(self.nodes[node].leader_id == leader for node in voters)

        await self.until(agreed, seconds)
        leader = self.leading()
        assert leader is not None
        return leader

    def applied(self, mark: bytes, *nodes: int) -> bool:
        """Return whether a batch was applied on all of some nodes (default: all voters)."""
        wanted = [self.machines.get(node) for node in nodes or self.hosts]
        return all(
            machine is not None and any(data.startswith(mark + b"@") for data in machine.data)
            for machine in wanted
        )

    async def commit(self, mark: bytes, *nodes: int, seconds: float = 30.0) -> None:
        """Append a batch until it is applied on all of some nodes (default: all voters), which settles all before."""

        def everywhere() -> bool:
            if not any(data.startswith(mark + b"@") for data in self.oracle.committed):
                self.append(mark)
            return self.applied(mark, *nodes)

        await self.until(everywhere, seconds)

    async def settle(self, mark: bytes) -> None:
        """Wait until all nodes hold the same, with all that was ever committed."""
        await self.commit(mark)
        await self.until(
            lambda: all(self.machines[node].data == self.oracle.committed for node in self.hosts)
        )

    def all_answered(self) -> bool:
        """Return whether a leader knows of every voter that it has all: its connections serve in both
        directions again.
        """
        leader = self.leading()
        if leader is None:
            return False
        known = self.nodes[leader].describe()
        return all(known.high_watermark <= each.log_end_offset for each in known.voters)
