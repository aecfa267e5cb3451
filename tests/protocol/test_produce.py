"""The hand-written Produce codec against kio, in every version."""

from __future__ import annotations

import datetime
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from raftlog.base.errors import InvalidRequest
from raftlog.protocol import codec
from raftlog.protocol.message_builders import request_builders, response_builders
from raftlog.protocol.primitives import Endpoint
from raftlog.protocol.produce import ProducedPartition, decode_produce, encode_produce_response
from tests.kit.examples import examples
from tests.protocol.kio_messages import kio_encode, messages

VERSIONS = range(3, 14)
SOME = settings(max_examples=examples(30), deadline=None)


def topics_of(message: Any) -> list[Any]:
    """The message that kio read, in the form of the hand-written decoder."""
    return [
        (
            topic.topic_id if hasattr(topic, "topic_id") else topic.name,
            [
                (each.index, None if each.records is None else bytes(each.records))
                for each in topic.partition_data
            ],
        )
        for topic in message.topic_data
    ]


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data(), before=st.binary(max_size=3))
def test_decoding_equals_kio(version: int, data: st.DataObject, before: bytes) -> None:
    """Every field of every version, from any position in the frame."""
    message = data.draw(messages(0, version, "request"))
    request = decode_produce(memoryview(before + kio_encode(message)), len(before), version)
    assert request.transactional_id == message.transactional_id
    assert request.acks == message.acks
    assert request.timeout_ms == round(message.timeout.total_seconds() * 1000)
    found = [
        (topic, [(index, None if records is None else bytes(records)) for index, records in partitions])
        for topic, partitions in request.topics
    ]
    assert found == topics_of(message)


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_cut_off_requests_are_refused(version: int, data: st.DataObject) -> None:
    """Every proper prefix is an INVALID_REQUEST."""
    encoded = kio_encode(data.draw(messages(0, version, "request")))
    for end in range(len(encoded)):
        with pytest.raises(InvalidRequest):
            decode_produce(memoryview(encoded[:end]), 0, version)


@settings(max_examples=examples(300), deadline=None)
@given(version=st.sampled_from(VERSIONS), noise=st.binary(max_size=80))
def test_noise_is_refused_or_decoded(version: int, noise: bytes) -> None:
    """Any bytes either decode or are an INVALID_REQUEST."""
    try:
        decode_produce(memoryview(noise), 0, version)
    except InvalidRequest:
        pass


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482, at all three places of the message."""
    tags = b"\x01\x63\x02ab"
    body = b"\x00" + b"\xff\xff" + bytes(4) + b"\x02" + b"\x02t" + b"\x02" + bytes(4) + b"\x03xy" + tags * 3
    request = decode_produce(memoryview(body), 0, 9)
    assert request.acks == -1
    assert [(topic, [(p, bytes(r)) for p, r in ps]) for topic, ps in request.topics] == [("t", [(0, b"xy")])]


def test_records_are_slices_of_the_frame() -> None:
    """No copy of the payload is made."""
    frame = memoryview(
        b"\xff\xff\x00\x01" + bytes(4) + struct.pack(">ih1siii", 1, 1, b"t", 1, 0, 4) + b"data"
    )
    (_, [(_, records)]) = decode_produce(frame, 0, 3).topics[0]
    assert records is not None and records.obj is frame.obj and bytes(records) == b"data"


def test_versions_below_three_are_decoded() -> None:
    """They have no transactional id; they are decoded only to be answered with UNSUPPORTED_VERSION."""
    body = struct.pack(">hiih1si", 1, 1500, 1, 1, b"t", 1) + struct.pack(">ii", 4, 2) + b"xx"
    request = decode_produce(memoryview(body), 0, 0)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 1500, None)
    assert request.topics[0][1][0][0] == 4
    answer = [("t", [ProducedPartition(4, 35)])]
    tail = struct.pack(">ih1siihq", 1, 1, b"t", 1, 4, 35, -1)
    assert encode_produce_response(0, 7, answer)[8:] == tail
    assert encode_produce_response(1, 7, answer)[8:] == tail + bytes(4)
    assert encode_produce_response(2, 7, answer)[8:] == tail + b"\xff" * 8 + bytes(4)


HOSTILE = {
    "topics": struct.pack(">hhii", -1, 1, 0, 0x7FFFFFFF),
    "partitions": struct.pack(">hhiih1si", -1, 1, 0, 1, 1, b"t", 0x7FFFFFFF),
    "records": struct.pack(">hhiih1siii", -1, 1, 0, 1, 1, b"t", 1, 0, 0x7FFFFFFF),
    "null records": struct.pack(">hhiih1si", -1, 1, 0, 1, 1, b"t", 500_000)
    + struct.pack(">ii", 0, -1) * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lengths_cost_no_memory(name: str) -> None:
    """Peak allocation stays below eight times the bytes received."""
    body = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decode_produce(memoryview(body), 0, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 8 * len(body) + 100_000


produced = st.builds(
    ProducedPartition,
    st.integers(0, 2**31 - 1),
    st.sampled_from(ErrorCode).map(int),
    st.integers(-1, 2**62),
    st.integers(-1, 2**40),
    st.integers(-1, 2**62),
    st.none() | st.text(max_size=5),
    st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=3)), max_size=2),
)


def clean(result: ProducedPartition) -> ProducedPartition:
    """A success has neither message nor leader hint; the encoder counts on that."""
    if result.error_code == 0:
        return result._replace(error_message=None, leader=None, record_errors=())
    return result


def kio_response(version: int, topics: list[Any], endpoints: list[Endpoint]) -> Any:
    make = response_builders(0, version)
    return make.ProduceResponse(
        throttle_time=datetime.timedelta(milliseconds=5),
        node_endpoints=tuple(make.NodeEndpoint(**each._asdict()) for each in endpoints),
        responses=tuple(
            make.TopicProduceResponse(
                name=topic,
                topic_id=topic,
                partition_responses=tuple(kio_result(make, each) for each in results),
            )
            for topic, results in topics
        ),
    )


def kio_result(make: Any, result: ProducedPartition) -> Any:
    leader = (
        None
        if result.leader is None
        else make.LeaderIdAndEpoch(leader_id=result.leader[0], leader_epoch=result.leader[1])
    )
    time = result.log_append_time_ms
    return make.PartitionProduceResponse(
        index=result.partition,
        error_code=ErrorCode(result.error_code),
        base_offset=result.base_offset,
        log_append_time=None
        if time < 0
        else datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=time),
        log_start_offset=result.log_start_offset,
        error_message=result.error_message,
        record_errors=tuple(
            make.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ),
        **({} if leader is None else {"current_leader": leader}),
    )


@pytest.mark.parametrize("version", VERSIONS)
@SOME
@given(data=st.data())
def test_encoding_equals_kio(version: int, data: st.DataObject) -> None:
    """The whole frame, with errors, record errors (KIP-467) and leader hints (KIP-951)."""
    names: st.SearchStrategy[Any] = st.uuids() if version >= 13 else st.text(max_size=5)
    topics = data.draw(st.lists(st.tuples(names, st.lists(produced.map(clean), max_size=3)), max_size=2))
    endpoints = data.draw(
        st.lists(
            st.builds(Endpoint, st.integers(0, 9), st.text(max_size=4), st.integers(0, 65535)), max_size=2
        )
    )
    frame = encode_produce_response(version, 7, topics, throttle_ms=5, endpoints=endpoints)
    head = codec.response_head(0, version, 7)
    expected = bytes(head) + kio_encode(kio_response(version, topics, endpoints))
    assert frame[4:] == expected[4:]
    assert int.from_bytes(frame[:4]) == len(frame) - 4


@pytest.mark.parametrize("version", (3, 8, 12))
def test_a_name_that_no_topic_can_have_is_refused(version: int) -> None:
    """It would be kept, hashed and returned; names have 249 characters at most."""
    make = request_builders(0, version)

    def decoded(name: str) -> Any:
        message = make.ProduceRequest(topic_data=(make.TopicProduceData(name=name, partition_data=()),))
        frame = memoryview(codec.encode_request(codec.RequestHeader(0, version, 1, None), message))[4:]
        return decode_produce(frame, codec.decode_header(frame)[1], version)

    assert decoded("t" * 249).topics[0][0] == "t" * 249
    with pytest.raises(InvalidRequest):
        decoded("t" * 250)
