"""Clients with correct clocks write data of each kind that raftlog deletes by age, and read it again.

The data: records (of a client's time and of the broker's), old values and tombstones of compacted topics, committed
offsets. Then transactional ids, an open transaction, an idempotent producer and a delegation token. All must be kept
for an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.types import TopicPartition
from raftlog.metadata.controller_api import CreateToken
from raftlog.records.batch import ProducerIdAndSequence, build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog_chaos.checkers.records import read_batches
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.hosts import WALL_EPOCH_MS
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.committer import BACKOFF_S, Committer
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.produce_frames import Answer, decode_produced, encode_produce
from raftlog_chaos.workloads.raw_client import AWAY, Client, create_topic
from raftlog_chaos.workloads.txn_client import NOT_NOW, TransactionalProducer

HOUR_MS: Final = 3_600_000
SETTINGS: Final = {
    "log.retention.ms": str(HOUR_MS),
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": "60",
    "offsets.retention.check.interval.ms": "50",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": str(HOUR_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
    "producer.id.expiration.ms": str(HOUR_MS),
    "delegation.token.secret.key": "a key of the simulation",
    "delegation.token.expiry.time.ms": str(HOUR_MS),
    "delegation.token.expiry.check.interval.ms": "100",
}
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "400"}
TOPICS: Final = {
    "kept": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "lagging": {**COMPACTED, "min.compaction.lag.ms": str(HOUR_MS)},
    "table": {**COMPACTED, "delete.retention.ms": str(HOUR_MS)},
}
DELETED: Final = b"deleted"
"""The key of the tombstone."""
DELEGATION: Final = "of-al"
PRODUCER: Final = ProducerIdAndSequence(7_200, 0, 0)
REFUSED_S: Final = 0.05
COMMITTED_S: Final = 60.0
ALL_ACKS: Final = -1


class Patient(TransactionalProducer):
    """Its transactions may last for a quarter of an hour."""

    timeout_ms = 900_000


class AgedData:
    """Writes all kinds in `begin`, more in `write_more`, and lists lost data in `missing`."""

    def __init__(self, loop: SimLoop, cluster: SimCluster) -> None:
        self.loop = loop
        self.cluster = cluster
        self.acked = 0
        self._history = Observations(cluster.failures, loop.chronicle)
        self._client = Client("writer", cluster.bootstrap)
        self._host = loop.host("writer")
        self._values: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self._committers: list[Committer] = []
        self._idle, self._open = (
            Patient(
                Client(name, cluster.bootstrap),
                f"id-{name}",
                group=f"group-{name}",
                reads=("kept", 0),
                bumping=False,
            )
            for name in ("idle", "open")
        )
        self._first_offset = -1

    async def begin(self) -> None:
        """Create the topics and write the first data of each kind."""
        await self._host.start(self._begin())
        await self.write_more("first")

    async def write_more(self, name: str) -> None:
        """Write a record to each topic, and commit an offset in a group of that name."""
        await self._host.start(self._write_each(name))
        client = Client(f"committer-{name}", self.cluster.bootstrap)
        chance = self.loop.stream(client.name)
        committer = Committer(client, "kept", 0, history=self._history, chance=chance)
        self._committers.append(committer)
        running = self._host.start(committer.run())
        await self.cluster.until(lambda: committer.acked, COMMITTED_S, "an offset committed")
        committer.stopping = True
        await running

    def look_at_producers(self) -> None:
        """Make brokers check for silent producers, which they do every ten minutes otherwise."""
        for each in self.cluster.running():
            if each.node is not None and each.node.broker is not None and each.ready:
                each.host.start(each.node.broker.housekeeping.expire_producers())

    async def missing(self) -> list[str]:
        """Return the lost data, in words. The open transaction ends."""
        return [*self._missing_records(), *self._missing_state(), *await self._host.start(self._read_back())]

    async def _begin(self) -> None:
        for topic, configs in TOPICS.items():
            await create_topic(self._client, topic, partitions=1, configs=configs)
        await self._write("table", DELETED, b"x")
        await self._write("table", DELETED, None)
        self._first_offset = await self._write("kept", None, b"of a producer", PRODUCER)
        await self._idle.init()
        await self._open.init()
        await self._open.add([("kept", 0)])
        await self._open.write(("kept", 0), b"of a transaction")
        await self._make_token()

    async def _write_each(self, name: str) -> None:
        for topic, values in self._values.items():
            value = b"%s of %d" % (name.encode(), len(values))
            await self._write(topic, b"filler" if topic == "table" else b"key", value + b"." * 150)
            values.append(value)

    async def _write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        stamp: ProducerIdAndSequence | None = None,
    ) -> int:
        """Write one record until it is acknowledged; returns its offset."""
        client = self._client
        record = new_record(key, value, timestamp=WALL_EPOCH_MS + int(self.loop.time() * 1000))
        batch = build_batch([record]) if stamp is None else build_batch([record], producer=stamp)
        while True:
            try:
                await client.refresh(topic)
                wire, _ = await client.leader_wire(topic, 0)
                frame = wire.ask_by(
                    lambda number: encode_produce(
                        number, client.name, (topic, 0), batch, acks=ALL_ACKS, timeout_ms=1_000
                    ),
                    decode_produced,
                )
                answer: Answer = await client.answer(wire, frame)
                if not answer.error_code:
                    self.acked += 1
                    return answer.base_offset
                assert answer.error_code in NOT_NOW, f"{topic} refuses a record: error {answer.error_code}"
            except AWAY:
                pass
            await asyncio.sleep(REFUSED_S)

    async def _make_token(self) -> None:
        node = self.cluster.nodes[1]
        assert node.node is not None
        await node.host.start(
            node.node.control.submit(CreateToken(DELEGATION, "User:al", "User:al", (), -1), timeout=10.0)
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def _missing_records(self) -> Iterator[str]:
        for topic, values in self._values.items():
            for node_id in self.cluster.nodes:
                replica = self.cluster.replica(node_id, topic, 0)
                assert replica is not None, f"node {node_id} has no replica of {topic}"
                records = _records(read_batches(replica.log, replica.log_end_offset))
                if topic == "table":
                    if (DELETED, None) not in records:
                        yield f"node {node_id} has no tombstone in {topic}"
                    continue
                found = {(value or b"").rstrip(b".") for _, value in records}
                gone = [each for each in values if each not in found]
                if gone:
                    yield f"node {node_id} has no record {gone[0]!r} in {topic}"

    def _missing_state(self) -> Iterator[str]:
        image = self.cluster.newest_image()
        if image is None or DELEGATION not in image.tokens:
            yield "the delegation token was removed"
        brokers = [each.node.broker for each in self.cluster.running() if each.node is not None]
        for node_id, broker in zip(self.cluster.nodes, brokers, strict=True):
            assert broker is not None
            kept = broker.replicas.partitions[TopicPartition("kept", 0)]
            if PRODUCER.producer_id not in kept.log.producers:
                yield f"node {node_id} forgot an idempotent producer"

    async def _read_back(self) -> list[str]:
        gone: list[str] = []
        again = await self._write("kept", None, b"of a producer", PRODUCER)
        if again != self._first_offset:
            gone.append(f"a retry was appended again, at {again}")
        try:
            await self._open.end(commit=True)
        except LookupError as error:
            gone.append(f"the open transaction was aborted: {error}")
        epoch = self._idle.epoch
        await self._idle.init()
        if self._idle.epoch != epoch + 1:
            gone.append("the idle transactional id was forgotten")
        for committer in self._committers:
            await self._read_offset(committer)
        return gone

    async def _read_offset(self, committer: Committer) -> None:
        """Read a committed offset; a missing offset is recorded in the history."""
        while True:
            try:
                await committer.find()
                if not await committer.read():
                    return
            except AWAY:
                pass
            await asyncio.sleep(BACKOFF_S)


def _records(batches: bytes) -> list[tuple[Any, Any]]:
    view = memoryview(batches)
    return [
        (record.key, record.value)
        for position, header in iter_headers(view)
        if not header.is_control
        for record in iter_records(view[position : position + header.length])
    ]
