"""The workload with confluent-kafka against real processes; one of them is killed."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from raftlog.testing.cluster import Cluster
from raftlog.testing.progress import STALL_S, signs_of_descendants, wait_until_async
from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, Op, Recorder
from raftlog_chaos.workloads.log_workload import LogOptions, LogWorkload
from raftlog_chaos.workloads.stock import StockPorts

pytestmark = [pytest.mark.clients, pytest.mark.slow]


async def served(load: LogWorkload, records: int) -> None:
    """Wait until so many more records are acknowledged."""
    due = load.acked_count + records

    async def is_served() -> bool:
        return load.acked_count >= due

    await wait_until_async(is_served, f"{records} records are acknowledged", seen=lambda: load.acked_count)


async def play(cluster: Cluster, load: LogWorkload) -> dict[str, int]:
    load.start()
    await served(load, 60)
    await asyncio.to_thread(cluster.kill, 1)
    await served(load, 60)
    await asyncio.to_thread(cluster.restart, 1)
    await served(load, 60)
    return await load.finish(STALL_S, signs=signs_of_descendants)


@pytest.mark.nightly
def test_stock_clients_find_nothing_wrong_when_a_node_is_killed() -> None:
    """Idempotent producers, consumers in groups, crashes of clients, and acks=1 writers beside them."""
    ops: list[Op] = []
    options = LogOptions(subscribe=True, careless=1, writes_per_key=30, crash_every_s=2.0)
    threads = threading.active_count()
    with Cluster(3, settings={"min.insync.replicas": "2"}) as cluster:
        ports = StockPorts(cluster.bootstrap_servers)
        recorder = Recorder(time.monotonic_ns, ops.append)
        load = LogWorkload(recorder, ports, random.Random(1), options)
        missing = asyncio.run(play(cluster, load))
    verdict = judge(Header(), ops)
    assert verdict.valid, verdict.text()
    assert not missing and not load.faults
    assert len(load.keys) > 4
    assert {"send", "poll", "subscribe", "assign", "crash"} <= {op.f for op in ops}
    assert threading.active_count() == threads, "every client is closed"
