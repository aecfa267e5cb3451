"""Groups and topics are deleted, with more offsets than one batch can remove, while the coordinator dies in between.

The promises of `GroupEnder` must hold. A group is deleted as a whole. No offset of a topic applies to the next topic of
its name, even without a coordinator during the replacement. Later commits are kept.
"""

from __future__ import annotations

import asyncio

from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.group_ender import LONG, MESSAGE_MAX_BYTES, GroupEnder
from raftlog_chaos.workloads.raw_client import Client

ENDERS = 2

REPLACED_S = 2.0
"""A topic is likely to be replaced within this, virtual seconds."""


async def group_ends(loop: SimLoop, seconds: float = 4.0) -> Report:
    """For some virtual seconds, kill the coordinator now and then. Raises AssertionError."""
    scene = Choreography(
        loop,
        settings={
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": loop.stream("group-ends").choice(("1", "3")),
            "group.initial.rebalance.delay.ms": "0",
            "message.max.bytes": str(MESSAGE_MAX_BYTES),
        },
    )
    await scene.begin()
    scene.pace([2.0] * len(scene.producers))
    enders = [_employ(scene, f"ender{number}") for number in range(ENDERS)]
    end = loop.time() + seconds
    while loop.time() < end:
        await _progress(scene, enders)
        await _moment(scene, enders)
        state = scene.cluster.state(CONSUMER_OFFSETS_TOPIC, 0)
        if state is None or state.leader < 0 or scene.chance.random() < 0.3:
            continue
        for each in enders:
            each.deaths += 1
        scene.cluster.crash(state.leader, power_loss=scene.power())
        await asyncio.sleep(scene.a_while(0.0, 0.2, 0.5))
        scene.cluster.start()
    await _progress(scene, enders)
    for each in enders:
        each.stopping = True
    return await scene.end()


async def _moment(scene: Choreography, enders: list[GroupEnder]) -> None:
    """Wait for a while, or until a topic is about to be replaced: with one replica there is no coordinator then."""
    if scene.chance.random() < 0.5:
        await asyncio.sleep(scene.a_while(0.01, 0.1, 0.5))
        return
    one = scene.chance.choice(enders)
    one.replaces.clear()
    try:
        async with asyncio.timeout(REPLACED_S):
            await one.replaces.wait()
        await asyncio.sleep(scene.a_while(0.0, 0.001, 0.01))
    except TimeoutError:
        pass


async def _progress(scene: Choreography, enders: list[GroupEnder]) -> None:
    wanted = [each.rounds + 1 for each in enders]
    await scene.cluster.until(
        lambda: all(each.rounds >= least for each, least in zip(enders, wanted, strict=True)),
        SERVED_S,
        "a group or a topic was deleted",
    )


def _employ(scene: Choreography, name: str) -> GroupEnder:
    client = Client(name, scene.cluster.bootstrap, timeout_s=8.0)
    chance = scene.loop.stream(f"client/{name}")
    ender = GroupEnder(client, LONG + name, history=scene.history, chance=chance)
    scene.loop.host(name).start(ender.run())
    return ender
