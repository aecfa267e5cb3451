"""A leader is cut off from the other nodes, and its clients stay with it for as long as it accepts them.

To find a leader, they ask the broker that they are connected to, and that broker is cut off. Another broker leads soon,
and they must find it during the cut.
"""

from __future__ import annotations

import asyncio

from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import TOPIC
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.consumer import Consumer
from raftlog_chaos.workloads.loyal_client import LoyalClient
from raftlog_chaos.workloads.producer import Producer

FOUND_S = 20.0
"""The longest time that clients may stay with an isolated leader, virtual seconds. It may be the active controller,
too, which needs some seconds more to notice."""


async def cut_off(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Cut leaders off from the others, with some virtual seconds of service between. Raises AssertionError."""
    scene = Choreography(loop)
    await scene.begin()
    end = loop.time() + seconds
    number = 0
    while loop.time() < end:
        await scene.served(5)
        await scene.whole()
        began_at, number = loop.time(), number + 1
        await _strand(scene, await scene.leader(), number)
        end += loop.time() - began_at
    return await scene.end()


async def _strand(scene: Choreography, leader: int, number: int) -> None:
    """Cut a leader off from the others, with a producer and a consumer that know no other broker."""
    loop, cluster = scene.loop, scene.cluster
    hosts = {each: sim_node.host for each, sim_node in cluster.nodes.items()}
    first = [each.name for each in (hosts.pop(leader), *hosts.values())]
    bootstrap = sorted(cluster.bootstrap, key=lambda address: first.index(address[0]))
    producer = Producer(
        LoyalClient(f"loyal-{number}", bootstrap),
        TOPIC,
        scene.partition,
        history=scene.history,
        chance=loop.stream(f"client/loyal-{number}"),
    )
    consumer = Consumer(
        LoyalClient(f"reader-{number}", bootstrap),
        TOPIC,
        scene.partition,
        history=scene.history,
        chance=loop.stream(f"client/reader-{number}"),
    )
    consumer.rewinds = False
    scene.producers.append(producer)
    scene.others.append(consumer)
    loop.host(f"loyal-{number}").start(producer.run())
    loop.host(f"reader-{number}").start(consumer.run())
    await cluster.until(lambda: consumer.offset > 0, FOUND_S, "a record is read")
    await asyncio.sleep(scene.a_while(0.0, 0.1, 0.5))
    _cut(scene, leader)
    await asyncio.sleep(scene.a_while(0.0, 0.5, 3.0))
    producer.stopping = True
    await cluster.until(lambda: producer.done, FOUND_S, "the producer finds the new leader")
    written = _acknowledged(scene, producer)
    await cluster.until(lambda: consumer.offset >= written, FOUND_S, "the consumer finds the new leader")
    consumer.stopping = True
    scene.loop.heal()


def _cut(scene: Choreography, leader: int) -> None:
    """Cut the links of a node to the others, but not to clients: in both ways, or only what it sends."""
    nodes, is_mute = scene.cluster.nodes, scene.chance.random() < 0.3
    for each, sim_node in nodes.items():
        if each != leader:
            cut = scene.loop.clog if is_mute else scene.loop.cut
            cut(nodes[leader].host, sim_node.host)


def _acknowledged(scene: Choreography, producer: Producer) -> int:
    """Return the end of what a producer has written."""
    name = producer.client.name.encode()
    ends = [
        batch.base_offset + len(batch.values)
        for batch in scene.history.acked.get(producer.where, ())
        if batch.values[0].split(b"/")[0] == name
    ]
    return max(ends, default=0)
