"""Transactions begin and end while leaders die: read_committed shows no record of an open or aborted transaction."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.ledger import Ledger, LedgerReader
from raftlog_chaos.workloads.raw_client import Client, create_topic

Reader = TypeVar("Reader", bound=LedgerReader)

LEDGER = "ledger"
SETTINGS = {"log.flush.offset.checkpoint.interval.ms": "100"}
"""A restart reads the log from where it was flushed last: what ended before that is known from the indexes alone."""


async def transactions(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Write transactions for some virtual seconds, and kill the leader now and then. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    await loop.host("admin").start(
        create_topic(Client("books", scene.cluster.bootstrap), LEDGER, partitions=1)
    )
    ledger = Ledger(loop.stream("ledger"))
    readers = [employ(scene, ledger, f"reader{number}", LedgerReader) for number in range(2)]
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(scene.a_while(0.005, 0.02))
        scene.cluster.check()
        found = scene.cluster.leader_replica(LEDGER, 0)
        if found is None:
            continue
        leader, replica = found
        leader.host.call(ledger.step, replica)
        if scene.chance.random() < 0.01:
            scene.cluster.crash(leader.node_id, power_loss=scene.power())
            loop.call_later(scene.a_while(0.0, 0.3), scene.cluster.start, leader.node_id)
    for each in readers:
        each.stopping = True
    assert all(each.read for each in readers), "no transaction was read"
    assert ledger.refused, "nothing came too late"
    await scene.whole()
    await _read_anew(scene, ledger)
    return await scene.end()


async def _read_anew(scene: Choreography, ledger: Ledger) -> None:
    """After all nodes died, the last leader still knows the outcome of every transaction."""
    due = max(
        replica.last_stable_offset
        for node_id in scene.cluster.nodes
        if (replica := scene.cluster.replica(node_id, LEDGER, 0)) is not None
    )
    scene.cluster.crash(*scene.cluster.nodes, power_loss=scene.power())
    scene.cluster.start()
    reader = employ(scene, ledger, "auditor", LedgerReader)
    await scene.cluster.until(lambda: reader.offset >= due, SERVED_S, "all is read again")
    reader.stopping = True


def employ(scene: Choreography, ledger: Ledger, name: str, kind: type[Reader]) -> Reader:
    """Return a reader of the ledger that has begun."""
    reader = kind(Client(name, scene.cluster.bootstrap), (LEDGER, 0), ledger, history=scene.history)
    scene.loop.host(name).start(reader.run())
    return reader
