"""Consumers read at the replicas in their racks (KIP-392) while leaders and followers die or are cut off.

A consumer at any replica sees a prefix of the committed log: no gap, and no record that a later leader lacks. With
`read_committed` it sees no record of an open or aborted transaction. A follower that is cut off serves no consumer for
longer than replica.lag.time.max.ms. In the end each consumer has read all records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Final

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.replication.follower_role import FollowerRole
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import TOPIC
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.testbeds.testbed import NODE_ID
from raftlog_chaos.workloads.consumer import Consumer
from raftlog_chaos.workloads.ledger import Ledger, LedgerReader
from raftlog_chaos.workloads.raw_client import Client, create_topic

LEDGER: Final = "ledger"
LAG_TIME_MAX_S: Final = 1.0
"""replica.lag.time.max.ms, as `choreography` sets it."""
TOLD_S: Final = 0.5
"""A follower has heard of a commit so soon after the leader answered its fetch, or its next fetch."""
SETTINGS: Final = {
    "broker.rack": f"rack{NODE_ID}",
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "log.flush.offset.checkpoint.interval.ms": "100",
}


async def follower_reads(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Write and read for some virtual seconds of faults. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    admin = Client("books", scene.cluster.bootstrap)
    await loop.host("admin").start(create_topic(admin, LEDGER, partitions=1))
    ledger = Ledger(loop.stream("ledger"))
    consumers = [_employ_consumer(scene, node_id) for node_id in scene.cluster.nodes]
    readers = [_employ_reader(scene, ledger, node_id) for node_id in scene.cluster.nodes]
    end, struck, freshness = loop.time() + seconds, dict[str, int](), _Freshness(scene)
    while loop.time() < end:
        await asyncio.sleep(scene.a_while(0.005, 0.02))
        scene.cluster.check()
        freshness.look()
        _write(scene, ledger)
        if scene.chance.random() < 0.02:
            fault = _strike(scene)
            struck[fault] = struck.get(fault, 0) + 1
    loop.heal()
    await scene.whole()
    await _cut_off(scene, freshness)
    loop.heal()
    await scene.whole()
    await _read_all(scene, consumers, readers)
    for each in readers:
        each.stopping = True
    clients = [*(each.client for each in consumers), *(each.client for each in readers)]
    read = sum(each.read_from_followers for each in clients)
    assert read, "no follower served a reader"
    report = await scene.end()
    return replace(report, faults={**report.faults, **struck, "read from a follower": read})


class _Freshness:
    """The offset up to which each partition was committed, and when: a follower that serves consumers knows of
    what is not new.
    """

    def __init__(self, scene: Choreography) -> None:
        self._scene = scene
        self._committed: deque[tuple[float, int]] = deque()
        self._due = 0
        """How far the partition was committed when followers last must have heard of it."""
        self._caught_up: dict[int, FollowerRole] = {}
        """The role of each node in which it once had all that it must have heard of."""

    def look(self) -> None:
        """Note what is committed now. Raise AssertionError for a follower that had caught up and serves what is old."""
        scene, now = self._scene, self._scene.loop.time()
        replicas = scene.replicas(scene.partition)
        self._committed.append((now, max((each.high_watermark for each in replicas.values()), default=0)))
        while self._committed[0][0] < now - LAG_TIME_MAX_S - TOLD_S:
            self._due = max(self._due, self._committed.popleft()[1])
        for node_id, each in replicas.items():
            role = each.role
            if not isinstance(role, FollowerRole):
                continue
            if each.high_watermark >= self._due:
                self._caught_up[node_id] = role
                continue
            # A replica that has just begun to follow has no leader yet that it could have heard of. Until it has caught
            # up it serves what it has, as Kafka's does, however old that is.
            is_settled = role.began_at < now - LAG_TIME_MAX_S and self._caught_up.get(node_id) is role
            if is_settled and not each.has_lost_leader():
                raise AssertionError(
                    f"node {node_id} serves consumers up to offset {each.high_watermark}; up to {self._due} was "
                    f"committed {LAG_TIME_MAX_S + TOLD_S} s ago"
                )


def _write(scene: Choreography, ledger: Ledger) -> None:
    """Have the ledger's leader write."""
    state = scene.cluster.state(LEDGER, 0)
    if state is None or state.leader < 0:
        return
    replica = scene.cluster.replica(state.leader, LEDGER, 0)
    if replica is not None:
        scene.cluster.nodes[state.leader].host.call(ledger.step, replica)


def _strike(scene: Choreography) -> str:
    """Crash a node, or cut it off from the others but not from clients. It is back after a while."""
    loop, cluster, chance = scene.loop, scene.cluster, scene.chance
    node_id = chance.choice(tuple(cluster.nodes))
    if chance.random() < 0.5:
        cluster.crash(node_id, power_loss=scene.power())
        loop.call_later(scene.a_while(0.0, 0.3), cluster.start, node_id)
        return "crash"
    for each, sim_node in cluster.nodes.items():
        if each != node_id:
            loop.cut(cluster.nodes[node_id].host, sim_node.host)
    loop.call_later(scene.a_while(0.05, 0.5, 2.0), loop.heal)
    return "cut"


async def _cut_off(scene: Choreography, freshness: _Freshness) -> None:
    """Cut a follower off from the other nodes, for longer than it may serve what it has."""
    loop, cluster = scene.loop, scene.cluster
    leader = await scene.leader()
    cut = scene.followers(leader)[0]
    for each, sim_node in cluster.nodes.items():
        if each != cut:
            loop.cut(cluster.nodes[cut].host, sim_node.host)
    end = loop.time() + LAG_TIME_MAX_S + 2 * TOLD_S
    while loop.time() < end:
        await asyncio.sleep(scene.a_while(0.02, 0.05))
        freshness.look()


async def _read_all(scene: Choreography, consumers: list[Consumer], readers: list[LedgerReader]) -> None:
    """Wait until every consumer has read what is committed by now."""
    due = _end(scene, TOPIC, scene.partition)
    due_stable = _end(scene, LEDGER, 0)
    for each in consumers:
        each.rewinds = False

    def is_read() -> bool:
        return (
            min(each.offset for each in consumers) >= due
            and min(each.offset for each in readers) >= due_stable
        )

    await scene.cluster.until(is_read, SERVED_S, "every consumer has read all")


def _end(scene: Choreography, topic: str, index: int) -> int:
    replicas = (scene.cluster.replica(node_id, topic, index) for node_id in scene.cluster.nodes)
    return max(each.last_stable_offset for each in replicas if each is not None)


def _employ_consumer(scene: Choreography, node_id: int) -> Consumer:
    name = f"neighbour{node_id}"
    client = Client(name, scene.cluster.bootstrap, rack=f"rack{node_id}")
    chance = scene.loop.stream(f"client/{name}")
    consumer = Consumer(client, TOPIC, scene.partition, history=scene.history, chance=chance)
    scene.others.append(consumer)
    scene.loop.host(name).start(consumer.run())
    return consumer


def _employ_reader(scene: Choreography, ledger: Ledger, node_id: int) -> LedgerReader:
    name = f"reader{node_id}"
    client = Client(name, scene.cluster.bootstrap, rack=f"rack{node_id}")
    reader = LedgerReader(client, (LEDGER, 0), ledger, history=scene.history)
    scene.loop.host(name).start(reader.run())
    return reader
