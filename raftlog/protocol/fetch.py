"""Hand-written Fetch, versions 4 to 18, equal to kio byte by byte. The client's end is in `fetch_client`.

Records are never copied: a response is a list of buffers, and only small buffers are merged into their predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.disk import Buffer
from raftlog.base.errors import InvalidRequest
from raftlog.base.types import EpochEnd
from raftlog.protocol import single_fetch
from raftlog.protocol.codec import response_head, skip_tagged
from raftlog.protocol.primitives import (
    MAX_PRODUCE_ELEMENTS,
    TAGS_MAX_BYTES,
    Endpoint,
    check_element_count,
    cut_off_error,
    read_compact_length,
    read_compact_string,
    read_count,
    read_legacy_string,
    read_tag_count,
    read_uuid,
    read_varint,
    skip_tagged_fields,
    write_compact_string,
    write_endpoints,
    write_leader,
    write_legacy_string,
    write_length,
    write_tag,
)

API_KEY: Final = 1
FIRST_FLEXIBLE_VERSION: Final = 12
FIRST_TOPIC_ID_VERSION: Final = 13
FIRST_REPLICA_STATE_VERSION: Final = 15
FIRST_ENDPOINTS_VERSION: Final = 16
FIRST_HIGH_WATERMARK_VERSION: Final = 18
"""Before it, the tagged field of that number has no meaning."""

MERGE_BELOW_BYTES: Final = 2048
"""Records smaller than this are copied behind the head: cheaper than another buffer for the socket."""

_i16 = Struct(">h")
_i32 = Struct(">i")
_i64 = Struct(">q")
_HEAD = Struct(">iii")
_LIMITS = Struct(">ib")
_SESSION = Struct(">ii")
_FLEXIBLE_HEAD = Struct(">iiibii")
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_RESULT_V4 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_REPLICA_STATE = Struct(">iq")
_RESPONSE_HEAD = Struct(">ihi")
_LENGTH_BYTES: Final = 4
NOT_SUPPORTED: Final = 2**63 - 1
"""The high watermark in the request of a replica that does not wait for a new high watermark."""

TopicKey = str | UUID
"""A topic by name, or by id from version 13 on."""


class FetchPartition(NamedTuple):
    """A client's request for one partition; -1 where the version or client leaves a field out."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchRequest:
    """`topics`: [(name or id, [FetchPartition])]; `forgotten`: [(name or id, (partition, ...))] (KIP-227).

    `parts`: the number of topics and partitions. `high_watermarks`, by topic and partition: the high watermark that a
    replica knows, -1 for none. The leader answers as soon as its own is higher (KIP-1166).
    """

    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, tuple[int, ...]]]
    high_watermarks: dict[tuple[TopicKey, int], int]
    cluster_id: str | None = None
    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    rack_id: str = ""
    parts: int = 0

    def __init__(self) -> None:
        self.topics = []
        self.forgotten = []
        self.high_watermarks = {}


class FetchedPartition(NamedTuple):
    """The response of one partition. `records` None is null; `leader`: (broker id, leader epoch), KIP-951."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | None = b""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions; None unless isolation is read_committed."""
    preferred_read_replica: int = -1
    diverging_epoch: EpochEnd | None = None
    leader: tuple[int, int] | None = None


def decode_fetch(
    buffer: memoryview, position: int, version: int, *, parts_max: int = MAX_PRODUCE_ELEMENTS
) -> FetchRequest:
    """Decode a request body that ends with the buffer. Raise InvalidRequest if malformed, TooManyElements."""
    try:
        if version >= FIRST_FLEXIBLE_VERSION:
            return _decode_flexible(buffer, position, version, parts_max)
        return _decode_legacy(buffer, position, version, parts_max)
    except (IndexError, struct_error, UnicodeDecodeError):
        raise cut_off_error("FetchRequest") from None


def _decode_legacy(buffer: memoryview, position: int, version: int, parts_max: int) -> FetchRequest:
    request = FetchRequest()
    request.replica_id, request.max_wait_ms, request.min_bytes = _HEAD.unpack_from(buffer, position)
    request.max_bytes, request.isolation_level = _LIMITS.unpack_from(buffer, position + 12)
    position += 17
    if version >= 7:
        request.session_id, request.session_epoch = _SESSION.unpack_from(buffer, position)
        position += 8
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    count, position = read_count(buffer, position)
    parts = count
    for _ in range(count):
        topic, position = read_legacy_string(buffer, position)
        partition_count, position = read_count(buffer, position)
        parts += max(partition_count, 0)
        if parts > parts_max:
            check_element_count(parts, parts_max)
        partitions = []
        for _ in range(partition_count):
            partitions.append(_partition(layout.unpack_from(buffer, position), version))
            position += layout.size
        request.topics.append((_required(topic), partitions))
    request.parts = parts
    if version >= 7:
        position = _read_forgotten_legacy(buffer, position, request, parts_max)
    if version >= 11:
        rack_id, position = read_legacy_string(buffer, position)
        request.rack_id = rack_id or ""
    return request


def _partition(found: tuple[int, ...], version: int) -> FetchPartition:
    if version >= 9:
        partition, leader_epoch, offset, start, max_bytes = found
        return FetchPartition(partition, leader_epoch, offset, -1, start, max_bytes)
    if version >= 5:
        partition, offset, start, max_bytes = found
        return FetchPartition(partition, -1, offset, -1, start, max_bytes)
    partition, offset, max_bytes = found
    return FetchPartition(partition, -1, offset, -1, -1, max_bytes)


def _read_forgotten_legacy(buffer: memoryview, position: int, request: FetchRequest, parts_max: int) -> int:
    count, position = read_count(buffer, position)
    for _ in range(count):
        topic, position = read_legacy_string(buffer, position)
        partition_count, position = read_count(buffer, position)
        request.parts += 1 + max(partition_count, 0)
        check_element_count(request.parts, parts_max)
        partitions, position = _int32s(buffer, position, partition_count)
        request.forgotten.append((_required(topic), partitions))
    return position


def _int32s(buffer: memoryview, position: int, count: int) -> tuple[tuple[int, ...], int]:
    end = position + 4 * count
    if count < 0 or end > len(buffer):
        raise cut_off_error("a list of partitions")
    return Struct(f">{count}i").unpack_from(buffer, position), end


def _required(topic: TopicKey | None) -> TopicKey:
    if topic is None:
        raise InvalidRequest("a topic name is null")
    return topic


def _decode_single(
    head: tuple[int, ...], topic: bytes, partition: tuple[Any, ...], replica: Any
) -> FetchRequest:
    request = FetchRequest()
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    ) = head
    request.topics = [(read_uuid(memoryview(topic), 0)[0], [tuple.__new__(FetchPartition, partition)])]
    request.replica_id, request.replica_epoch = replica
    request.parts = 2
    return request


def _decode_flexible(buffer: memoryview, position: int, version: int, parts_max: int) -> FetchRequest:
    if version >= single_fetch.FIRST_REQUEST_VERSION and parts_max > 1:
        single = single_fetch.unpack_request(buffer, position)
        if single is not None:
            return _decode_single(*single)
    request = FetchRequest()
    if version < FIRST_REPLICA_STATE_VERSION:
        request.replica_id = _i32.unpack_from(buffer, position)[0]
        position += 4
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    ) = _FLEXIBLE_HEAD.unpack_from(buffer, position)
    count, position = read_compact_length(buffer, position + _FLEXIBLE_HEAD.size)
    parts = count
    read_topic = read_uuid if version >= FIRST_TOPIC_ID_VERSION else read_compact_string
    tags_left = [TAGS_MAX_BYTES]
    unpack, new = _PARTITION_V12.unpack_from, tuple.__new__
    for _ in range(count):
        topic, position = read_topic(buffer, position)
        partition_count, position = read_compact_length(buffer, position)
        parts += max(partition_count, 0)
        if parts > parts_max:
            check_element_count(parts, parts_max)
        partitions = []
        for _ in range(partition_count):
            partitions.append(new(FetchPartition, unpack(buffer, position)))
            position += 32
            end = skip_tagged_fields(buffer, position, tags_left) if buffer[position] else position + 1
            if end > position + 1 and version >= FIRST_HIGH_WATERMARK_VERSION:
                _read_high_watermark(buffer, position, request, key=(topic, partitions[-1].partition))
            position = end
        request.topics.append((_required(topic), partitions))
        position = skip_tagged_fields(buffer, position, tags_left) if buffer[position] else position + 1
    request.parts = parts
    if buffer[position] > 1:
        position = _read_forgotten(buffer, position, request, read_topic, parts_max)
    else:
        position += 1
    if buffer[position] > 1:
        rack_id, position = read_compact_string(buffer, position)
        request.rack_id = rack_id or ""
    else:
        position += 1
    if buffer[position]:
        _read_request_tags(buffer, position, request)
    return request


def _read_high_watermark(
    buffer: memoryview, position: int, request: FetchRequest, *, key: tuple[TopicKey | None, int]
) -> None:
    """Note the high watermark in the tagged fields of a partition, if it is there."""
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if tag == 1:
            if size != _i64.size:
                raise InvalidRequest(f"a high watermark of {size} bytes")
            known = _i64.unpack_from(buffer, position)[0]
            if known != NOT_SUPPORTED:
                request.high_watermarks[_required(key[0]), key[1]] = known
        position += size


def _read_forgotten(
    buffer: memoryview,
    position: int,
    request: FetchRequest,
    read_topic: Callable[[memoryview, int], tuple[TopicKey | None, int]],
    parts_max: int,
) -> int:
    count, position = read_compact_length(buffer, position)
    for _ in range(count):
        topic, position = read_topic(buffer, position)
        partition_count, position = read_compact_length(buffer, position)
        request.parts += 1 + max(partition_count, 0)
        check_element_count(request.parts, parts_max)
        forgotten, position = _int32s(buffer, position, partition_count)
        request.forgotten.append((_required(topic), forgotten))
        position = skip_tagged(buffer, position)
    return position


def _read_request_tags(buffer: memoryview, position: int, request: FetchRequest) -> None:
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        tag, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        end = position + size
        if end > len(buffer):
            raise cut_off_error("FetchRequest")
        if tag == 0:
            request.cluster_id, _ = read_compact_string(buffer, position)
        elif tag == 1:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(buffer, position)
        position = end


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Buffer]:
    """Return the whole frame as buffers to be written in order. Throttle time is always 0.

    Records of MERGE_BELOW_BYTES and more are not copied; they must not change until written.
    """
    if len(topics) == 1 and len(topics[0][1]) == 1 and not endpoints and version >= FIRST_TOPIC_ID_VERSION:
        single = _encode_single(correlation_id, topics[0], error_code, session_id)
        if single is not None:
            return [single]
    out = response_head(API_KEY, version, correlation_id)
    buffers: list[Buffer] = []
    if version >= 7:
        out += _RESPONSE_HEAD.pack(0, error_code, session_id)
    else:
        out += _i32.pack(0)
    if version >= FIRST_FLEXIBLE_VERSION:
        out = _write_flexible(out, buffers, version, topics)
        if endpoints and version >= FIRST_ENDPOINTS_VERSION:
            write_endpoints(out, endpoints)
        else:
            out.append(0)
    else:
        out = _write_legacy(out, buffers, version, topics)
    buffers.append(out)
    first = buffers[0]
    assert isinstance(first, bytearray)
    _i32.pack_into(first, 0, sum(map(len, buffers)) - _LENGTH_BYTES)
    return buffers


def _encode_single(
    correlation_id: int,
    fetched: tuple[TopicKey, Sequence[FetchedPartition]],
    error_code: int,
    session_id: int,
) -> bytes | None:
    topic, (result,) = fetched
    records = result.records
    if not isinstance(topic, UUID) or records is None or len(records) >= MERGE_BELOW_BYTES:
        return None
    return single_fetch.pack_response(
        correlation_id, error_code, session_id, topic=topic.bytes, result=result
    )


def encode_throttled(version: int, correlation_id: int, session_id: int, throttle_ms: int) -> list[Buffer]:
    """Return the frame of a response without partitions, only with the client's throttle time (KIP-219)."""
    (frame,) = encode_fetch_response(version, correlation_id, (), session_id=session_id)
    assert isinstance(frame, bytearray)
    _i32.pack_into(frame, len(response_head(API_KEY, version, correlation_id)), throttle_ms)
    return [frame]


def _write_flexible(
    out: bytearray,
    buffers: list[Buffer],
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]],
) -> bytearray:
    """Return the buffer for what follows; full buffers are in `buffers`."""
    pack = _RESULT_V5.pack
    write_length(out, len(topics))
    for topic, results in topics:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            write_compact_string(out, topic)
        write_length(out, len(results))
        for each in results:
            index, error, committed, stable, start, records, aborted, preferred, diverging, leader = each
            out += pack(index, error, committed, stable, start)
            if aborted is None:
                out.append(0)
            else:
                _write_aborted_flexible(out, aborted)
            out += _i32.pack(preferred)
            if records is None:
                out.append(0)
            else:
                size = len(records)
                write_length(out, size)
                if size < MERGE_BELOW_BYTES:
                    out += records
                else:
                    buffers += (out, records)
                    out = bytearray()
            if diverging is None and leader is None:
                out.append(0)
            else:
                _write_result_tags(out, diverging, leader)
        out.append(0)
    return out


def _write_aborted_flexible(out: bytearray, aborted: Sequence[tuple[int, int]]) -> None:
    write_length(out, len(aborted))
    for transaction in aborted:
        out += _ABORTED.pack(*transaction)
        out.append(0)


def _write_result_tags(out: bytearray, diverging: EpochEnd | None, leader: tuple[int, int] | None) -> None:
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        write_tag(out, 0, _EPOCH_END.pack(*diverging) + b"\x00")
    if leader is not None:
        write_tag(out, 1, write_leader(leader))


def _write_legacy(
    out: bytearray,
    buffers: list[Buffer],
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]],
) -> bytearray:
    """Return the buffer for what follows; full buffers are in `buffers`."""
    layout, width = (_RESULT_V5, 5) if version >= 5 else (_RESULT_V4, 4)
    out += _i32.pack(len(topics))
    for topic, results in topics:
        assert isinstance(topic, str)
        write_legacy_string(out, topic)
        out += _i32.pack(len(results))
        for each in results:
            out += layout.pack(*each[:width])
            records, aborted = each[5], each[6]
            if aborted is None:
                out += b"\xff\xff\xff\xff"
            else:
                out += _i32.pack(len(aborted))
                for transaction in aborted:
                    out += _ABORTED.pack(*transaction)
            if version >= 11:
                out += _i32.pack(each[7])
            if records is None:
                out += b"\xff\xff\xff\xff"
                continue
            out += _i32.pack(len(records))
            if len(records) < MERGE_BELOW_BYTES:
                out += records
            else:
                buffers += (out, records)
                out = bytearray()
    return out
