"""The log start moves past open transactions: by DeleteRecords, retention.bytes and retention.ms.

Readers of committed transactions begin at the latest offset, which must be in the log, and read on from there.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from raftlog.base.errors import KafkaError
from raftlog.replication.leader_role import LATEST
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.choreography import Choreography
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.transactions import LEDGER, employ
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.committed_reader import READ_COMMITTED
from raftlog_chaos.workloads.ledger import Ledger, LedgerReader
from raftlog_chaos.workloads.raw_client import LIST_OFFSETS, Client, create_topic, shapes

SETTINGS = {"log.retention.check.interval.ms": "150", "log.flush.offset.checkpoint.interval.ms": "100"}
RETENTIONS: tuple[dict[str, str], ...] = ({"retention.bytes": "1500"}, {"retention.ms": "200"}, {})
LONGEST = 25
"""Batches of a transaction, so that the log start may pass its first."""


class ResettingReader(LedgerReader):
    """Begins at the latest offset, and again whenever the offset it is at was deleted."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.resets = 0

    def saw_offsets(self, log_start: int, stable: int, high_watermark: int) -> None:
        if not log_start <= stable <= high_watermark:
            order = f"log start {log_start}, last stable offset {stable}, high watermark {high_watermark}"
            self.history.blame(f"{self.where}: an answer says {order}")

    async def out_of_range(self) -> None:
        topic, index = self.where
        make = shapes(LIST_OFFSETS)
        latest = make.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=LATEST)
        request = make.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=(make.ListOffsetsTopic(name=topic, partitions=(latest,)),),
        )
        response = await self.client.ask_leader(topic, index, LIST_OFFSETS, request)
        result = response.topics[0].partitions[0]
        if int(result.error_code) == 0:
            self.offset = result.offset
            self.resets += 1


async def log_starts(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Delete under open transactions for some virtual seconds, with crashes. Raises AssertionError."""
    scene = Choreography(loop, settings=SETTINGS)
    await scene.begin()
    configs = {"segment.bytes": "600", **scene.chance.choice(RETENTIONS)}
    client = Client("books", scene.cluster.bootstrap)
    await loop.host("admin").start(create_topic(client, LEDGER, partitions=1, configs=configs))
    ledger = Ledger(loop.stream("ledger"), longest=LONGEST)
    readers = [employ(scene, ledger, f"reader{number}", ResettingReader) for number in range(2)]
    deletions = 0
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(scene.a_while(0.005, 0.02))
        scene.cluster.check()
        found = scene.cluster.leader_replica(LEDGER, 0)
        if found is None:
            continue
        leader, replica = found
        leader.host.call(ledger.step, replica)
        if scene.chance.random() < 0.1:
            deletions += replica.is_leader
            leader.host.call(partial(_delete, replica, scene.chance.random()))
        if scene.chance.random() < 0.01:
            scene.cluster.crash(leader.node_id, power_loss=scene.power())
            loop.call_later(scene.a_while(0.0, 0.3), scene.cluster.start, leader.node_id)
    for each in readers:
        each.stopping = True
    await scene.whole()
    report = await scene.end()
    seen = {"deletion": deletions, "reset": sum(each.resets for each in readers)}
    return replace(report, faults={**report.faults, **seen})


def _delete(replica: Partition, share: float) -> None:
    """Delete so much of what is committed; all of it at 0.5 or more."""
    start, high_watermark = replica.log_start_offset, replica.high_watermark
    try:
        replica.delete_records(-1 if share >= 0.5 else start + int(2 * share * (high_watermark - start)))
    except KafkaError:
        pass  # another replica leads by now
