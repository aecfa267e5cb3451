"""A client reads in a fetch session what it has just written, while leaders die: all acknowledged records are there.

In the end it is idle, and its topic is deleted: its session must not hold the log.

A node may read from its sockets before its due timers, as with uvloop. Here it wakes consumers late. A fetch has all
records that were acknowledged before it was sent, as in Kafka, which looks at each partition anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from raftlog.broker.replicas.replicas import Replicas
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.departed_logs import DepartedLogs
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.raw_client import AWAY, Client, create_topic, delete_topic
from raftlog_chaos.workloads.session_reader import SessionReader

SESSIONS: Final = "sessions"
LATE_S: Final = 0.05
ROUNDS: Final = 20
"""Records between two crashes."""


async def fetch_sessions(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Write and read for some virtual seconds. Raises AssertionError."""
    with late_wakes():
        scene = Choreography(loop)
        await scene.begin()
        departed = DepartedLogs(scene.cluster)
        client = Client("reader", scene.cluster.bootstrap)
        await loop.host("admin").start(create_topic(client, SESSIONS, partitions=1))
        reader, read = SessionReader(client, (SESSIONS, 0)), 0
        end = loop.time() + seconds
        while loop.time() < end:
            await scene.whole()
            async with asyncio.timeout(SERVED_S):
                read += await loop.host(client.name).start(_read_what_is_written(scene, reader))
            state = scene.cluster.state(SESSIONS, 0)
            if state is not None and state.leader >= 0:
                scene.cluster.crash(state.leader, power_loss=scene.power())
        await scene.whole()
        async with asyncio.timeout(SERVED_S):
            read += await loop.host(client.name).start(_read_what_is_written(scene, reader))
        await loop.host("admin").start(delete_topic(client, SESSIONS))
        held = await departed.held()
        assert departed and not held, "; ".join(held)
        report = await scene.end()
    assert read > reader.sessions, "no session lasted: this proves nothing"
    return replace(report, faults={**report.faults, "read in a session": read})


@contextmanager
def late_wakes() -> Iterator[None]:
    """Make nodes wake the waiters of partitions a while after a commit."""
    wake = Replicas.wake_waiters

    def wake_late(replicas: Replicas, partition: Partition) -> None:
        if not replicas.to_wake:
            asyncio.get_running_loop().call_later(LATE_S, replicas.wake_now)
        replicas.to_wake.append(partition)

    setattr(Replicas, wake.__name__, wake_late)
    try:
        yield
    finally:
        setattr(Replicas, wake.__name__, wake)


async def _read_what_is_written(scene: Choreography, reader: SessionReader) -> int:
    """Write and read some records, one by one; return how many were read in the former session."""
    read = 0
    for number in range(ROUNDS):
        value = f"{scene.loop.time():.6f}/{number}".encode()
        try:
            while await reader.read():
                pass
            await reader.write(value)
            found = await reader.read()
        except AWAY:
            await asyncio.sleep(scene.a_while(0.05, 0.2))
            await _look_for_the_leader(reader)
            continue
        assert value in found, f"{value!r} was acknowledged, and a fetch brought {found}"
        read += 1
        await asyncio.sleep(scene.a_while(0.0, 0.02))
    return read


async def _look_for_the_leader(reader: SessionReader) -> None:
    try:
        await reader.client.refresh(reader.where[0])
    except AWAY:
        pass
