"""The hand-written Fetch codec, both ends, against kio in every version."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from raftlog.base.errors import InvalidRequest
from raftlog.base.types import EpochEnd
from raftlog.protocol import codec
from raftlog.protocol.fetch import (
    MERGE_BELOW_BYTES,
    NOT_SUPPORTED,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)
from raftlog.protocol.fetch_client import decode_fetch_response, encode_fetch_request
from raftlog.protocol.message_builders import request_builders, response_builders
from raftlog.protocol.primitives import Endpoint
from raftlog.protocol.schema import message_type
from tests.kit.examples import examples
from tests.protocol.kio_messages import kio_decode, kio_encode, messages

VERSIONS = range(4, 19)
CLIENT_VERSIONS = range(13, 19)
SOME = settings(max_examples=examples(30), deadline=None)


def topic_of(entry: Any) -> Any:
    return entry.topic_id if hasattr(entry, "topic_id") else entry.topic


def fields_of(message: Any) -> dict[str, Any]:
    """The message that kio read, in the form of the hand-written decoder."""
    replica = getattr(message, "replica_state", None)
    return {
        "cluster_id": getattr(message, "cluster_id", None),
        "replica_id": replica.replica_id if replica else message.replica_id,
        "replica_epoch": replica.replica_epoch if replica else -1,
        "max_wait_ms": round(message.max_wait.total_seconds() * 1000),
        "min_bytes": message.min_bytes,
        "max_bytes": message.max_bytes,
        "isolation_level": message.isolation_level,
        "session_id": getattr(message, "session_id", 0),
        "session_epoch": getattr(message, "session_epoch", -1),
        "topics": [
            (
                topic_of(topic),
                [
                    FetchPartition(*(getattr(each, name, -1) for name in FetchPartition._fields))
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ],
        "forgotten": [
            (topic_of(topic), topic.partitions) for topic in getattr(message, "forgotten_topics_data", ())
        ],
        "rack_id": getattr(message, "rack_id", ""),
        "high_watermarks": {
            (topic_of(topic), each.partition): each.high_watermark
            for topic in message.topics
            for each in topic.partitions
            if getattr(each, "high_watermark", NOT_SUPPORTED) != NOT_SUPPORTED
        },
    }


def as_fields(request: FetchRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in FetchRequest.__annotations__ if name != "parts"}


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data(), before=st.binary(max_size=3))
def test_decoding_equals_kio(version: int, data: st.DataObject, before: bytes) -> None:
    """Every field of every version, from any position in the frame."""
    message = data.draw(messages(1, version, "request"))
    request = decode_fetch(memoryview(before + kio_encode(message)), len(before), version)
    assert as_fields(request) == fields_of(message)
    named = [*request.topics, *request.forgotten]
    assert request.parts == sum(1 + len(partitions) for _, partitions in named)


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_cut_off_requests_are_refused(version: int, data: st.DataObject) -> None:
    """Every proper prefix is an INVALID_REQUEST."""
    encoded = kio_encode(data.draw(messages(1, version, "request")))
    for end in range(len(encoded)):
        with pytest.raises(InvalidRequest):
            decode_fetch(memoryview(encoded[:end]), 0, version)


@settings(max_examples=examples(300), deadline=None)
@given(version=st.sampled_from(VERSIONS), noise=st.binary(max_size=100))
def test_noise_is_refused_or_decoded(version: int, noise: bytes) -> None:
    """Any bytes either decode or are an INVALID_REQUEST."""
    try:
        decode_fetch(memoryview(noise), 0, version)
    except InvalidRequest:
        pass


HOSTILE = {
    "topics": struct.pack(">iiiibi", -1, 0, 0, 0, 0, 0x7FFFFFFF),
    "partitions": struct.pack(">iiiibih1si", -1, 0, 0, 0, 0, 1, 1, b"t", 0x7FFFFFFF),
    "empty topics": struct.pack(">iiiibi", -1, 0, 0, 0, 0, 300_000) + bytes(6) * 300_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lengths_cost_no_memory(name: str) -> None:
    """Peak allocation stays below eight times the bytes received."""
    body = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decode_fetch(memoryview(body), 0, 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 8 * len(body) + 100_000


offsets = st.integers(-1, 2**62)
leaders = st.tuples(st.integers(0, 9), st.integers(0, 99))
fetched = st.builds(
    FetchedPartition,
    st.integers(0, 2**31 - 1),
    st.sampled_from(ErrorCode).map(int),
    offsets,
    offsets,
    offsets,
    st.none() | st.binary(max_size=4) | st.just(b"x" * (MERGE_BELOW_BYTES + 1)),
    st.none() | st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=2),
    st.integers(-1, 9),
    st.none() | st.builds(EpochEnd, st.integers(0, 9), st.integers(0, 99)),
    st.none() | leaders,
)
endpoints = st.lists(
    st.builds(
        Endpoint,
        st.integers(0, 9),
        st.text(max_size=4),
        st.integers(0, 65535),
        st.none() | st.text(max_size=3),
    ),
    max_size=2,
)


def responses(version: int) -> st.SearchStrategy[Any]:
    names: st.SearchStrategy[Any] = st.uuids() if version >= 13 else st.text(max_size=5)
    return st.lists(st.tuples(names, st.lists(fetched, max_size=3)), max_size=2)


def kio_result(make: Any, result: FetchedPartition) -> Any:
    tags = {}
    if result.diverging_epoch is not None:
        tags["diverging_epoch"] = make.EpochEndOffset(
            epoch=result.diverging_epoch[0], end_offset=result.diverging_epoch[1]
        )
    if result.leader is not None:
        tags["current_leader"] = make.LeaderIdAndEpoch(
            leader_id=result.leader[0], leader_epoch=result.leader[1]
        )
    return make.PartitionData(
        partition_index=result.partition,
        error_code=ErrorCode(result.error_code),
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        records=result.records,
        preferred_read_replica=result.preferred_read_replica,
        aborted_transactions=None
        if result.aborted is None
        else tuple(make.AbortedTransaction(producer_id=a, first_offset=b) for a, b in result.aborted),
        **tags,
    )


def kio_response(version: int, topics: Any, nodes: list[Endpoint]) -> bytes:
    make = response_builders(1, version)
    message = make.FetchResponse(
        error_code=ErrorCode(0 if version < 7 else 70),
        session_id=5,
        node_endpoints=tuple(make.NodeEndpoint(**each._asdict()) for each in nodes),
        responses=tuple(
            make.FetchableTopicResponse(
                topic=topic, topic_id=topic, partitions=tuple(kio_result(make, each) for each in results)
            )
            for topic, results in topics
        ),
    )
    return codec.encode_response(1, version, 7, message)


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_encoding_equals_kio(version: int, data: st.DataObject) -> None:
    """The whole frame: aborted transactions, diverging epochs (KIP-595), leader hints (KIP-951)."""
    topics, nodes = data.draw(responses(version)), data.draw(endpoints)
    buffers = encode_fetch_response(version, 7, topics, error_code=70, session_id=5, endpoints=nodes)
    frame = b"".join(buffers)
    assert frame == kio_response(version, topics, nodes)
    kio_decode(message_type(1, version, "response"), frame[8 + (version >= 12) :])


def test_large_records_are_not_copied() -> None:
    """They leave as the very object that came in."""
    records = memoryview(bytes(MERGE_BELOW_BYTES))
    topic = UUID(int=1)
    buffers = encode_fetch_response(
        17, 1, [(topic, [FetchedPartition(0, records=records), FetchedPartition(1, records=b"s")])]
    )
    assert any(each is records for each in buffers)
    assert len(buffers) == 3


requests = st.builds(
    lambda **fields: fields,
    cluster_id=st.none() | st.text(max_size=4),
    replica_id=st.integers(-1, 9),
    replica_epoch=st.integers(-1, 99),
    max_wait_ms=st.integers(0, 2**31 - 1),
    min_bytes=st.integers(0, 9),
    max_bytes=st.integers(0, 2**31 - 1),
    isolation_level=st.integers(0, 1),
    session_id=st.integers(0, 2**31 - 1),
    session_epoch=st.integers(-1, 2**31 - 1),
    topics=st.lists(
        st.tuples(
            st.uuids(),
            st.lists(
                st.builds(FetchPartition, *[st.integers(-1, 99)] * 6),
                max_size=3,
            ),
        ),
        max_size=2,
    ),
    forgotten=st.lists(st.tuples(st.uuids(), st.lists(st.integers(0, 9), max_size=2).map(tuple)), max_size=2),
    rack_id=st.text(max_size=3),
)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@SOME
@given(wanted=requests)
def test_a_followers_request_is_read_back(version: int, wanted: dict[str, Any]) -> None:
    """The server's end and kio read what the client's end writes."""
    request = FetchRequest()
    for name, value in wanted.items():
        setattr(request, name, value)
    if version < 15:
        request.replica_epoch = -1
    if version >= 18:
        request.high_watermarks = {
            (topic, each.partition): each.fetch_offset
            for topic, partitions in request.topics
            for each in partitions
            if each.partition % 2
        }
    frame = memoryview(encode_fetch_request(version, 11, request))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, position = codec.decode_header(frame[4:])
    assert header == (1, version, 11, "raftlog")
    assert as_fields(decode_fetch(frame[4:], position, version)) == as_fields(request)
    kio_decode(message_type(1, version, "request"), bytes(frame[4 + position :]))


@pytest.mark.parametrize("version", [17, 18])
def test_a_high_watermark_counts_from_version_18_on(version: int) -> None:
    """KIP-1166: before it the tagged field of this number is unknown."""
    topic, request = UUID(int=7), FetchRequest()
    request.topics = [(topic, [FetchPartition(3, 0, 5, 0, 0, 100)])]
    request.high_watermarks = {(topic, 3): 4}
    frame = memoryview(encode_fetch_request(18, 11, request))[4:]
    _, position = codec.decode_header(frame)
    read = decode_fetch(frame, position, version)
    assert read.topics == request.topics
    assert read.high_watermarks == ({(topic, 3): 4} if version == 18 else {})


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16])
def test_a_high_watermark_of_another_size_is_refused(size: int) -> None:
    """Eight bytes would be read of it, past its end, or less than all."""
    topic, request = UUID(int=7), FetchRequest()
    request.topics = [(topic, [FetchPartition(3, 0, 5, 0, 0, 100)])]
    request.high_watermarks = {(topic, 3): 4}
    whole = bytes(encode_fetch_request(18, 11, request))[4:]
    known = bytes([1, 1, 8]) + struct.pack(">q", 4)
    assert whole.count(known) == 1
    frame = memoryview(whole.replace(known, bytes([1, 1, size]) + bytes(size)))
    with pytest.raises(InvalidRequest):
        decode_fetch(frame, codec.decode_header(frame)[1], 18)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@SOME
@given(data=st.data())
def test_a_followers_response_is_read_back(version: int, data: st.DataObject) -> None:
    """The client's end reads what the server's end writes; any cut is refused."""
    topics = data.draw(responses(version))
    frame = b"".join(encode_fetch_response(version, 7, topics, error_code=70, session_id=5))[4:]
    response = decode_fetch_response(memoryview(frame))
    assert response[:3] == (7, 70, 5)
    assert [
        (
            topic,
            [
                each._replace(records=None if each.records is None else bytes(each.records))
                for each in results
            ],
        )
        for topic, results in response.topics
    ] == topics
    for end in range(4, len(frame), 1 + len(frame) // 100):
        with pytest.raises(InvalidRequest):
            decode_fetch_response(memoryview(frame[:end]))


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_name_that_no_topic_can_have_is_refused(version: int) -> None:
    """It would be kept, hashed and returned; names have 249 characters at most."""
    make = request_builders(1, version)

    def decoded(name: str) -> Any:
        message = make.FetchRequest(topics=(make.FetchTopic(topic=name, partitions=()),))
        frame = memoryview(codec.encode_request(codec.RequestHeader(1, version, 1, None), message))[4:]
        return decode_fetch(frame, codec.decode_header(frame)[1], version)

    assert decoded("t" * 249).topics[0][0] == "t" * 249
    with pytest.raises(InvalidRequest):
        decoded("t" * 250)
