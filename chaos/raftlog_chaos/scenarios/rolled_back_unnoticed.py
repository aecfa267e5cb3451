"""A node comes back with an older copy of its logs and leads. The copy is from its last life, so no epoch shows it.

The other replicas must keep the records: followers stop rather than truncate committed records, and report that. An
operator then gives the leader an empty disk and elects another replica, and no record is lost.

Or the node comes back with an empty disk, and the operator asks for an unclean election while the others are away. The
election is refused until one of them is back, because they have all records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from raftlog.base.config.broker import NodeConfig
from raftlog.base.config.setting import settings_of
from raftlog.base.errors import KafkaError
from raftlog.metadata.controller_api import UNCLEAN, ElectLeaders
from raftlog.node import Node
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.endurance import PARTITIONS, TOPIC, Report
from raftlog_chaos.scenarios.rolled_back import LOGS, SETTINGS, RolledBack
from raftlog_chaos.simulator.loop import SimLoop

NODES: Final = 5
"""Two more than replicas, so that there is a controller while two of the replicas are gone."""
INTERVAL: Final = "replica.high.watermark.checkpoint.interval.ms"
"""Production's default here: what was committed before it must stay, so it may not grow."""
CHECKPOINTED_S: Final = 1.5
"""All nodes have written their high watermarks within this, virtual seconds."""
LOOK_S: Final = 0.1
EMPTIED: Final = 0.3
"""The share of runs with an empty disk in the place of an older copy."""


async def rolled_back_unnoticed(loop: SimLoop, seconds: float = 2.0) -> Report:
    """Produce for some virtual seconds, copy a node's disk meanwhile, and bring it back. Raises AssertionError."""
    default = settings_of(NodeConfig)[INTERVAL][1].default
    scene = RolledBack(loop, nodes=NODES, settings={**SETTINGS, INTERVAL: str(default)})
    await scene.begin()
    await scene.everywhere()
    victim = scene.chance.choice(scene.state().replicas)
    copied = scene.cluster.nodes[victim].host.disk.snapshot()
    await asyncio.sleep(scene.a_while(seconds))
    await scene.served(3)
    scene.stop()
    await scene.cluster.until(
        lambda: all(each.done for each in scene.producers), SERVED_S, "all acknowledged"
    )
    await scene.cluster.until(lambda: all(map(scene.in_sync, range(PARTITIONS))), SERVED_S, "all in sync")
    await asyncio.sleep(CHECKPOINTED_S)
    scene.cluster.invariants.excuse(TOPIC)  # the promise that fails here is that this replica never leads
    replicas = scene.state().replicas
    scene.cluster.crash(*scene.cluster.nodes, power_loss=scene.power())
    emptied = scene.chance.random() < EMPTIED
    if emptied:
        _empty(scene, victim)
    else:
        for folder in LOGS:
            scene.cluster.nodes[victim].host.disk.restore(copied, folder)
    scene.cluster.start(victim, *(each for each in scene.cluster.nodes if each not in replicas))
    others_start_at = loop.time() + scene.a_while(0.5, 2.0, 4.0)
    while loop.time() < others_start_at:
        await asyncio.sleep(LOOK_S)
        if emptied:
            await _elect(scene, [(TOPIC, scene.partition)])
    await scene.others_follow(victim)
    await scene.cluster.until_ready(seconds=SERVED_S)
    stopped = await _operate(scene, victim)
    report = await scene.end()
    return replace(report, faults={**report.faults, "replica stopped": stopped})


async def _operate(scene: RolledBack, victim: int) -> int:
    """Give the victim an empty disk where replicas have stopped, and elect others; returns how many had stopped."""
    await asyncio.sleep(scene.a_while(1.0, 2.0))
    stopped = sum(1 for _ in _stopped(scene))
    if not stopped:
        return 0
    scene.cluster.crash(victim)
    _empty(scene, victim)
    scene.cluster.start(victim)
    end = scene.loop.time() + SERVED_S
    while not scene.cluster.all_in_sync():
        assert scene.loop.time() < end, f"the operator's elections come to nothing ({scene.describe()})"
        await asyncio.sleep(LOOK_S)
        await _elect(scene, _with_a_lost_isr(scene))
    assert not list(_stopped(scene)), "a replica follows nobody though another leader was elected"
    return stopped


def _stopped(scene: RolledBack) -> Iterator[str]:
    for each in scene.cluster.running():
        if each.node is not None and each.node.broker is not None:
            yield from each.node.broker.replicas.failed_replicas().values()


def _empty(scene: RolledBack, victim: int) -> None:
    disk = scene.cluster.nodes[victim].host.disk
    for folder in LOGS:
        for name in disk.listdir(folder):
            path = f"{folder}/{name}"
            disk.rmtree(path) if disk.is_folder(path) else disk.remove(path)
        disk.sync_dir(folder)


def _with_a_lost_isr(scene: RolledBack) -> list[tuple[str, int]]:
    return [
        (TOPIC, index)
        for index in range(PARTITIONS)
        if (state := scene.cluster.state(TOPIC, index)) is not None and state.isr_lost
    ]


async def _elect(scene: RolledBack, partitions: list[tuple[str, int]]) -> None:
    node_id = scene.cluster.leader_id()
    node = None if node_id is None else scene.cluster.nodes[node_id].node
    if partitions and node is not None and node_id is not None:
        await scene.cluster.nodes[node_id].host.start(_ask(node, tuple(partitions)))


async def _ask(node: Node, partitions: tuple[tuple[str, int], ...]) -> None:
    try:
        await node.control.submit(ElectLeaders(UNCLEAN, partitions))
    except KafkaError:
        pass  # it is asked again
