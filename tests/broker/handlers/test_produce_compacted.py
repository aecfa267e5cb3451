"""Produce to compacted topics: each record needs a key, and no batch holds up the loop while that is looked at."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import InvalidRecord
from raftlog.records.batch import build_batch, new_record, read_header
from raftlog.records.compression import GZIP, NONE, ZSTD
from raftlog.records.validation import RecordRules, validate_small_batch
from tests.broker.fakes import (
    TOPIC,
    FakeAppendInfo,
    FakeClient,
    FakePartition,
    FakePartitionServer,
    batch,
    produce,
)

INVALID_RECORD = 87
MAX_TURNS = 1000
COMPACTED = TopicConfig(cleanup_policy=("compact",))


class KeyedPartition(FakePartition):
    """A leader of a compacted topic with real batches, checked as a real leader does."""

    def __init__(self, topic: str = TOPIC, index: int = 0) -> None:
        super().__init__(topic, index)
        self.config = COMPACTED

    def append_produced(
        self, records: memoryview, *, acks: int, now_ms: int, max_timestamp: int | None = None
    ) -> FakeAppendInfo:
        if max_timestamp is None:
            validate_small_batch(read_header(records), records, RecordRules.of(self.config, now_ms))
        return super().append_produced(records, acks=acks, now_ms=now_ms)


def keyed(count: int, *, keyless: int = -1, codec: int = NONE, size: int = 1) -> bytes:
    """A batch; its record number `keyless` has no key."""
    return build_batch(
        [
            new_record(None if each == keyless else b"k%d" % each, b"v" * size, timestamp=1)
            for each in range(count)
        ],
        codec=codec,
    )


def results(pipe: FakeClient) -> list[tuple[int, int]]:
    topics = pipe.answer(0, 9).responses
    return [(each.error_code, each.base_offset) for topic in topics for each in topic.partition_responses]


async def all_answered(fake: FakePartitionServer) -> int:
    """Wait until all checks are done; return how many turns the loop had meanwhile."""
    for turns in range(MAX_TURNS):
        if not fake.server.tasks:
            return turns
        fake.offload.run()
        await asyncio.sleep(0)
    raise AssertionError("it is looked at for ever")


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize(("keyless", "expected"), [(-1, (0, 0)), (4_999, (INVALID_RECORD, -1))])
async def test_a_large_batch_is_looked_at_in_turns(
    codec: int, keyless: int, expected: tuple[int, int]
) -> None:
    """Its last record counts like its first; the loop does other things in between."""
    fake = FakePartitionServer(KeyedPartition())
    pipe = fake.connect()
    pipe.send(produce(1, (0, keyed(5_000, keyless=keyless, codec=codec))))
    assert not pipe.transport.written
    assert await all_answered(fake) > 20
    assert results(pipe) == [expected]


async def test_what_comes_behind_a_large_batch_is_appended_behind_it() -> None:
    """A producer's batches keep their order, and so do the answers; then requests overlap again."""
    partition = KeyedPartition()
    partition.auto_commit = False
    fake = FakePartitionServer(partition)
    pipe = fake.connect()
    pipe.send(*(produce(each, (0, keyed(count)), acks=-1) for each, count in ((1, 1), (2, 900), (3, 2))))
    assert [end for _, end, _ in partition.batches] == [1]
    await all_answered(fake)
    await asyncio.sleep(0)
    assert [end for _, end, _ in partition.batches] == [1, 901, 903]
    assert not pipe.transport.written
    partition.commit()
    assert pipe.correlation_ids() == [1, 2, 3]


async def test_other_partitions_of_the_request_are_not_hurt() -> None:
    """Each has its own result, in its place; a partition that is named twice is refused the second time."""
    fake = FakePartitionServer(KeyedPartition(index=0), FakePartition(index=1))
    pipe = fake.connect()
    pipe.send(produce(1, (0, keyed(900, keyless=800)), (1, batch(3)), (0, keyed(1))))
    await all_answered(fake)
    assert results(pipe) == [(INVALID_RECORD, -1), (0, 0), (INVALID_RECORD, -1)]


async def test_a_small_batch_that_is_large_inside_is_looked_at_elsewhere() -> None:
    """Decompressing it would hold up the loop; what is malformed is refused as before."""
    fake = FakePartitionServer(KeyedPartition())
    pipe = fake.connect()
    bomb = keyed(3, codec=ZSTD, size=1_000_000)
    assert len(bomb) < 2_000
    pipe.send(produce(1, (0, bomb)))
    assert not pipe.transport.written
    await all_answered(fake)
    assert results(pipe) == [(0, 0)]


async def test_acks_0_is_appended_too_and_a_keyless_record_closes_the_connection() -> None:
    """The client has no other way to notice."""
    partition = KeyedPartition()
    fake = FakePartitionServer(partition)
    pipe = fake.connect()
    pipe.send(produce(1, (0, keyed(900)), acks=0), produce(2, (0, keyed(1))))
    await all_answered(fake)
    await asyncio.sleep(0)
    assert pipe.correlation_ids() == [2] and partition.log_end_offset == 901
    pipe.send(produce(3, (0, keyed(900, keyless=5)), acks=0))
    await all_answered(fake)
    assert pipe.transport.closed


async def test_a_client_that_goes_away_meanwhile_appends_nothing() -> None:
    """The request is dropped without leftovers."""
    partition = KeyedPartition()
    fake = FakePartitionServer(partition)
    pipe = fake.connect()
    pipe.send(produce(1, (0, keyed(900))))
    pipe.connection.connection_lost(None)
    await all_answered(fake)
    assert (partition.log_end_offset, fake.server.tasks) == (0, set())


def test_records_out_of_their_place_are_refused() -> None:
    """Their offsets would differ from the offsets used by compaction."""
    sound = bytearray(keyed(3))
    records: Any = sound[61:]
    length = records[0] // 2 + 1
    shuffled = bytes(sound[:61]) + records[length : 2 * length] + records[:length] + records[2 * length :]
    with pytest.raises(InvalidRecord, match=r"record 0 .* 1$"):
        validate_small_batch(read_header(shuffled), shuffled, RecordRules.of(COMPACTED, 1))


@pytest.mark.parametrize("count", [100, 1_000])
async def test_each_record_without_a_key_is_named(count: int) -> None:
    """In small batches and in batches that are walked in turns alike: with KIP-467 the client can send the others
    again.
    """
    fake = FakePartitionServer(KeyedPartition())
    pipe = fake.connect()
    keyless = range(5, count, count // 10)
    records = [
        new_record(None if each in keyless else b"k%d" % each, b"v", timestamp=1) for each in range(count)
    ]
    pipe.send(produce(1, (0, build_batch(records))))
    await all_answered(fake)
    (result,) = pipe.answer(0, 9).responses[0].partition_responses
    assert result.error_code == INVALID_RECORD
    assert result.error_message.startswith(f"10 of {count} records are refused; record 5: ")
    assert [each.batch_index for each in result.record_errors] == [*keyless]
    assert {each.batch_index_error_message for each in result.record_errors} == {
        "the record has no key, which a compacted topic needs"
    }


async def test_batches_that_wait_to_be_walked_are_counted_and_refused_where_there_is_no_room() -> None:
    """NOT_ENOUGH_REPLICAS, which a producer tries again after; decompressed they are counted as well."""
    fake = FakePartitionServer(KeyedPartition())
    unappended = fake.server.memory.unappended
    pipe, other = fake.connect(), fake.connect()
    data = keyed(5_000, codec=GZIP)
    pipe.send(produce(1, (0, data)))
    await asyncio.sleep(0)
    assert unappended.used == len(data)
    unappended.acquire(unappended.limit)
    other.send(produce(1, (0, data)))
    assert results(other) == [(19, -1)]
    await all_answered(fake)
    assert results(pipe) == [(0, 0)]
    assert unappended.most > unappended.limit + 2 * len(data)
    assert unappended.used == unappended.limit


@pytest.mark.parametrize("acks", [-1, 0])
async def test_a_batch_is_not_kept_while_a_commit_is_waited_for(acks: int) -> None:
    """Its own commit or, with acks=0, an earlier request's. The batch is no longer counted then, and the wait may be
    long.
    """
    partition = KeyedPartition()
    partition.auto_commit = False
    fake = FakePartitionServer(partition)
    pipe = fake.connect()
    pipe.send(produce(1, (0, keyed(1)), acks=-1))
    data = keyed(5_000, codec=GZIP)
    pipe.send(produce(2, (0, data), acks=acks))
    await asyncio.sleep(0)

    def views() -> int:
        return sum(isinstance(each, memoryview) and len(each) == len(data) for each in gc.get_objects())

    assert views() > 0
    await all_answered(fake)
    assert (partition.log_end_offset, views()) == (5_001, 0)
    assert not pipe.transport.written
    partition.commit(5_001)
    assert pipe.correlation_ids() == [1, 2][: 1 - acks]


async def test_a_batch_that_decompresses_to_more_than_there_is_memory_for_is_refused() -> None:
    """MESSAGE_TOO_LARGE: producers then split it, and its memory is released."""
    fake = FakePartitionServer(KeyedPartition(), raftlog_memory_max_bytes=8_000_000)
    unappended = fake.server.memory.unappended
    pipe = fake.connect()
    data = keyed(300, codec=ZSTD, size=10_000)
    pipe.send(produce(1, (0, data)))
    await all_answered(fake)
    assert results(pipe) == [(10, -1)]
    assert len(data) < unappended.most <= len(data) + unappended.limit // 2
    assert unappended.used == 0
