"""Power cuts while files are created, renamed and removed: by the cleaner, retention, truncation and new segments.

After a power cut, any subset of a folder's unsynced renames survives, so no code may rely on their order. One topic is
compacted and the other has a size limit. Both have tiny segments and transactions. Now and then the leader is isolated
and appends several segments that it must truncate later.

No replica may report damage, or have a gap between two segments. No record of an aborted transaction may become
visible, and no key may be lost or come back.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Final

from raftlog.records.header import read_header
from raftlog.replication.partition import Partition
from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.compaction import CONFIGS, TABLE, clean_all, cleanings, write_to_table
from raftlog_chaos.scenarios.log_starts import ResettingReader
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.scenarios.transactions import LEDGER
from raftlog_chaos.simulator.disk import NAMES_AND_SYNCS, SimDisk
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.keyed import KeyedWriter
from raftlog_chaos.workloads.ledger import Ledger
from raftlog_chaos.workloads.raw_client import Client, create_topic

SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "100",
}
SEGMENT_BYTES: Final = ("400", "700")
KEPT_BYTES: Final = ("800", "1500")
"""Size limits of the topic with retention. Retention runs seldom, so it drops several segments at a time."""
CUT_RATE: Final = 0.04
ALONE_RATE: Final = 0.01
MAX_CHANGES: Final = 20
"""Most renames and syncs in a partition's folder until the power cut."""


class NamesOutOfOrder(Choreography):
    """Both topics, their writers, and power cuts in the middle of renames."""

    async def begin(self) -> None:
        await super().begin()
        small = {"segment.bytes": self.chance.choice(SEGMENT_BYTES)}
        delay = {"file.delete.delay.ms": self.chance.choice(("0", "50", "60000"))}
        kept = {"retention.bytes": self.chance.choice(KEPT_BYTES)}
        client = Client("books", self.cluster.bootstrap)
        for topic, configs in ((TABLE, CONFIGS), (LEDGER, kept)):
            making = create_topic(client, topic, partitions=1, configs={**configs, **small, **delay})
            await self.loop.host("admin").start(making)
        self.keyed = KeyedWriter(self.loop.stream("keyed"))
        self.ledger = Ledger(self.loop.stream("ledger"), longest=8)
        reading = Client("reader", self.cluster.bootstrap)
        self.reader = ResettingReader(reading, (LEDGER, 0), self.ledger, history=self.history)
        self.loop.host("reader").start(self.reader.run())

    def write(self) -> None:
        """Append to both topics on their leaders, if any."""
        write_to_table(self, self.keyed)
        state = self.cluster.state(LEDGER, 0)
        if state is None or state.leader < 0:
            return
        if (replica := self.cluster.replica(state.leader, LEDGER, 0)) is not None:
            for _ in range(self.chance.choice((1, 4, 10))):
                self.cluster.nodes[state.leader].host.call(self.ledger.step, replica)

    def trouble(self) -> None:
        """Now and then schedule a power cut of a node, or isolate the leader of the ledger."""
        if self.chance.random() < CUT_RATE and len(self.cluster.running()) == len(self.cluster.nodes):
            chosen, changes = (
                self.chance.choice(list(self.cluster.nodes)),
                self.chance.randrange(MAX_CHANGES),
            )
            under = f"/data/{self.chance.choice((TABLE, LEDGER))}-0"
            self.cluster.crash_at_work(
                chosen, changes, lambda: self._after_cut(chosen), counted=NAMES_AND_SYNCS, under=under
            )
        if self.chance.random() < ALONE_RATE:
            state = self.cluster.state(LEDGER, 0)
            if state is not None and state.leader > 0:
                self._leave_alone(state.leader)

    def _after_cut(self, node_id: int) -> None:
        """Start the node again. Sometimes the power of all nodes fails at the same time."""
        if self.chance.random() < 0.3:
            self.cluster.crash(*(each for each in self.cluster.nodes if each != node_id))
        for each in self.cluster.nodes:
            self.loop.call_later(self.a_while(0.0, 0.2, 1.0), self.cluster.start, each)

    def judge_logs(self) -> None:
        """Check that the segments of each replica have no gaps, and that the compacted topic begins at offset 0."""
        for node_id in self.cluster.nodes:
            for topic in (TABLE, LEDGER):
                replica = self.cluster.replica(node_id, topic, 0)
                if replica is not None and (fault := _fault(self.cluster.nodes[node_id].host.disk, replica)):
                    self.cluster.failures.append(f"node {node_id}: {topic}: {fault}")
        self.cluster.check()

    def _leave_alone(self, node_id: int) -> None:
        host = self.cluster.nodes[node_id].host
        for other in (each.host for each in self.cluster.nodes.values() if each.host is not host):
            self.loop.cut(host, other)
            self.loop.call_later(self.a_while(0.1, 1.0, 2.0), self.loop.heal, host, other)


def _fault(disk: SimDisk, replica: Partition) -> str:
    segments = replica.log.segments
    if replica.name.topic == TABLE and segments[0].base_offset:
        return f"the table begins at {segments[0].base_offset}"
    for segment, following in pairwise(segments):
        content = disk.peek(segment.file.path)
        if content is None:
            return f"{segment.file.path} is not there"
        position, end_offset = 0, segment.base_offset
        while position < segment.size:
            header = read_header(content, position)
            position, end_offset = position + header.length, header.end_offset
        if end_offset != following.base_offset:
            return f"{segment.file.path} ends at {end_offset}, and the next begins at {following.base_offset}"
    return ""


async def names_out_of_order(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Cut the power at changes of names for some virtual seconds, clean all, judge. Raises AssertionError."""
    scene = NamesOutOfOrder(loop, settings=SETTINGS)
    await scene.begin()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(scene.a_while(0.005, 0.02))
        scene.judge_logs()
        scene.write()
        scene.trouble()
    await asyncio.sleep(3 * SERVED_S / 60)  # until every cut link is healed and every node is back
    for each in scene.cluster.nodes.values():
        each.host.disk.disarm()
    scene.stop()
    await scene.whole()
    await clean_all(scene, scene.keyed)
    scene.judge_logs()
    scene.reader.stopping = True
    report = await scene.end()
    seen = {"cleaning": cleanings(scene), "transaction": scene.keyed.transactions}
    return replace(report, faults={**report.faults, **seen})
