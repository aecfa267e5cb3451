"""The log of `_schemas` loses its beginning and its end, and each node's registry is still that of the log.

An operator writes all live records again, as a compaction would leave them, and deletes the records before them. A
reader that reads nothing meanwhile must not keep a schema whose deletion it did not read.

At the end an unclean election loses records that all nodes have read, and others come in their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from raftlog.admin.schema_registry.store import RETRY_S
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.broker.coordination.schema_reader import SchemaReader
from raftlog.metadata.controller_api import AlterConfigs, ConfigAlteration, ConfigOp
from raftlog.records.batch import build_batch, iter_headers, iter_records, new_record
from raftlog.replication.partition import Partition
from raftlog.schemas.registry_state import RegistryState, Version
from raftlog.schemas.replay import decoded
from raftlog_chaos.checkers.records import read_batches
from raftlog_chaos.scenarios.choreography import SERVED_S
from raftlog_chaos.scenarios.endurance import Report
from raftlog_chaos.scenarios.schemas import SUBJECTS, Schemas, delete, fixed_text, register
from raftlog_chaos.simulator.loop import SimLoop

NODES: Final = 5
"""Two more than replicas: their readers live through an election of any replica."""
LOOK_S: Final = 0.05
MOST_LOST: Final = 4
"""Records that the unclean election loses, and as many or more follow."""


class TruncatedSchemas(Schemas):
    """The stage of `schemas`, with a node whose reader falls behind."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, nodes=NODES)
        self.readers: dict[Any, SchemaReader] = {}
        """By the node's life. They read only when they are compared."""
        self.trims = self.passed = self.lost = 0

    def leader_of_schemas(self) -> tuple[Any, Partition] | None:
        """Return the leader's node and replica if it serves."""
        found = self.cluster.leader_replica(SCHEMAS_TOPIC, 0)
        return found if found is not None and found[1].is_leader and found[0].ready else None

    async def configure(self, key: str, value: str) -> None:
        """Change a config of the topic."""
        change = ConfigAlteration("topic", SCHEMAS_TOPIC, (ConfigOp(key, value),))
        await self.submit(AlterConfigs((change,)))

    # -- the beginning of the log ------------------------------------------------------------------------------

    async def round(self) -> None:
        """Delete schemas that a node knows, and their records, before it reads on; then cause the usual trouble."""
        node_id = self.chance.choice(list(self.cluster.nodes))
        await self.compared(node_id)
        reader, trims = self._reader_of(node_id), self.trims
        subject = self.chance.choice(SUBJECTS)
        for permanent in (False, True):
            await self.ask_leader(partial(delete, subject=subject, permanent=permanent), tries=3)
        await self.trim()
        self.passed += self.trims > trims and reader is not None and reader is self._reader_of(node_id)
        await self.compared(node_id)
        await super().round()

    async def trim(self) -> None:
        """Write the live records again, and delete all before them once they are committed."""
        found = self.leader_of_schemas()
        if found is None:
            return
        node, partition = found
        epoch = partition.leader_epoch
        start, end = await node.host.start(_rewrite(partition))
        while partition.is_leader and partition.leader_epoch == epoch and node.ready:
            if partition.high_watermark >= end:
                node.host.call(lambda: partition.delete_records(start))
                self.trims += 1
                return
            await asyncio.sleep(LOOK_S)

    # -- what nodes know -----------------------------------------------------------------------------------

    def _reader_of(self, node_id: int) -> SchemaReader | None:
        """Return the reader in the node's present life; None while it is down."""
        node = self.cluster.nodes[node_id].node
        if node is None or node.broker is None:
            return None
        if node.broker not in self.readers:
            self.readers[node.broker] = SchemaReader(node.broker.context)
        return self.readers[node.broker]

    async def compared(self, node_id: int) -> None:
        """Have a node read on, and compare what it knows with the log, unless the node dies."""
        end = self.loop.time() + SERVED_S
        while self.loop.time() < end:
            self.cluster.check()
            reader, before = self._reader_of(node_id), self._log_end()
            if reader is None:
                return
            read = await self._answered(self.cluster.nodes[node_id], _read_on(reader))
            found = self.leader_of_schemas()
            if read and found is not None and before == self._log_end():
                self.judge_state(f"node {node_id}", reader.state, found[1])
                return
            await asyncio.sleep(LOOK_S)
        raise AssertionError(f"node {node_id} does not read `{SCHEMAS_TOPIC}` to its end")

    def _log_end(self) -> tuple[int, int] | None:
        """Return the leader epoch and the end of what is committed."""
        found = self.leader_of_schemas()
        return None if found is None else (found[1].leader_epoch, found[1].high_watermark)

    async def stores_compared(self) -> None:
        """Compare what each replica's registry has applied with the log, once it has tried again what failed."""
        await asyncio.sleep(2 * RETRY_S)
        for node in self.cluster.running():
            partition = self.cluster.replica(node.node_id, SCHEMAS_TOPIC, 0)
            if partition is not None:
                store = self._store_at(node)
                await self.cluster.until(lambda: not store.is_behind, SERVED_S, "a registry has all records")  # noqa: B023 - awaited here
                self.judge_state(f"the registry of node {node.node_id}", store.state, partition)

    def judge_state(self, name: str, known: RegistryState, partition: Partition) -> None:
        """Blame a registry that differs from that of the log."""
        log = RegistryState()
        start = partition.log_start_offset
        for each in decoded(read_batches(partition.log, partition.high_watermark), start)[0]:
            log.apply(*each)
        ours, theirs = _schemas_of(known), _schemas_of(log)
        if ours != theirs:
            self.history.blame(f"{name} has {ours - theirs} beside the log, and lacks {theirs - ours}")
        if known.highest_id != log.highest_id:
            self.history.blame(f"{name} has the highest id {known.highest_id}, not {log.highest_id}")

    async def ask_leader(self, request: Callable[[Any], Any], tries: int = 100) -> Any:
        """Return the answer of the leader's registry; None if it did not answer."""
        for _ in range(tries):
            found = self.leader_of_schemas()
            if found is not None:
                answer = await self._answered(found[0], request(self._store_at(found[0])))
                if answer is not None:
                    return answer
            await asyncio.sleep(LOOK_S)
        return None

    # -- the end of the log ------------------------------------------------------------------------------------

    async def lose_the_end(self) -> None:
        """Elect a replica that lacks the last records, and compare all nodes' registries with its log."""
        state = self.cluster.state(SCHEMAS_TOPIC, 0)
        assert state is not None
        leader = state.leader
        stale, other = self.chance.sample([each for each in state.replicas if each != leader], 2)
        await self.configure("unclean.leader.election.enable", "true")
        self.cluster.pause(stale)
        await self.cluster.until(lambda: stale not in self._isr(), SERVED_S, f"an ISR without node {stale}")
        lost = self.chance.randrange(1, MOST_LOST)
        await self.register_new("lost", lost)
        readers = [each for each in self.cluster.nodes if each not in (stale, leader)]
        for each in readers:
            await self.compared(each)
        self.cluster.invariants.excuse(SCHEMAS_TOPIC)
        self.cluster.crash(leader)
        self.cluster.pause(other)
        self.cluster.resume(stale)
        await self.cluster.until(lambda: self._leader() == stale, SERVED_S, f"node {stale} leads")
        await self.configure("min.insync.replicas", "1")
        await self.register_new("new", self.chance.randrange(lost, MOST_LOST + 1))
        self.cluster.resume(other)
        self.cluster.start(leader)
        for each in readers:
            await self.compared(each)
        self.lost = lost

    def _isr(self) -> tuple[int, ...]:
        state = self.cluster.state(SCHEMAS_TOPIC, 0)
        return () if state is None else state.isr

    def _leader(self) -> int:
        state = self.cluster.state(SCHEMAS_TOPIC, 0)
        return -1 if state is None else state.leader

    async def register_new(self, name: str, count: int) -> None:
        """Register so many schemas."""
        for number in range(count):
            text = fixed_text(name, number + 1)
            found = await self.ask_leader(partial(register, subject=SUBJECTS[0], text=text, takes_s=0.0))
            assert found is not None, f"schema {text} was not registered"


def _schemas_of(state: RegistryState) -> set[tuple[Version, str]]:
    versions = [each for subject in state.subjects for each in state.versions(subject, deleted=True)]
    return {(each, state.schema_of(each).text) for each in versions}


async def _read_on(reader: SchemaReader) -> bool:
    await reader.read_on()
    return True


async def _rewrite(partition: Partition) -> tuple[int, int]:
    """Append the last record of each key again, but for deletions. Return the first offset, and the next."""
    last: dict[bytes | None, bytes | None] = {}
    view = memoryview(read_batches(partition.log, partition.log_end_offset))
    for position, header in iter_headers(view):
        for each in iter_records(view[position : position + header.length]):
            last.pop(each.key, None)
            last[each.key] = each.value
    records = [new_record(key, value, timestamp=0) for key, value in last.items() if value is not None]
    start = partition.log_end_offset
    batch = memoryview(build_batch(records))
    partition.append_produced(batch, acks=-1, now_ms=0, max_timestamp=0)
    return start, partition.log_end_offset


async def schemas_truncated(loop: SimLoop, seconds: float = 5.0) -> Report:
    """Delete records of `_schemas` for some virtual seconds, then lose some. Raises AssertionError."""
    scene = TruncatedSchemas(loop)
    await scene.begin()
    await scene.configure("cleanup.policy", "compact,delete")
    await scene.configure("retention.ms", "-1")
    await scene.storm(seconds)
    await scene.cluster.until(scene.cluster.all_in_sync, SERVED_S, "all in sync")
    for each in scene.cluster.nodes:
        await scene.compared(each)
    await scene.lose_the_end()
    await scene.whole()
    await scene.cluster.until(scene.cluster.all_in_sync, SERVED_S, "all in sync")
    await scene.stores_compared()
    report = await scene.end()
    seen = {"trim": scene.trims, "reader passed": scene.passed, "schema lost": scene.lost}
    return replace(report, faults={**report.faults, **seen})
