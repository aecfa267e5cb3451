"""The part of `raftlog bench` about queues: a thousand workers of two hundred share groups on one topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from raftlog.cli.bench.figure import Figure
from raftlog.cli.bench.loops import look_at, own_stall
from raftlog.testing.cluster import AdminCluster, Cluster
from raftlog_chaos.bench import measure
from raftlog_chaos.bench.queue_load import QueueLoad

TOPIC: Final = "bench"
GROUPS: Final = 200
WORKERS_EACH: Final = 5
RECORDS: Final = 100
"""Records of each partition; every group takes all of them."""
STEADY_S: Final = 10.0
RESUMED_AIM_S: Final = 5.0

Make = Callable[..., Figure]


def many_workers(make: Make, create: Callable[[Cluster, str, int], None]) -> Iterator[Figure]:
    """Yield what a thousand workers cost while they wait and while they work, and how they pass a node's death."""
    with closing(AdminCluster(settings={"group.share.session.timeout.ms": "60000"})) as cluster:
        cluster.start()
        create(cluster, TOPIC, WORKERS_EACH)
        yield from asyncio.run(_many_workers(cluster, make))


async def _many_workers(cluster: AdminCluster, make: Make) -> list[Figure]:
    before = look_at(cluster)
    bootstrap = [(node.host, node.port) for node in cluster.nodes.values()]
    load = QueueLoad(bootstrap, TOPIC, groups=GROUPS, members=WORKERS_EACH)
    workers = load.workers
    name = f"{len(workers):,} workers of {GROUPS} groups"
    try:
        joined_s = await load.until(lambda: all(each.looked_at for each in workers), "all look for records")
        figures = [make("queues", f"{name} have joined", joined_s, "s", note="by one client process")]
        figures.append(own_stall("queues", f"{name} joining", before, look_at(cluster)))
        figures += await _waiting(cluster, make, name)
        before = look_at(cluster)
        figures.append(await _working(load, make, "records accepted"))
        figures.append(own_stall("queues", f"{name} working", before, look_at(cluster)))
        figures += await _without_a_node(cluster, load, make, name)
        figures.append(make("queues", "errors", load.errors, "", note="most by the node's death"))
        return figures
    finally:
        await load.close()


async def _waiting(cluster: AdminCluster, make: Make, name: str) -> list[Figure]:
    """Measure workers without records: each asks again twice a second."""
    before, used, began = look_at(cluster), _cpu_s(cluster), time.monotonic()
    await asyncio.sleep(STEADY_S)
    busy = 100 * (_cpu_s(cluster) - used) / (time.monotonic() - began) / len(cluster.nodes)
    rss = max(measure.resident_bytes(node.pid) for node in cluster.nodes.values()) / 1e6
    return [
        make("queues", f"{name} waiting, CPU per node", busy, "%"),
        make("queues", f"{name} waiting, RSS per node", rss, "MB", note="the largest"),
        own_stall("queues", f"{name} waiting", before, look_at(cluster)),
    ]


async def _working(load: QueueLoad, make: Make, name: str) -> Figure:
    count = GROUPS * WORKERS_EACH * RECORDS
    expected, began = load.accepted + count, time.monotonic()
    await load.produce(RECORDS)
    await load.until(lambda: load.accepted >= expected, "all groups have accepted all records")
    took_s = time.monotonic() - began
    note = f"{WORKERS_EACH * RECORDS} by each of {GROUPS} groups, {RECORDS} at once, in {took_s:.1f} s"
    return make("queues", name, count / took_s, "/s", note=note)


async def _without_a_node(cluster: AdminCluster, load: QueueLoad, make: Make, name: str) -> list[Figure]:
    """Kill a node; measure until each worker has looked for records again, and all groups accept the next."""
    before = look_at(cluster)
    cluster.kill(next(node_id for node_id in cluster.nodes if node_id != cluster.controller_id()))
    since = asyncio.get_running_loop().time()
    took_s = await load.until(lambda: all(each.looked_at > since for each in load.workers), "all look again")
    figures = [
        make("queues", f"{name} look again", took_s, "s", RESUMED_AIM_S, note="kill -9 of a node"),
        own_stall("queues", f"{name} taken over", before, look_at(cluster)),
    ]
    return [*figures, await _working(load, make, "records accepted by two nodes")]


def _cpu_s(cluster: AdminCluster) -> float:
    return measure.cpu_seconds([node.pid for node in cluster.nodes.values()])
