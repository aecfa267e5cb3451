"""compression.type of a topic: the leader gives each batch the topic's codec (Kafka: LogValidator)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.config import parse_topic_configs
from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import InvalidConfig
from raftlog.records.batch import (
    ProducerIdAndSequence,
    build_batch,
    iter_headers,
    iter_records,
    new_record,
)
from raftlog.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from raftlog.records.header import TRANSACTIONAL_BIT, BatchHeader, check_crc
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker
from tests.broker.fakes import FakeClient, FakePartitionServer, produce
from tests.broker.handlers.test_produce_fields import lead, serve
from tests.records.forged_batches import with_payload
from tests.replication.replica_cluster import NOW_MS

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
TYPES = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
COUNT = 50


def records(size: int = 100, count: int = COUNT) -> list[Any]:
    return [
        new_record(b"key %d" % each, b"%d " % each * size, timestamp=NOW_MS - each) for each in range(count)
    ]


def sent(codec: int = NONE, *, producer: tuple[int, int, int] = (-1, -1, -1), **size: int) -> bytes:
    return build_batch(records(**size), producer=ProducerIdAndSequence(*producer), codec=codec)


async def produced(fake: FakePartitionServer, pipe: FakeClient, batch: bytes, *, acks: int = 1) -> int:
    """Send one batch; returns the error code once it is answered."""
    pipe.send(produce(1, (0, batch), acks=acks))
    while fake.server.tasks:
        fake.offload.run()
        await asyncio.sleep(0)
    (topic,) = pipe.answer(0, 9).responses
    return int(topic.partition_responses[0].error_code)


def leader(config: dict[str, Any]) -> Partition:
    """A leader of a topic with this config, and one batch from before."""
    partition = lead({})
    partition.configure(TopicConfig(**config))
    return partition


def stored(partition: Partition) -> list[tuple[BatchHeader, bytes]]:
    """The batches behind the batch that `lead` wrote; their CRCs hold."""
    partition.note_flushed(partition.log_end_offset)
    chunk = bytes(partition.log.read(1, 1 << 24, end_offset=partition.log_end_offset) or b"")
    found = []
    for position, header in iter_headers(chunk):
        check_crc(chunk, position, header)
        found.append((header, chunk[position : position + header.length]))
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("compression_type", TYPES)
async def test_each_codec_becomes_the_topics(codec: int, compression_type: str) -> None:
    """The records, their times and the producer's fields are as they were sent."""
    partition = leader({"compression_type": compression_type})
    fake = serve(partition)
    batch = sent(codec, producer=(7, 3, 0))
    assert await produced(fake, fake.connect(), batch) == 0
    ((header, whole),) = stored(partition)
    assert header.codec == CODEC_NAMES[compression_type]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    assert (header.base_offset, header.record_count, header.max_timestamp) == (1, COUNT, NOW_MS)
    found = [(each.key, each.value, each.timestamp) for each in iter_records(whole)]
    assert found == [(each.key, each.value, each.timestamp) for each in records()]


@pytest.mark.parametrize(
    ("compression_type", "codec"), [*zip(TYPES, CODECS, strict=True), ("producer", ZSTD), ("producer", NONE)]
)
async def test_a_batch_with_the_topics_codec_is_stored_as_it_was_sent(
    compression_type: str, codec: int
) -> None:
    """Within the request, without a thread: the path that most batches take costs what it did."""
    partition = leader({"compression_type": compression_type, "compression_zstd_level": 19})
    fake = serve(partition)
    pipe, batch = fake.connect(), sent(codec)
    pipe.send(produce(1, (0, batch)))
    assert not fake.server.tasks
    ((_, whole),) = stored(partition)
    assert whole[16:] == batch[16:]


@pytest.mark.parametrize(
    ("compression_type", "level", "low", "high"),
    [("gzip", "gzip", 1, 9), ("lz4", "lz4", 1, 12), ("zstd", "zstd", -50, 19)],
)
async def test_the_topics_level_decides_the_size(
    compression_type: str, level: str, low: int, high: int
) -> None:
    """compression.gzip.level and the others are read."""
    sizes = []
    for value in (low, high):
        partition = leader({"compression_type": compression_type, f"compression_{level}_level": value})
        fake = serve(partition)
        assert await produced(fake, fake.connect(), sent()) == 0
        sizes.append(stored(partition)[0][0].length)
    assert sizes[0] > sizes[1]


async def test_a_retry_is_answered_with_the_first_ones_offset_and_writes_nothing() -> None:
    """Sequences are compared by the header, whatever codec the first batch got."""
    partition = leader({"compression_type": "zstd"})
    fake = serve(partition)
    pipe = fake.connect()
    for _ in range(2):
        assert await produced(fake, pipe, sent(producer=(7, 0, 0))) == 0
    assert len(stored(partition)) == 1


async def test_transactions_keep_their_batches_and_markers_are_never_compressed() -> None:
    """Kafka writes control batches uncompressed in every topic."""
    partition = leader({"compression_type": "gzip"})
    verification = partition.begin_verification(9, 0)
    assert verification is not None
    verification.confirm()
    batch = build_batch(records(), producer=ProducerIdAndSequence(9, 0, 0), attributes=TRANSACTIONAL_BIT)
    fake = serve(partition)
    pipe = fake.connect()
    pipe.send(produce(1, (0, batch), transactional_id="t"))
    while fake.server.tasks:
        fake.offload.run()
        await asyncio.sleep(0)
    partition.append_marker(TxnMarker(9, 0, True, coordinator_epoch=1), now_ms=NOW_MS)
    (data, _), (marker, _) = stored(partition)
    assert (data.codec, data.is_transactional, marker.codec, marker.is_control) == (GZIP, True, NONE, True)


async def test_a_bomb_is_refused_within_the_budget() -> None:
    """MESSAGE_TOO_LARGE: it would decompress to 64 times max.message.bytes."""
    partition = leader({"compression_type": "gzip", "max_message_bytes": 20_000})
    fake = serve(partition)
    account = fake.server.memory.unappended
    assert await produced(fake, fake.connect(), sent(ZSTD, size=100_000, count=20)) == 10
    assert 0 < account.most <= 64 * 20_000 + (1 << 18) and account.used == 0
    assert stored(partition) == []


async def test_a_batch_too_large_in_the_topics_codec_is_refused() -> None:
    """MESSAGE_TOO_LARGE, as in Kafka: max.message.bytes counts before and after."""
    partition = leader({"compression_type": "uncompressed", "max_message_bytes": 5_000})
    fake = serve(partition)
    pipe = fake.connect()
    assert len(sent(GZIP)) < 5_000 < len(sent())
    assert await produced(fake, pipe, sent(GZIP)) == 10
    assert await produced(fake, pipe, sent(GZIP, size=1)) == 0
    assert len(stored(partition)) == 1


@pytest.mark.parametrize("count", [1, 1_000])
async def test_malformed_records_are_refused_where_they_are_compressed_anew(count: int) -> None:
    """INVALID_RECORD: what cannot be read cannot be given another codec."""
    partition = leader({"compression_type": "zstd"})
    fake = serve(partition)
    assert (
        await produced(fake, fake.connect(), with_payload(sent(), b"no records", codec=GZIP, count=count))
        == 87
    )
    assert stored(partition) == []


async def test_other_requests_overtake_none_on_the_same_connection() -> None:
    """A producer's batches keep their order while one batch is compressed."""
    partition = leader({"compression_type": "zstd"})
    fake = serve(partition)
    pipe = fake.connect()
    pipe.send(produce(1, (0, sent(producer=(7, 0, 0)))), produce(2, (0, sent(ZSTD, producer=(7, 0, COUNT)))))
    while fake.server.tasks:
        fake.offload.run()
        await asyncio.sleep(0)
    assert [header.base_sequence for header, _ in stored(partition)] == [0, COUNT]
    assert pipe.correlation_ids() == [1, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "brotli"),
        ("compression.type", ""),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, value: str) -> None:
    """As Kafka's validators do."""
    with pytest.raises(InvalidConfig, match=name):
        parse_topic_configs({name: value})
    assert TopicConfig().compression_type == "producer"
