"""The image's bytes: complete, deterministic, and honest about damage."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from raftlog.metadata.features import UnsupportedMetadata
from raftlog.metadata.image import (
    EMPTY_IMAGE,
    BrokerState,
    Endpoint,
    MetadataImage,
    PartitionState,
    SupportedFeature,
    TopicState,
    only_directories,
)
from raftlog.metadata.metadata_records import Batch, BrokerChanged, decode_batch, encode_batch
from raftlog.metadata.snapshot import decode_image, encode_image
from raftlog.metadata.usage import BASE_BYTES, usage_of
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import ScramCredential
from raftlog.security.tokens import DelegationToken
from tests.kit.examples import examples

ids = st.integers(0, 2**31 - 1)
longs = st.integers(0, 2**63 - 1)
uuids = st.uuids()
names = st.text(max_size=8)
broker_ids = st.lists(ids, max_size=4).map(tuple)
endpoints = st.builds(Endpoint, names, names, st.integers(0, 65535), names)
brokers = st.builds(
    BrokerState,
    ids,
    longs,
    uuids,
    st.lists(endpoints, max_size=2).map(tuple),
    st.none() | names,
    st.booleans(),
    st.booleans(),
    st.lists(uuids, max_size=2).map(tuple),
    st.booleans(),
    st.lists(st.builds(SupportedFeature, names, ids, ids), max_size=2).map(tuple),
)
forgotten = st.builds(only_directories, ids, st.lists(uuids, max_size=2).map(tuple))
partitions = st.builds(
    PartitionState, broker_ids, broker_ids, ids, ids, ids, broker_ids, broker_ids, st.booleans()
)
topics = st.builds(TopicState, names, uuids, st.lists(partitions, max_size=3).map(tuple))

acls = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.CLUSTER]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    names,
    names,
    st.sampled_from(Operation),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
keys = st.binary(min_size=64, max_size=64)
credentials = st.builds(ScramCredential, st.binary(max_size=64), st.integers(4_096, 16_384), keys, keys)
tokens = st.builds(
    DelegationToken, names, names, names, st.lists(names, max_size=2).map(tuple), longs, longs, longs
)
users = st.tuples(names, st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]))
entities = st.sampled_from(
    [(("user", None),), (("client-id", "c"), ("user", "u")), (("ip", "10.0.0.1"),), (("client-id", ""),)]
)
limits = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "request_percentage"]), st.floats(0.5, 1e300), min_size=1
)


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    some_topics = draw(st.lists(topics, max_size=3, unique_by=(lambda t: t.name, lambda t: t.topic_id)))
    some_brokers = draw(st.lists(brokers, max_size=3, unique_by=lambda b: b.broker_id))
    gone = st.lists(brokers | forgotten, max_size=2, unique_by=lambda b: b.broker_id)
    resources = st.tuples(st.sampled_from(["topic", "broker", "group"]), names)
    image = MetadataImage(
        offset=draw(longs),
        controller_epoch=draw(longs),
        controller_id=draw(ids),
        cluster_id=draw(names),
        brokers={each.broker_id: each for each in some_brokers},
        unregistered={each.broker_id: each for each in draw(gone)},
        topics={each.name: each for each in some_topics},
        topic_names={each.topic_id: each.name for each in some_topics},
        configs=draw(st.dictionaries(resources, st.dictionaries(names, names, min_size=1), max_size=3)),
        next_producer_id=draw(longs),
        topics_offset=draw(longs),
        features=draw(st.dictionaries(names, st.integers(0, 100), max_size=2)),
        features_epoch=draw(longs),
        acls=dict.fromkeys(draw(st.lists(acls, max_size=3, unique=True)), True),
        scram=draw(st.dictionaries(users, credentials, max_size=2)),
        tokens={
            each.token_id: each for each in draw(st.lists(tokens, max_size=2, unique_by=lambda t: t.token_id))
        },
        quotas=draw(st.dictionaries(entities, limits, max_size=2)),
    )
    return replace(image, usage=usage_of(image))


@given(image=images())
@settings(max_examples=examples(100), deadline=None)
def test_image_survives_its_bytes(image: MetadataImage) -> None:
    """Decoding an encoded image gives an equal image and the same bytes again, and no more than its usage counts."""
    data = encode_image(image)
    assert decode_image(data) == image
    assert decode_image(memoryview(data)) == image
    assert encode_image(decode_image(data)) == data
    assert len(data) <= image.usage.size_bytes + BASE_BYTES


def test_snapshot_of_before_drains_is_read() -> None:
    """A field that came later is at its default: no broker was drained then."""
    broker = BrokerState(1, 5, UUID(int=1), ())
    data = encode_image(MetadataImage(brokers={1: broker}))
    parts = msgspec.msgpack.decode(data[1:])
    (fields,) = parts[4]
    assert (fields.pop(), fields.pop(), fields.pop()) == (False, [], False)
    assert decode_image(data[:1] + msgspec.msgpack.encode(parts)).brokers == {1: broker}


def test_snapshot_of_before_offsets_of_topics_is_read() -> None:
    """No topic has changed since, as far as anybody knows."""
    parts = msgspec.msgpack.decode(encode_image(MetadataImage(topics_offset=7))[1:])
    assert parts[8] == 7
    assert decode_image(b"\x01" + msgspec.msgpack.encode(parts[:8])).topics_offset == 0


def test_snapshot_of_before_features_is_read() -> None:
    """All levels are initial, and no unregistered broker is remembered."""
    departed = {3: only_directories(3, (UUID(int=1),))}
    image = MetadataImage(
        features={"group.version": 0}, features_epoch=9, topics_offset=7, unregistered=departed
    )
    image = replace(image, usage=usage_of(image))
    parts = msgspec.msgpack.decode(encode_image(image)[1:], strict=False)
    assert parts[9:11] == [{"group.version": 0}, 9]
    assert decode_image(encode_image(image)) == image
    older = decode_image(b"\x01" + msgspec.msgpack.encode(parts[:9]))
    assert (older.features, older.features_epoch, older.topics_offset, older.unregistered) == (
        {},
        0,
        7,
        {},
    )


def test_snapshot_of_before_tokens_is_read() -> None:
    """There were no delegation tokens, and all else is kept."""
    image = MetadataImage(features={"group.version": 0}, topics_offset=7)
    parts = msgspec.msgpack.decode(encode_image(image)[1:], strict=False)
    assert parts[14:] == [[], [], [], {}, []]
    parts = parts[:14]
    assert decode_image(b"\x01" + msgspec.msgpack.encode(parts)) == image


def test_snapshot_of_before_rules_is_read() -> None:
    """There were no ACLs, credentials and quotas, and all else is kept."""
    image = MetadataImage(features={"group.version": 0}, features_epoch=9, topics_offset=7)
    parts = msgspec.msgpack.decode(encode_image(image)[1:], strict=False)
    assert parts[12:] == [[], [], [], [], [], {}, []]
    assert decode_image(b"\x01" + msgspec.msgpack.encode(parts[:12])) == image


def test_record_of_before_drains_is_read() -> None:
    """Journals outlive releases."""
    batch = Batch(1, 0, (BrokerChanged(1, 5, fenced=True),))
    parts = msgspec.msgpack.decode(encode_batch(batch)[1:])
    assert parts[2][0].pop() is None
    assert decode_batch(encode_batch(batch)[:1] + msgspec.msgpack.encode(parts)) == batch


def test_unknown_version_and_damage_are_value_errors() -> None:
    """A newer or truncated snapshot is refused rather than half read."""
    data = encode_image(EMPTY_IMAGE)
    with pytest.raises(UnsupportedMetadata, match="x07"):
        decode_image(b"\x07" + data[1:])
    with pytest.raises(msgspec.DecodeError):
        decode_image(data[:-1])


def test_partition_costs_few_bytes() -> None:
    """10,000 partitions stay well below the quorum's 4 MiB, for they travel in one message."""
    state = PartitionState((1, 2, 3), (1, 2, 3), 1, 5, 9)
    topic = TopicState("t", UUID(int=1), (state,) * 10_000)
    data = encode_image(MetadataImage(topics={"t": topic}, topic_names={UUID(int=1): "t"}))
    assert len(data) < 300_000
