"""The batch header and the laws of a produced batch (KIP-98; Apache Kafka: ProduceRequest, LogValidator)."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from raftlog.records.batch import (
    CRC_START,
    HEADER_BYTES,
    STAMP_BYTES,
    ProducerIdAndSequence,
    build_batch,
    check_crc,
    iter_headers,
    iter_records,
    new_record,
    read_header,
    stamp,
    stamp_max_timestamp,
    validate_produced,
)
from raftlog.records.compression import ZSTD
from raftlog.records.header import NotOneBatch

MAX_BYTES = 1 << 20
ONE = build_batch([new_record(b"k", b"v", timestamp=7)])
TWO = build_batch([new_record(b"k%d" % number, b"v", timestamp=number) for number in range(2)])


def with_field(batch: bytes, position: int, field: bytes, *, crc: bool = True) -> bytes:
    """Return the batch with some header bytes replaced, its CRC made right again if `crc`."""
    changed = bytearray(batch)
    changed[position : position + len(field)] = field
    if crc:
        changed[17:21] = crc32c(changed[CRC_START:]).to_bytes(4, "big")
    return bytes(changed)


def test_a_lawful_batch_is_accepted_as_bytes_and_as_memoryview() -> None:
    """validate_produced returns the header of what the client sent."""
    header = validate_produced(memoryview(TWO), len(TWO))
    assert header == read_header(TWO)
    assert (header.length, header.record_count, header.last_offset) == (len(TWO), 2, 1)


LAWS: dict[str, tuple[bytes | None, type[KafkaError]]] = {
    "no records at all": (None, InvalidRecord),
    "an empty field": (b"", InvalidRecord),
    "less than a header": (ONE[:60], InvalidRecord),
    "a batch cut off": (ONE[:-1], InvalidRecord),
    "a length beyond 32 bits": (with_field(ONE, 8, b"\x7f\xff\xff\xff"), InvalidRecord),
    "a base offset": (with_field(ONE, 0, (5).to_bytes(8, "big")), InvalidRecord),
    "bytes behind the batch": (ONE + bytes(20), InvalidRecord),
    "two batches": (ONE + ONE, InvalidRecord),
    "a length below a header": (with_field(ONE, 8, (48).to_bytes(4, "big")), CorruptMessage),
    "a negative length": (with_field(ONE, 8, b"\xff\xff\xff\xff"), CorruptMessage),
    "message format 1": (with_field(ONE, 16, b"\x01"), InvalidRecord),
    "message format 3": (with_field(ONE, 16, b"\x03"), CorruptMessage),
    "a wrong CRC and a codec of 5": (with_field(ONE, 22, b"\x05", crc=False), CorruptMessage),
    "a record count that lies": (with_field(TWO, 57, (3).to_bytes(4, "big")), InvalidRecord),
    "a last offset delta that lies": (with_field(TWO, 23, (5).to_bytes(4, "big")), InvalidRecord),
    "no record": (with_field(with_field(ONE, 57, bytes(4)), 23, b"\xff\xff\xff\xff"), InvalidRecord),
    "codec 5": (with_field(ONE, 22, b"\x05"), UnsupportedCompressionType),
    "a control batch": (with_field(ONE, 22, b"\x20"), InvalidRecord),
    "the broker's time type": (with_field(ONE, 22, b"\x08"), InvalidTimestamp),
    "a delete horizon": (with_field(ONE, 22, b"\x40"), InvalidRecord),
    "more records than its bytes hold": (
        with_field(with_field(TWO, 57, (5).to_bytes(4, "big")), 23, (4).to_bytes(4, "big")),
        InvalidRecord,
    ),
    "a transaction without a producer": (with_field(ONE, 22, b"\x10"), InvalidRecord),
    "a producer without a sequence": (with_field(ONE, 43, bytes(8)), InvalidRecord),
    "a wrong CRC": (with_field(ONE, 17, b"\x00\x00\x00\x00", crc=False), CorruptMessage),
}


@pytest.mark.parametrize("law", LAWS)
def test_an_unlawful_batch_is_refused_with_its_code(law: str) -> None:
    """Each broken law of a produced batch answers with the code that Kafka gives it."""
    records, error = LAWS[law]
    with pytest.raises(error):
        validate_produced(records, MAX_BYTES)


@pytest.mark.parametrize("records", [None, b"", ONE[:60], ONE[:-1], ONE + ONE, with_field(ONE, 16, b"\x01")])
def test_records_that_are_not_one_batch_are_refused_before_the_log(records: bytes | None) -> None:
    """Kafka refuses them with the request (ProduceRequest.validateRecords), so no log start is in the answer."""
    with pytest.raises(NotOneBatch):
        validate_produced(records, MAX_BYTES)


def test_a_sequence_without_a_producer_means_nothing() -> None:
    """Some clients (aiokafka) leave base sequence 0 where no idempotent producer is; Kafka takes such batches."""
    assert validate_produced(with_field(ONE, 53, bytes(4)), MAX_BYTES).producer_id == -1


def test_a_batch_over_max_message_bytes_is_too_large() -> None:
    """A batch of exactly max.message.bytes passes, one byte more is MESSAGE_TOO_LARGE."""
    assert validate_produced(ONE, len(ONE)).length == len(ONE)
    with pytest.raises(MessageTooLarge):
        validate_produced(ONE, len(ONE) - 1)


def test_zstd_needs_a_produce_version_that_knows_it() -> None:
    """zstd came with Produce v7 (KIP-110): allowed by default, refused for older requests."""
    batch = build_batch([new_record(None, b"v" * 100, timestamp=1)], codec=ZSTD)
    assert validate_produced(batch, MAX_BYTES).codec == ZSTD
    with pytest.raises(UnsupportedCompressionType):
        validate_produced(batch, MAX_BYTES, zstd=False)


@given(position=st.integers(STAMP_BYTES, len(TWO) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_after_the_stamp_is_found(position: int, bit: int) -> None:
    """Magic, CRC and everything that the CRC covers: one flipped bit never passes as the same batch."""
    flipped = bytearray(TWO)
    flipped[position] ^= 1 << bit
    with pytest.raises(KafkaError):
        validate_produced(flipped, MAX_BYTES)


@given(base_offset=st.integers(0, 2**62), leader_epoch=st.integers(0, 2**31 - 1))
def test_stamping_leaves_the_crc_valid(base_offset: int, leader_epoch: int) -> None:
    """Base offset and leader epoch lie outside the CRC, so a leader stamps a batch without touching the rest."""
    stamped = stamp(base_offset, len(TWO), leader_epoch) + TWO[STAMP_BYTES:]
    header = read_header(stamped)
    check_crc(stamped, 0, header)
    assert (header.base_offset, header.leader_epoch) == (base_offset, leader_epoch)
    assert [record.offset for record in iter_records(stamped)] == [base_offset, base_offset + 1]


def test_append_time_replaces_every_records_time() -> None:
    """Under LogAppendTime each record reads with the broker's time, and the new CRC holds (KIP-32)."""
    header = validate_produced(TWO, MAX_BYTES)
    head = stamp_max_timestamp(
        header, TWO, base_offset=40, leader_epoch=3, max_timestamp=1234, is_append_time=True
    )
    stamped = head + TWO[HEADER_BYTES:]
    check_crc(stamped, 0, read_header(stamped))
    assert read_header(stamped).is_log_append_time
    assert [(record.offset, record.timestamp) for record in iter_records(stamped)] == [(40, 1234), (41, 1234)]


def test_sequences_wrap_to_zero() -> None:
    """The sequence after 2^31-1 is 0 (KIP-98)."""
    records = [new_record(None, b"x", timestamp=0)] * 3
    header = read_header(build_batch(records, producer=ProducerIdAndSequence(1, 0, 2**31 - 2)))
    assert header.last_sequence == 0


@given(cut=st.integers(0, len(ONE) + len(TWO)))
def test_whole_batches_are_listed_and_a_cut_one_is_left_out(cut: int) -> None:
    """A fetch response may end in the middle of a batch: iter_headers gives those before it."""
    found = [position for position, _ in iter_headers(memoryview(ONE + TWO)[:cut])]
    assert found == [0, len(ONE)][: (cut >= len(ONE)) + (cut >= len(ONE) + len(TWO))]
