"""Hand-written Produce, versions 0 to 13, equal to kio byte by byte: the hottest codec of the broker.

Records are slices of the received frame, never copied. Versions 0 to 2 are decoded only so that they can be
answered with UNSUPPORTED_VERSION (they are advertised for old librdkafka, see `apis`).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import InvalidRequest
from raftlog.protocol.codec import response_head, skip_tagged
from raftlog.protocol.primitives import (
    MAX_PRODUCE_ELEMENTS,
    MULTIBYTE,
    TAGS_MAX_BYTES,
    Endpoint,
    check_element_count,
    cut_off_error,
    read_compact_length,
    read_compact_string,
    read_count,
    read_legacy_string,
    read_uuid,
    skip_tagged_fields,
    write_compact_string,
    write_endpoints,
    write_leader,
    write_legacy_string,
    write_length,
    write_tag,
)
from raftlog.protocol.reader import STRING_MAX_BYTES
from raftlog.protocol.writer import write_varint

FIRST_HANDLED_VERSION: Final = 3
FIRST_FLEXIBLE_VERSION: Final = 9
FIRST_LEADER_HINT_VERSION: Final = 10
FIRST_TOPIC_ID_VERSION: Final = 13

_ACKS = Struct(">hii")
_FLEXIBLE_ACKS = Struct(">hi")
_PARTITION = Struct(">ii")
_i32 = Struct(">i")
_RESULT = {0: Struct(">ihq"), 2: Struct(">ihqq"), 5: Struct(">ihqqq")}
_LENGTH_BYTES: Final = 4

TopicKey = str | UUID
"""A topic by name, or by id from version 13 on."""


class ProduceRequest:
    """`topics`: [(name or id, [(partition, records or None)])]; `acks` is not checked here."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        *,
        timeout_ms: int,
        topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProducedPartition(NamedTuple):
    """The response of one partition; a plain tuple in this order does. `leader`: (id, leader epoch), KIP-951.

    `record_errors`: (index of the record in its batch, message), KIP-467.
    """

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: tuple[int, int] | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()


def decode_produce(buffer: memoryview, position: int, version: int) -> ProduceRequest:
    """Decode a request body that ends with the buffer. Raise InvalidRequest if malformed, TooManyElements."""
    try:
        if version >= FIRST_FLEXIBLE_VERSION:
            return _decode_flexible(buffer, position, version)
        return _decode_legacy(buffer, position, version)
    except (IndexError, struct_error, UnicodeDecodeError):
        raise cut_off_error("ProduceRequest") from None


def _decode_legacy(buffer: memoryview, position: int, version: int) -> ProduceRequest:
    size = len(buffer)
    transactional_id = None
    if version >= FIRST_HANDLED_VERSION:
        transactional_id, position = read_legacy_string(buffer, position, STRING_MAX_BYTES)
    acks, timeout_ms, topic_count = _ACKS.unpack_from(buffer, position)
    position += _ACKS.size
    parts = topic_count
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        name, position = read_legacy_string(buffer, position)
        partition_count, position = read_count(buffer, position)
        parts += max(partition_count, 0)
        if parts > MAX_PRODUCE_ELEMENTS:
            check_element_count(parts, MAX_PRODUCE_ELEMENTS)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            partition, length = _PARTITION.unpack_from(buffer, position)
            position += 8
            if length < 0:
                partitions.append((partition, None))
                continue
            end = position + length
            if end > size:
                raise cut_off_error("ProduceRequest")
            partitions.append((partition, buffer[position:end]))
            position = end
        if name is None:
            raise InvalidRequest("a topic name is null")
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms=timeout_ms, topics=topics)


def _decode_flexible(buffer: memoryview, position: int, version: int) -> ProduceRequest:
    size = len(buffer)
    read_topic = read_uuid if version >= FIRST_TOPIC_ID_VERSION else read_compact_string
    tags_left = [TAGS_MAX_BYTES]
    transactional_id = None
    if buffer[position]:
        transactional_id, position = read_compact_string(buffer, position, STRING_MAX_BYTES)
    else:
        position += 1
    acks, timeout_ms = _FLEXIBLE_ACKS.unpack_from(buffer, position)
    topic_count, position = read_compact_length(buffer, position + _FLEXIBLE_ACKS.size)
    parts = topic_count
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        topic, position = read_topic(buffer, position)
        partition_count, position = read_compact_length(buffer, position)
        parts += max(partition_count, 0)
        if parts > MAX_PRODUCE_ELEMENTS:
            check_element_count(parts, MAX_PRODUCE_ELEMENTS)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            partition = _i32.unpack_from(buffer, position)[0]
            length = buffer[position + 4] - 1
            position += 5
            if length >= MULTIBYTE:
                length, position = read_compact_length(buffer, position - 1)
            end = position + length
            if length < 0:
                end = position
                partitions.append((partition, None))
            elif end >= size:
                raise cut_off_error("ProduceRequest")
            else:
                partitions.append((partition, buffer[position:end]))
            position = skip_tagged_fields(buffer, end, tags_left) if buffer[end] else end + 1
        if topic is None:
            raise InvalidRequest("a topic name is null")
        topics.append((topic, partitions))
        position = skip_tagged_fields(buffer, position, tags_left) if buffer[position] else position + 1
    if buffer[position]:
        skip_tagged(buffer, position)
    return ProduceRequest(transactional_id, acks, timeout_ms=timeout_ms, topics=topics)


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[ProducedPartition]]],
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """Return the whole frame. `endpoints`: the leaders that results name (version 10 and up)."""
    out = response_head(0, version, correlation_id)
    if version >= FIRST_FLEXIBLE_VERSION:
        _write_flexible(out, version, topics)
        out += _i32.pack(throttle_ms)
        if endpoints and version >= FIRST_LEADER_HINT_VERSION:
            write_endpoints(out, endpoints)
        else:
            out.append(0)
    else:
        _write_legacy(out, version, topics)
        if version >= 1:
            out += _i32.pack(throttle_ms)
    _i32.pack_into(out, 0, len(out) - _LENGTH_BYTES)
    return bytes(out)


def _write_flexible(
    out: bytearray, version: int, topics: Sequence[tuple[TopicKey, Sequence[ProducedPartition]]]
) -> None:
    pack = _RESULT[5].pack
    write_length(out, len(topics))
    for topic, results in topics:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            write_compact_string(out, topic)
        write_length(out, len(results))
        for partition, error_code, base, time_ms, start, message, leader, record_errors in results:
            out += pack(partition, error_code, base, time_ms, start)
            if error_code == 0:
                out += b"\x01\x00\x00"  # no record errors, no message, no tagged fields
                continue
            write_varint(out, len(record_errors) + 1)
            for index, reason in record_errors:
                out += _i32.pack(index)
                write_compact_string(out, reason)
                out.append(0)
            write_compact_string(out, message)
            if leader is None or version < FIRST_LEADER_HINT_VERSION:
                out.append(0)
            else:
                out.append(1)
                write_tag(out, 0, write_leader(leader))
        out.append(0)


def _write_legacy(
    out: bytearray, version: int, topics: Sequence[tuple[TopicKey, Sequence[ProducedPartition]]]
) -> None:
    result = _RESULT[5 if version >= 5 else 2 if version >= 2 else 0]
    width = {5: 5, 2: 4, 0: 3}[5 if version >= 5 else 2 if version >= 2 else 0]
    out += _i32.pack(len(topics))
    for topic, results in topics:
        assert isinstance(topic, str)
        write_legacy_string(out, topic)
        out += _i32.pack(len(results))
        for produced in results:
            out += result.pack(*produced[:width])
            if version >= 8:
                record_errors = produced[7]
                out += _i32.pack(len(record_errors))
                for index, reason in record_errors:
                    out += _i32.pack(index)
                    write_legacy_string(out, reason)
                write_legacy_string(out, produced[5])
