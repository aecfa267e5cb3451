"""A quorum in the simulated world: hosts that crash, pause and lose each other, and an oracle that watches them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from raftlog.base.errors import KafkaError
from raftlog.proof.simulator import SimEnv, SimLoop
from raftlog.proof.simulator.hosts import Host
from raftlog.quorum.compaction import Compaction
from raftlog.quorum.quorum import Quorum

PORT = 9093
SECRET = b"a secret of the simulation"


class Oracle:
    """What all nodes together may and may not do (Raft figure 3)."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []
        self.leaders: dict[int, int] = {}
        self.failures: list[BaseException] = []

    def applied(self, node: int, position: int, data: bytes) -> None:
        """State machine safety: at one position all nodes apply the same."""
        if position == len(self.committed):
            self.committed.append(data)
        assert self.committed[position] == data, f"node {node} applied {data!r} at {position}"

    def led(self, node: int, term: int) -> None:
        """Election safety: one leader a term."""
        assert self.leaders.setdefault(term, node) == node, f"{node} and {self.leaders[term]} lead {term}"


class Watched:
    """One life's state machine, which tells the oracle everything."""

    def __init__(self, oracle: Oracle, node: int) -> None:
        self.oracle = oracle
        self.node = node
        self.data: list[bytes] = []
        self.led_terms: list[int] = []

    def apply(self, data: bytes) -> None:
        self.oracle.applied(self.node, len(self.data), data)
        self.data.append(data)

    def snapshot(self) -> Callable[[], bytes]:
        captured = list(self.data)
        return lambda: b"\n".join(captured)

    def restore(self, data: bytes) -> None:
        self.data = data.split(b"\n") if data else []
        assert self.data == self.oracle.committed[: len(self.data)], f"node {self.node} restored what never was"

    def leadership_changed(self, leader_id: int | None, term: int, leading: bool) -> None:
        if leading:
            assert leader_id == self.node
            self.oracle.led(self.node, term)
            self.led_terms.append(term)


class World:
    """Voters 1..n on hosts n1..nn."""

    def __init__(self, loop: SimLoop, voters: int, *, compaction: Compaction = Compaction(), **options: Any) -> None:
        self.loop = loop
        self.oracle = Oracle()
        self.hosts: dict[int, Host] = {node: loop.host(f"n{node}") for node in range(1, voters + 1)}
        self.voters = {node: (host.name, PORT) for node, host in self.hosts.items()}
        self.compaction = compaction
        self.options = options
        self.nodes: dict[int, Quorum] = {}
        self.machines: dict[int, Watched] = {}

    def boot(self, *nodes: int) -> None:
        for node in nodes or tuple(self.hosts):
            self.hosts[node].start(self._run(node))

    async def _run(self, node: int) -> None:
        machine = Watched(self.oracle, node)
        quorum = Quorum(
            SimEnv(self.hosts[node]),
            node_id=node,
            voters=self.voters,
            directory="/data/quorum",
            secret=SECRET,
            cluster_id=lambda: None,
            machine=machine,
            compaction=self.compaction,
            **self.options,
        )
        quorum.on_failure = self.oracle.failures.append
        self.nodes[node], self.machines[node] = quorum, machine
        await quorum.start(("0.0.0.0", PORT))

    def crash(self, *nodes: int, power_loss: bool = True) -> None:
        for node in nodes:
            self.nodes.pop(node, None)
            self.hosts[node].crash(power_loss=power_loss)

    def leading(self) -> int | None:
        """Return the node that leads the highest term, of those that think they lead."""
        leaders = [(quorum.term, node) for node, quorum in self.nodes.items() if quorum.leading]
        return max(leaders)[1] if leaders else None

    def append(self, data: bytes, node: int | None = None) -> None:
        """Propose on a node (default: the leader), in its own process; refusals are nothing."""
        node = node or self.leading()
        if node is not None and node in self.nodes:
            self.hosts[node].call(self._append, node, data)

    def _append(self, node: int, data: bytes) -> None:
        try:
            self.nodes[node].append(data)
        except KafkaError:
            pass

    async def until(self, condition: Callable[[], Any], seconds: float = 30.0) -> None:
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"not within {seconds} virtual seconds"
            self.check()
            await asyncio.sleep(0.005)

    def check(self) -> None:
        assert not self.oracle.failures, self.oracle.failures

    async def settle(self, mark: bytes) -> None:
        """Wait until a new batch is applied everywhere, which takes all that was committed with it."""

        def everywhere() -> bool:
            if all(mark in machine.data for machine in self.machines.values()):
                return True
            if mark not in self.oracle.committed:
                self.append(mark)
            return False

        await self.until(everywhere)
        assert all(machine.data == self.oracle.committed for machine in self.machines.values())
