"""The client's end of Fetch, for followers: versions 13 to 18.

The decoded records are slices of the received frame, never copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from uuid import UUID

from raftlog.base.types import EpochEnd
from raftlog.protocol import single_fetch
from raftlog.protocol.codec import skip_tagged
from raftlog.protocol.fetch import (
    API_KEY,
    FIRST_HIGH_WATERMARK_VERSION,
    FIRST_REPLICA_STATE_VERSION,
    FIRST_TOPIC_ID_VERSION,
    FetchedPartition,
    FetchRequest,
)
from raftlog.protocol.primitives import (
    cut_off_error,
    read_compact_length,
    read_uuid,
    read_varint,
    write_compact_string,
    write_length,
    write_tag,
)

_i32 = Struct(">i")
_i64 = Struct(">q")
_HEADER = Struct(">ihhih")
_BODY_HEAD = Struct(">iiibii")
_PARTITION = Struct(">iiqiqi")
_REPLICA_STATE = Struct(">iq")
_RESPONSE_HEAD = Struct(">ihi")
_RESULT = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")
_LENGTH_BYTES = 4
_new = tuple.__new__


class FetchResponse(NamedTuple):
    """`topics`: [(topic id, [Fetched])], with records that are slices of the frame."""

    correlation_id: int
    error_code: int
    session_id: int
    topics: list[tuple[UUID, list[FetchedPartition]]]


def encode_fetch_request(
    version: int, correlation_id: int, request: FetchRequest, *, client_id: str = "raftlog"
) -> bytes:
    """Return the whole frame of a request with topic ids. `version` is 13 or more, with high watermarks 18."""
    assert version >= (FIRST_HIGH_WATERMARK_VERSION if request.high_watermarks else FIRST_TOPIC_ID_VERSION)
    name = client_id.encode()
    if version >= single_fetch.FIRST_REQUEST_VERSION:
        single = _encode_single(version, correlation_id, request, name)
        if single is not None:
            return single
    out = bytearray(_HEADER.pack(0, API_KEY, version, correlation_id, len(name)))
    out += name
    out.append(0)
    if version < FIRST_REPLICA_STATE_VERSION:
        out += _i32.pack(request.replica_id)
    out += _BODY_HEAD.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    _write_topics(out, request)
    _write_forgotten(out, request.forgotten)
    write_compact_string(out, request.rack_id)
    _write_tags(out, version, request)
    _i32.pack_into(out, 0, len(out) - _LENGTH_BYTES)
    return bytes(out)


def _encode_single(version: int, correlation_id: int, request: FetchRequest, name: bytes) -> bytes | None:
    """Return the frame of a replica's request for a single partition without other fields, None for any other
    request.
    """
    topics = request.topics
    if len(topics) != 1 or len(topics[0][1]) != 1 or request.forgotten or request.rack_id:
        return None
    if request.high_watermarks:
        return None
    replica = (request.replica_id, request.replica_epoch)
    topic, (partition,) = topics[0]
    if request.cluster_id is not None or replica == (-1, -1) or not isinstance(topic, UUID):
        return None
    head = (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    asked = (head, topic.bytes, partition, replica)
    return single_fetch.pack_request(version, correlation_id, name, asked=asked)


def _write_topics(out: bytearray, request: FetchRequest) -> None:
    pack, known = _PARTITION.pack, request.high_watermarks
    write_length(out, len(request.topics))
    for topic, partitions in request.topics:
        assert isinstance(topic, UUID)
        out += topic.bytes
        write_length(out, len(partitions))
        for partition in partitions:
            out += pack(*partition)
            if known and (topic, partition.partition) in known:
                out.append(1)
                write_tag(out, 1, _i64.pack(known[topic, partition.partition]))
            else:
                out.append(0)
        out.append(0)


def _write_forgotten(out: bytearray, forgotten: Sequence[tuple[str | UUID, Sequence[int]]]) -> None:
    write_length(out, len(forgotten))
    for topic, partitions in forgotten:
        assert isinstance(topic, UUID)
        out += topic.bytes
        write_length(out, len(partitions))
        out += Struct(f">{len(partitions)}i").pack(*partitions)
        out.append(0)


def _write_tags(out: bytearray, version: int, request: FetchRequest) -> None:
    tags = []
    if request.cluster_id is not None:
        data = bytearray()
        write_compact_string(data, request.cluster_id)
        tags.append((0, bytes(data)))
    if version >= FIRST_REPLICA_STATE_VERSION and (request.replica_id, request.replica_epoch) != (-1, -1):
        tags.append((1, _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\x00"))
    out.append(len(tags))
    for tag, encoded in tags:
        write_tag(out, tag, encoded)


def decode_fetch_response(frame: memoryview) -> FetchResponse:
    """Decode a response frame (without its length prefix) of version 13 or more.

    Raise InvalidRequest if malformed: the peer is broken and its connection should close.
    """
    try:
        return _decode(frame)
    except (IndexError, struct_error):
        raise cut_off_error("FetchResponse") from None


def _decode(frame: memoryview) -> FetchResponse:
    single = single_fetch.unpack_response(frame)
    if single is not None:
        correlation_id, error_code, session_id, topic, result = single
        topics = [(read_uuid(memoryview(topic), 0)[0], [_new(FetchedPartition, result)])]
        return _new(FetchResponse, (correlation_id, error_code, session_id, topics))
    correlation_id = _i32.unpack_from(frame)[0]
    position = skip_tagged(frame, 4)
    _, error_code, session_id = _RESPONSE_HEAD.unpack_from(frame, position)
    count, position = read_compact_length(frame, position + _RESPONSE_HEAD.size)
    topics = []
    for _ in range(count):
        topic_id, position = read_uuid(frame, position)
        partition_count, position = read_compact_length(frame, position)
        results = []
        for _ in range(partition_count):
            result, position = _read_result(frame, position)
            results.append(result)
        topics.append((topic_id, results))
        position = skip_tagged(frame, position) if frame[position] else position + 1
    skip_tagged(frame, position)
    return FetchResponse(correlation_id, error_code, session_id, topics)


def _read_result(frame: memoryview, position: int) -> tuple[FetchedPartition, int]:
    partition, error_code, high_watermark, stable, start = _RESULT.unpack_from(frame, position)
    position += _RESULT.size
    aborted = None
    if frame[position]:
        count, position = read_compact_length(frame, position)
        aborted = []
        for _ in range(count):
            aborted.append(_ABORTED.unpack_from(frame, position))
            position = skip_tagged(frame, position + _ABORTED.size)
    else:
        position += 1
    preferred = _i32.unpack_from(frame, position)[0]
    length, position = read_compact_length(frame, position + 4)
    records = None
    if length >= 0:
        records = frame[position : position + length]
        position += length
    diverging = leader = None
    if frame[position]:
        diverging, leader, position = _read_result_tags(frame, position)
    else:
        position += 1
    fields = (
        partition,
        error_code,
        high_watermark,
        stable,
        start,
        records,
        aborted,
        preferred,
        diverging,
        leader,
    )
    return _new(FetchedPartition, fields), position


def _read_result_tags(
    frame: memoryview, position: int
) -> tuple[EpochEnd | None, tuple[int, int] | None, int]:
    diverging = leader = None
    count, position = read_varint(frame, position)
    for _ in range(count):
        tag, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        if tag == 0:
            diverging = EpochEnd(*_EPOCH_END.unpack_from(frame, position))
        elif tag == 1:
            leader_id, epoch = _LEADER.unpack_from(frame, position)
            leader = (leader_id, epoch)
        position += size
    return diverging, leader, position
