"""Building and walking batches; equal to what stock clients build and read (KIP-98)."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from raftlog.base.errors import CorruptMessage, KafkaError
from raftlog.records.batch import (
    HEADER_BYTES,
    EndTransactionMarker,
    ProducerIdAndSequence,
    Record,
    build_batch,
    build_end_marker,
    check_crc,
    iter_records,
    name_bytes,
    name_text,
    new_record,
    read_all_headers,
    read_end_marker,
    read_header,
    skip_headers,
)
from raftlog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.kit.examples import examples

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
THEIR_CODECS = [NONE, GZIP, LZ4, ZSTD]
"""kafka-python brings no snappy of its own."""
FIELDS = st.none() | st.binary(max_size=50)
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(new_record, FIELDS, FIELDS, timestamp=st.integers(0, 2**45), headers=HEADERS),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(40))
@given(records=RECORDS, base_offset=st.integers(0, 2**60))
def test_records_come_back_numbered(codec: int, records: list[Record], base_offset: int) -> None:
    """Every key, value, header and time comes back, with offsets from the base offset on, under every codec."""
    batch = build_batch(
        records, base_offset=base_offset, codec=codec, producer=ProducerIdAndSequence(5, 1, 9)
    )
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header[9:] == (5, 1, 9, len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)
    expected = [record._replace(offset=base_offset + delta) for delta, record in enumerate(records)]
    assert list(iter_records(batch)) == expected


@pytest.mark.parametrize("codec", THEIR_CODECS)
@settings(max_examples=20)
@given(records=RECORDS)
def test_kafka_python_reads_our_batches(codec: int, records: list[Record]) -> None:
    """kafka-python's MemoryRecords reads what build_batch makes, with valid CRC and equal contents."""
    theirs = MemoryRecords(build_batch(records, base_offset=3, codec=codec)).next_batch()
    assert theirs.validate_crc()
    found = [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs
    ]
    assert found == [record._replace(offset=3 + delta) for delta, record in enumerate(records)]


@pytest.mark.parametrize("codec", THEIR_CODECS)
@settings(max_examples=20)
@given(records=RECORDS)
def test_kafka_pythons_batches_are_read(codec: int, records: list[Record]) -> None:
    """iter_records reads what kafka-python's producer builds, with equal contents."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for record in records:
        builder.append(
            timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers)
        )
    builder.close()
    batch = bytes(builder.buffer())
    check_crc(batch, 0, read_header(batch))
    assert [record[1:] for record in iter_records(batch)] == [record[1:] for record in records]


@settings(max_examples=examples(300))
@given(payload=st.binary(max_size=80), codec=st.sampled_from(CODECS), count=st.integers(1, 2**31 - 1))
def test_garbage_in_a_payload_raises_nothing_but_kafka_errors(payload: bytes, codec: int, count: int) -> None:
    """A payload that lies about lengths or counts is CorruptMessage before anything is allocated for it."""
    head = bytearray(build_batch([new_record(None, b"", timestamp=0)])[:HEADER_BYTES])
    head[8:12] = (HEADER_BYTES - 12 + len(payload)).to_bytes(4, "big")
    head[22] = codec
    head[57:61] = count.to_bytes(4, "big")
    try:
        list(iter_records(bytes(head) + payload))
    except KafkaError:
        pass


def test_bytes_after_the_last_record_are_corrupt() -> None:
    """The record count must cover the payload."""
    batch = bytearray(build_batch([new_record(None, b"a", timestamp=0), new_record(None, b"b", timestamp=0)]))
    batch[57:61] = (1).to_bytes(4, "big")
    with pytest.raises(CorruptMessage):
        list(iter_records(batch))


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_marker_comes_back(commit: bool) -> None:
    """A control batch names commit or abort and the coordinator's epoch (KIP-98), as kafka-python reads it too."""
    batch = build_end_marker(77, 3, marker=EndTransactionMarker(commit, 12), now_ms=5)
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    assert read_end_marker(batch) == EndTransactionMarker(commit, 12)
    assert next(iter(MemoryRecords(batch).next_batch())).key == (b"\0\0\0\1" if commit else b"\0\0\0\0")


@given(name=st.binary(max_size=6), value=st.none() | st.binary(max_size=6))
def test_a_header_keeps_the_bytes_of_its_name(name: bytes, value: bytes | None) -> None:
    """A copy of a record is equal, byte for byte; as text, the name is what Java clients read."""
    record = new_record(b"k", b"v", timestamp=0, headers=((name.decode(errors="surrogateescape"), value),))
    batch = build_batch([record])
    (copied,) = iter_records(batch)
    assert build_batch([copied]) == batch
    assert name_bytes(copied.headers[0][0]) == name
    assert name_text(copied.headers[0][0]) == name.decode(errors="replace")


def test_a_header_name_that_is_not_utf_8_is_read_all_the_same() -> None:
    """One such record must not end all readers of its partition."""
    record = new_record(b"k", b"v", timestamp=0, headers=(("name", b"x"),))
    batch = build_batch([record]).replace(b"name", b"\xff\xfeab")
    assert next(iter_records(batch)).headers == (("\udcff\udcfeab", b"x"),)
    assert next(iter_records(batch, read_headers=skip_headers)).headers == ()
    with pytest.raises(CorruptMessage, match="at most 0"):
        next(iter_records(batch, read_headers=partial(read_all_headers, most=0)))
