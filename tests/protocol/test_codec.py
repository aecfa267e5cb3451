"""The generic codec against kio, in every version of every API."""

from __future__ import annotations

import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from raftlog.base.errors import InvalidRequest, UnsupportedVersion
from raftlog.broker.handlers import served
from raftlog.protocol import codec
from raftlog.protocol.apis import APIS, NEWER_VERSIONS, ApiKey, advertised_versions
from raftlog.protocol.message_builders import build_response, request_builders, response_builders
from raftlog.protocol.reader import BASE_OBJECT_BYTES, OBJECT_BYTES_PER_RECEIVED_BYTE, read_message
from raftlog.protocol.schema import message_type
from raftlog.protocol.writer import entity_writer, incremental_entity_writer
from tests.kit.examples import examples
from tests.kit.marks import Selection, nightly, taste
from tests.protocol.kio_messages import built_versions, every_version, kio_decode, kio_encode, messages, plain

FEW = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


def ends(cases: list[tuple[int, int, str]]) -> list[Any]:
    """Return the cases of all versions; those between the oldest and the newest of an API are for the nightly tests."""
    spans = {key: [version for other, version, _ in cases if other == key] for key, _, _ in cases}
    oldest_and_newest = [each for each in cases if each[1] in (min(spans[each[0]]), max(spans[each[0]]))]
    if not Selection.has_nightly:
        return oldest_and_newest
    return [each if each in oldest_and_newest else nightly(*each) for each in cases]


def encode(message: Any) -> bytes:
    out = bytearray()
    entity_writer(type(message))(out, message)
    return bytes(out)


def encode_in_pieces(message: Any) -> tuple[bytes, int]:
    """Return the bytes of a message, and how many pieces they were written in."""
    out = bytearray()
    count = len(list(incremental_entity_writer(type(message))(out, message)))
    return bytes(out), count


def decode(entity: type[Any], data: bytes) -> Any:
    return read_message(entity, memoryview(data), 0)


@pytest.mark.parametrize(
    "key,version,direction", ends(built_versions("request")) + ends(built_versions("response")), ids=str
)
@FEW
@given(data=st.data())
def test_both_directions_equal_kio(key: int, version: int, direction: str, data: st.DataObject) -> None:
    """Every served API and version is encoded and decoded as by kio (the schemas of Kafka 4.3)."""
    message = data.draw(messages(key, version, direction))
    encoded = kio_encode(message)
    assert encode(message) == encode_in_pieces(message)[0] == encoded
    assert plain(decode(type(message), encoded)) == plain(kio_decode(type(message), encoded))


def test_what_is_written_in_pieces_stops_at_each_entity_of_an_array() -> None:
    """Including entities of an array in an entity that is no array, and entities that are bytes already."""
    make = response_builders(69, 1)
    topic = make.TopicPartitions(topic_id=UUID(int=1), topic_name="t", partitions=(0, 1))
    assignment = make.Assignment(topic_partitions=(topic,) * 10)
    member = make.Member(assignment=assignment, target_assignment=assignment, subscribed_topic_names=("t",))
    group = make.DescribedGroup(group_id="g", members=(member,) * 5)
    message = make.ConsumerGroupDescribeResponse(groups=(group, codec.encode_entity(group)))
    encoded, count = encode_in_pieces(message)
    assert encoded == encode(message)
    assert count > 5 * 2 * 10


def test_the_schema_of_every_api_can_be_read() -> None:
    """Also APIs that are not served have reader and writer, so that errors can be said in their shape."""
    for key, version, direction in every_version("request") + every_version("response"):
        entity_writer(message_type(key, version, direction))


UNSTABLE = {"init_producer_id": {6}}
"""Versions that Kafka 4.3 does not advertise by default: `latestVersionUnstable` of its schemas."""


def test_api_table_is_kios() -> None:
    """Keys, names, versions and flexibility equal kio 0.6.5 = Kafka 4.3, and the newer versions of Kafka 4.4."""
    assert {key: api.name for key, api in APIS.items()} == dict(api_key_map)
    for api in APIS.values():
        versions = range(api.min_version, api.max_version + 1)
        unstable = UNSTABLE.get(api.name, set())
        newer = {version for key, version in NEWER_VERSIONS if key == api.key}
        assert sorted((schema_name_map[api.name].keys() - unstable) | newer) == list(versions)
        for version in versions:
            entity = message_type(api.key, version, "request")
            assert entity.__flexible__ == api.is_flexible(version), (api, version)


def test_produce_is_advertised_from_zero() -> None:
    """Older librdkafka drops compression unless Produce v0 is listed (KAFKA-18659)."""
    ranges = {each.api_key: each for each in advertised_versions(served())}
    assert ranges[0][1:] == (0, 13)
    assert ranges[1][1:] == (4, 18)
    assert ranges.keys() == served()


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482: a reader ignores tags that it does not know, wherever they are."""
    known = encode(request_builders(3, 12).MetadataRequest(topics=None, allow_auto_topic_creation=True))
    message = codec.decode_request(3, 12, memoryview(known[:-1] + b"\x02\x05\x02ab\x2a\x00"), 0)
    assert message.topics is None and message.allow_auto_topic_creation


def test_bytes_behind_a_message_are_ignored() -> None:
    """The request of librdkafka 2.16 for all topics: the count keeps its four bytes, and Kafka reads one byte."""
    body = bytes.fromhex("00000000010000")
    assert codec.decode_request(3, 13, memoryview(body), 0).topics is None


def test_tagged_field_whose_length_lies_is_refused() -> None:
    """A known tag must fill its length exactly, else what follows would be misread."""
    body = encode(request_builders(1, 12).FetchRequest())[:-1]
    assert codec.decode_request(1, 12, memoryview(body + b"\x01\x00\x02\x02a"), 0).cluster_id == "a"
    with pytest.raises(InvalidRequest):
        codec.decode_request(1, 12, memoryview(body + b"\x01\x00\x03\x02a\x00"), 0)


@pytest.mark.parametrize("key,version,_", ends(built_versions("request")), ids=str)
@FEW
@given(data=st.data())
def test_cut_off_requests_are_refused(key: int, version: int, _: str, data: st.DataObject) -> None:
    """Every proper prefix of a request is an INVALID_REQUEST, never another exception."""
    encoded = encode(data.draw(messages(key, version, "request")))
    for end in range(len(encoded)):
        with pytest.raises(InvalidRequest):
            codec.decode_request(key, version, memoryview(encoded[:end]), 0)


@settings(max_examples=examples(300), deadline=None)
@given(case=st.sampled_from(built_versions("request")), noise=st.binary(max_size=60))
def test_noise_is_refused_or_decoded(case: tuple[int, int, str], noise: bytes) -> None:
    """Any bytes either decode or are an INVALID_REQUEST."""
    try:
        codec.decode_request(case[0], case[1], memoryview(noise), 0)
    except InvalidRequest:
        pass


HOSTILE = {
    "huge count": (3, 1, b"\x7f\xff\xff\xff" + b"\x00\x01a" * 1000),
    "huge compact count": (3, 12, b"\xff\xff\xff\xff\x07" + b"\x00" * 1000),
    "negative count": (3, 1, b"\xff\xff\xff\xfe"),
    "negative string": (3, 1, b"\x00\x00\x00\x01\xff\xfd"),
    "endless varint": (3, 12, b"\xff" * 1000),
    "huge string": (3, 1, b"\x00\x00\x00\x01\x7f\xff" + b"a" * 1000),
    "huge tag": (3, 12, b"\x00\x01\x00\x01\x05\xff\xff\xff\xff\x07"),
    "huge tag count": (3, 12, b"\x00\x01\x00\xff\xff\xff\xff\x07"),
    "a million empty names": (3, 1, b"\x00\x0f\x42\x40" + b"\x00\x00" * 1_000_000),
    "half a million partitions": (21, 2, b"\x02\x02a" + b"\xff\xff\x7f" + bytes(8 * 2_000_000)),
}


@pytest.mark.parametrize("name", taste({*HOSTILE} - {"half a million partitions"}, HOSTILE))
def test_hostile_lengths_cost_no_memory(name: str) -> None:
    """Peak allocation stays below a multiple of the bytes received, above the allowance every message has."""
    key, version, body = HOSTILE[name]
    codec.decode_request(3, 1, memoryview(b"\xff\xff\xff\xff"), 0)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            codec.decode_request(key, version, memoryview(body), 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= OBJECT_BYTES_PER_RECEIVED_BYTE * len(body) + 2 * BASE_OBJECT_BYTES


def test_a_large_honest_request_is_decoded() -> None:
    """The bound on objects leaves room for ten thousand topics with names."""
    make = request_builders(3, 12)
    topics = tuple(make.MetadataRequestTopic(name=f"topic-{n:06}") for n in range(10_000))
    body = encode(make.MetadataRequest(topics=topics))
    assert len(codec.decode_request(3, 12, memoryview(body), 0).topics) == 10_000


@settings(deadline=None)
@given(
    case=st.sampled_from(built_versions("request")),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
)
def test_header_round_trips(case: tuple[int, int, str], correlation_id: int, client_id: str | None) -> None:
    """Header version 1 or 2 by flexibility; the client id stays a legacy string in both (KIP-482)."""
    key, version, _ = case
    header = codec.RequestHeader(key, version, correlation_id, client_id)
    frame = codec.encode_request(header, request_of(key, version))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    found, position = codec.decode_header(memoryview(frame)[4:])
    assert found == header
    codec.decode_request(key, version, memoryview(frame)[4:], position)


def request_of(key: int, version: int) -> Any:
    return getattr(request_builders(key, version), message_type(key, version, "request").__name__)()


def test_header_tags_are_skipped() -> None:
    """A flexible header may carry tagged fields."""
    frame = memoryview(b"\x00\x03\x00\x0c\x00\x00\x00\x07\x00\x01a\x01\x63\x03xyz" + b"\x00\x01\x00\x00")
    header, position = codec.decode_header(frame)
    assert header == (3, 12, 7, "a")
    assert position == 17


@pytest.mark.parametrize("cut", range(11))
def test_cut_off_header_is_refused(cut: int) -> None:
    """A frame shorter than its header is an INVALID_REQUEST."""
    frame = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x02a"
    with pytest.raises(InvalidRequest):
        codec.decode_header(memoryview(frame[:cut]))


def test_unknown_api_has_a_header() -> None:
    """The caller decides what to do about a key that the schema does not know."""
    header, position = codec.decode_header(memoryview(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"))
    assert header == (0x7FFF, 0, 1, None) and position == 10


def test_response_header_is_tagged_but_for_api_versions() -> None:
    """Flexible responses have header version 1, ApiVersions always 0 (KIP-511)."""
    for key, version, tagged in ((3, 12, 1), (3, 8, 0), (18, 3, 0), (18, 0, 0)):
        message = build_response(key, version)
        frame = codec.encode_response(key, version, 9, message)
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert frame[4:8] == b"\x00\x00\x00\x09"
        assert frame[8 + tagged :] == encode(message)
        assert codec.decode_response(key, version, memoryview(frame)[4:]) == (9, message)


@pytest.mark.parametrize("version", [1, 9])
def test_encoded_parts_are_sent_as_they_are(version: int) -> None:
    """A kept part, or a kept message, gives the same frame as what it was made from."""
    make = response_builders(3, version)
    topic = make.MetadataResponseTopic(name="kept")
    message = make.MetadataResponse(cluster_id="here", topics=(topic, topic))
    frame = codec.encode_response(3, version, 4, message)
    kept = make.MetadataResponse(cluster_id="here", topics=(topic, codec.encode_entity(topic)))
    assert codec.encode_response(3, version, 4, kept) == frame
    assert codec.encode_response(3, version, 4, codec.encode_entity(message)) == frame


def test_versions_outside_the_schema_are_unsupported() -> None:
    """A known API in a version without schema is UNSUPPORTED_VERSION."""
    for key, version in ((0, 2), (1, 19), (3, 14), (12345, 0)):
        with pytest.raises(UnsupportedVersion):
            codec.decode_request(key, version, memoryview(b""), 0)


def test_errors_of_a_whole_request_are_said_where_the_api_has_a_place() -> None:
    """Nearest version with a schema; None when the response has no top-level error."""
    assert codec.error_response(22, 99, 35).error_code == 35
    assert codec.error_response(60, 0, 35, "why").error_message == "why"
    assert codec.error_response(2, 1, 35) is None


def test_shapes_drop_what_a_version_lacks_and_refuse_what_none_has() -> None:
    """One piece of code serves all versions, but not misspelt fields."""
    topic = {"error_code": 3, "name": "a", "topic_id": None, "partitions": ()}
    assert not hasattr(response_builders(3, 1).MetadataResponseTopic(**topic), "topic_id")
    assert response_builders(3, 12).MetadataResponseTopic(**topic).topic_authorized_operations == -(2**31)
    with pytest.raises(TypeError, match=r"MetadataResponseTopic .*nmae"):
        response_builders(3, 1).MetadataResponseTopic(nmae="a")
    with pytest.raises(AttributeError):
        response_builders(3, 1).NoSuchThing  # noqa: B018


def test_an_answer_of_very_many_small_parts_is_read() -> None:
    """A size that a request may not have is allowed for another broker's response: empty ids by the ten thousand."""
    make = response_builders(ApiKey.LIST_TRANSACTIONS, 0)
    states = tuple(
        make.TransactionState(transactional_id="", producer_id=each, transaction_state="")
        for each in range(20_000)
    )
    answer = make.ListTransactionsResponse(error_code=0, transaction_states=states)
    frame = codec.encode_response(ApiKey.LIST_TRANSACTIONS, 0, 1, answer)
    _, found = codec.decode_response(ApiKey.LIST_TRANSACTIONS, 0, memoryview(frame)[4:])
    assert len(found.transaction_states) == len(states)
    with pytest.raises(InvalidRequest):
        decode(type(found), frame[9:])
