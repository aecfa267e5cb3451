"""Frames through whole nodes in a simulated world: real connections, handlers, logs and coordinators, no sockets.

Laws: no uncaught exception, no request that crashed, no log line that needs an operator. Each frame gets an answer in
order that decodes, or its connection is closed for a counted reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from raftlog_chaos.fuzz.draw import TOPICS, KnownValues
from raftlog_chaos.fuzz.error_log import LOG, last_of
from raftlog_chaos.fuzz.findings import Finding, Port
from raftlog_chaos.fuzz.frames import Frame
from raftlog_chaos.fuzz.handshakes import draw_handshake
from raftlog_chaos.fuzz.wire import WAITING, FuzzWire, Tally, name_of
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import CONTROLLER_PORT, PORT, SimCluster, SimNode
from raftlog_chaos.simulator.hosts import Process
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.simple import SimpleClient

WORLDS: Final = (1, 1, 3)
"""Nodes of a world, by its seed: a single node leads and coordinates everything."""
CONNECTIONS: Final = 3
"""To each node."""
BURST: Final = 4
"""Frames that are sent at most before their answers are waited for."""
ANSWER_S: Final = 60.0
"""Virtual seconds within which every request is answered that asks for no wait of its own."""
PATIENCE_S: Final = 3.0
"""The same for requests that may wait; then their connection is given up."""
HANDSHAKE_S: Final = 4.0
REST_EVERY: Final = 400
"""Frames between two rests."""
REST_S: Final = 20.0
"""Virtual seconds of a rest."""
LOOK_S: Final = 0.002
SELDOM_S: Final = 0.2
LIMIT_S: Final = 36_000.0
SETTINGS: Final = {
    "min.insync.replicas": "1",
    "group.min.session.timeout.ms": "100",
    "num.partitions": "1",
    "log.cleaner.backoff.ms": "3000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "transaction.state.log.num.partitions": "2",
}


@dataclass(slots=True)
class Plan:
    """The frames for brokers' ports and their count, and bytes to send first to a controller's port.

    `alone`: the frames go one by one, all on one connection. `greeted`: after this share of bursts something is said
    at a controller's port.
    """

    frames: Iterator[Frame] = field(default_factory=lambda: iter(()))
    count: int = 0
    known: KnownValues = field(default_factory=KnownValues)
    hellos: Sequence[bytes] = ()
    alone: bool = False
    greeted: float = 0.1


def play(plan: Plan, *, seed: int) -> Tally:
    """Carry out a plan in a new world, up to its first finding; return the results."""
    episode = Episode(plan, WORLDS[seed % len(WORLDS)])
    simulate(episode.run, seed=seed, limit_s=LIMIT_S)
    return episode.tally


def replay(port: Port, frames: Sequence[bytes], *, seed: int = 0) -> Tally:
    """Send these frames in a new world, as a regression file has them."""
    if port == "controller":
        return play(Plan(hellos=frames), seed=seed)
    sent = iter([Frame(data, "kept") for data in frames])
    return play(Plan(sent, len(frames), alone=True, greeted=0.0), seed=seed)


class Episode:
    """One world. `run` is the program of a simulation."""

    def __init__(self, plan: Plan, nodes: int) -> None:
        self.tally = Tally()
        self._plan = plan
        self._nodes = nodes
        self._wires: dict[int, FuzzWire] = {}
        self._cluster: SimCluster
        self._loop: SimLoop
        self._longest_s = 0.0
        self._step_began = 0.0

    async def run(self, loop: SimLoop) -> None:
        """Start a cluster, send everything, and check the laws after each burst."""
        self._loop, self._chance = loop, loop.stream("episode")
        replicas = {"default.replication.factor": str(self._nodes)}
        cluster = self._cluster = SimCluster(loop, self._nodes, settings={**SETTINGS, **replicas})
        loop.observer = self._stepped
        cluster.start()
        await cluster.until_ready()
        client = SimpleClient(Client("fuzz", cluster.bootstrap))
        for topic in TOPICS:
            policy = {"cleanup.policy": "compact"} if "compact" in topic else {}
            await client.create_topic(topic, partitions=2, configs=policy)
        client.close()
        await self._carry_out(self._plan)

    async def _carry_out(self, plan: Plan) -> None:
        tally, rest_at = self.tally, REST_EVERY
        for data in plan.hellos:
            await self._greet(data)
        while tally.frames < plan.count and not tally.findings:
            await self._burst(plan)
            if self._chance.random() < plan.greeted:
                await self._greet(draw_handshake(self._chance))
            if tally.frames >= rest_at or tally.frames >= plan.count:
                rest_at += REST_EVERY
                await asyncio.sleep(REST_S)  # sessions end, transactions are aborted, logs are cleaned
                self._look_inside((), "nothing was sent for a while")

    def _stepped(self, _process: Process) -> None:
        """After each callback of the world: how long the longest took, processor seconds."""
        now = time.thread_time()
        self._longest_s = max(self._longest_s, now - self._step_began)
        self._step_began = now

    # --- sending

    async def _burst(self, plan: Plan) -> None:
        """Send some frames on one connection and wait for their answers."""
        number = 0 if plan.alone else self.tally.frames // BURST % (CONNECTIONS * self._nodes)
        node = self._cluster.nodes[number % self._nodes + 1]
        wire = self._wires.get(number)
        if wire is None or wire.closed or wire.given_up:
            wire = self._wires[number] = await self._connect(node)
        frames = [next(plan.frames) for _ in range(1 if plan.alone else 1 + self.tally.frames % BURST)]
        counted = _closed_by(node)
        self._longest_s, self._step_began = 0.0, time.thread_time()
        for frame in frames:
            wire.send(frame)
        kind = "; ".join(frame.kind for frame in frames)
        await self._answers(wire, kind)
        self.tally.slowest.note(self._longest_s, kind, b"".join(frame.data for frame in frames))
        if wire.closed and not wire.given_up and _closed_by(node) == counted:
            self._find("a connection was closed for no counted reason", kind, wire.sent)
        self._look_inside(wire.sent, kind)

    async def _connect(self, node: SimNode) -> FuzzWire:
        async def connect() -> FuzzWire:
            _, wire = await self._loop.create_connection(
                lambda: FuzzWire(self.tally, self._plan.known), node.host.name, PORT
            )
            assert isinstance(wire, FuzzWire)
            return wire

        return await self._loop.host("fuzzer").start(connect())

    async def _answers(self, wire: FuzzWire, kind: str) -> None:
        began = self._loop.time()
        while wire.pending and not wire.closed and not wire.wrong:
            waited_s = self._loop.time() - began
            may_wait = any(api in WAITING for api, _, _ in wire.pending)
            if waited_s > (PATIENCE_S if may_wait else ANSWER_S):
                if not may_wait:
                    wire.wrong = f"{name_of(wire.pending[0][0])} v{wire.pending[0][1]}: no answer"
                wire.give_up()
                break
            await asyncio.sleep(LOOK_S if waited_s < 1 else SELDOM_S)
        await asyncio.sleep(LOOK_S)
        if wire.is_stuck and not wire.closed:
            wire.give_up()
        self.tally.closed += wire.closed and not wire.given_up
        if wire.wrong:
            self._find(wire.wrong, kind, wire.sent)

    async def _greet(self, data: bytes) -> None:
        """Say something at a controller's port, and hang up."""
        node = self._chance.randrange(self._nodes) + 1
        pause_s = self._chance.choice((LOOK_S, LOOK_S, HANDSHAKE_S))

        async def say() -> None:
            transport, _ = await self._loop.create_connection(
                asyncio.Protocol, f"node{node}", CONTROLLER_PORT
            )
            transport.write(data)
            await asyncio.sleep(pause_s)
            transport.abort()

        await self._loop.host("fuzzer").start(say())
        self.tally.handshakes += 1
        self._look_inside((data,), "a handshake", "controller")

    # --- laws

    def _look_inside(self, sent: Sequence[bytes], kind: str, port: Port = "kafka") -> None:
        for failure in self._loop.failures:
            error = failure.get("exception")
            if isinstance(error, BaseException):
                found = Finding.of(error, "uncaught", kind, tuple(sent))
                self.tally.findings.append(found._replace(port=port))
            else:
                self._find(f"uncaught: {failure.get('message')}", kind, sent, port)
        self._loop.failures.clear()
        for line in LOG.take():
            self._find(f"logged as an error: {last_of(line)}", kind, sent, port)
        for failed in self._cluster.failures:
            self._find(failed, kind, sent, port)
        self._cluster.failures.clear()
        for sim_node in self._cluster.nodes.values():
            self._look_at(sim_node, sent, kind, port)

    def _look_at(self, sim_node: SimNode, sent: Sequence[bytes], kind: str, port: Port) -> None:
        broker = sim_node.node.broker if sim_node.node is not None else None
        if broker is None or not sim_node.running:
            self._find(f"node {sim_node.node_id} does not run", kind, sent, port)
        elif broker.server.counters.closed_by_broker.pop("request_crashed", 0) and not self.tally.findings:
            self._find("a request crashed", kind, sent, port)

    def _find(self, what: str, kind: str, frames: Sequence[bytes], port: Port = "kafka") -> None:
        self.tally.findings.append(Finding("handlers", what, kind, tuple(frames), port=port))


def _closed_by(sim_node: SimNode) -> int:
    """Return how many connections a node has closed, by its own count."""
    if sim_node.node is None or sim_node.node.broker is None:
        return -1
    counters = sim_node.node.broker.server.counters
    return sum(counters.closed_by_broker.values()) + counters.idle_closed + counters.refused
