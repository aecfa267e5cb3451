"""Wall clocks jump by days and come back: no data with a retention of an hour expires.

Segments, committed offsets and transactional ids are swept many times while the leader or coordinator has a wrong
clock. A scenario takes seconds, so no record is an hour old and all of them must be there at the end. Nodes that start
with wrong clocks are the subject of `believed_time`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.commits import employ_committer
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.committer import BACKOFF_S, Committer
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    Client,
    shapes,
)

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
SETTINGS: Final = {
    "log.retention.ms": str(HOUR_MS),
    "log.retention.check.interval.ms": "50",
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": "60",
    "offsets.retention.check.interval.ms": "50",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": str(HOUR_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}
TRANSACTIONAL_ID: Final = "idle"
FOR_TRANSACTIONS: Final = 1
"""The key type of FindCoordinator."""


async def clock_jumps(loop: SimLoop, seconds: float = 3.0) -> Report:
    """For some virtual seconds, let one clock after the other jump. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    idle, busy = employ_committer(scene, "idle"), employ_committer(scene, "busy")
    await scene.cluster.until(lambda: min(idle.acked, busy.acked) > 0, SERVED_S, "committed")
    idle.stopping = True
    client = Client("transactions", scene.cluster.bootstrap)
    await loop.host("transactions").start(_begin_id(client))
    jumps, end = 0, loop.time() + seconds
    while loop.time() < end:
        await scene.served(8)
        node_id = scene.chance.choice((await scene.leader(), *scene.cluster.nodes))
        host = scene.cluster.nodes[node_id].host
        host.set_clock(scene.chance.choice((1, 30, 400)) * DAY_MS)
        jumps += 1
        await asyncio.sleep(scene.a_while(0.2, 0.6, 1.5))
        leader = await scene.leader()
        if leader != node_id and scene.chance.random() < 0.3:
            scene.cluster.restart(leader, power_loss=scene.power())  # the next leader has its own clock
            await asyncio.sleep(scene.a_while(0.2, 0.6))
        host.set_clock(0)
        await asyncio.sleep(scene.a_while(0.0, 0.2, 0.5))
        await scene.cluster.until_ready(seconds=SERVED_S)
    scene.stop()
    busy.stopping = True
    await loop.host("idle").start(_read_once(idle))
    await scene.cluster.until(lambda: _knows_the_id(scene), SERVED_S, "the transactional id known")
    report = await scene.end()
    return replace(report, faults={**report.faults, "clock-jump": jumps})


async def _read_once(committer: Committer) -> None:
    """Read what was committed before all jumps; missing offsets are recorded in the history."""
    while True:
        if await _answers(committer):
            return
        await asyncio.sleep(BACKOFF_S)


async def _answers(committer: Committer) -> bool:
    try:
        await committer.find()
        return await committer.read() == 0
    except AWAY:
        return False


async def _begin_id(client: Client) -> None:
    """Initialize a transactional producer, which then stays idle."""
    make, init = shapes(FIND_COORDINATOR), shapes(INIT_PRODUCER_ID)
    while True:
        try:
            key = make.FindCoordinatorRequest(key=TRANSACTIONAL_ID, key_type=FOR_TRANSACTIONS)
            found = await client.ask_any(FIND_COORDINATOR, key)
            request = init.InitProducerIdRequest(
                transactional_id=TRANSACTIONAL_ID,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer: Any = None
            if not int(found.error_code):
                answer = await client.ask((found.host, found.port), INIT_PRODUCER_ID, request)
            if answer is not None and not int(answer.error_code):
                return
        except AWAY:
            pass
        await asyncio.sleep(BACKOFF_S)


def _knows_the_id(scene: Choreography) -> bool:
    brokers = [sim_node.node.broker for sim_node in scene.cluster.running() if sim_node.node is not None]
    return any(len(each.transactions) for each in brokers if each is not None)
