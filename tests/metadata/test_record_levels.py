"""No node writes what another one cannot know: each kind of record, and each field, has its level."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import InvalidUpdateVersion, UnsupportedVersion
from raftlog.controller.admin_requests import ADMIN_REQUESTS
from raftlog.controller.requests import REQUESTS, check_request
from raftlog.metadata import controller_api, image, metadata_records, snapshot
from raftlog.metadata.controller_api import CreateAcls, FeatureUpdate, ListReassignments, UpdateFeatures
from raftlog.metadata.features import (
    NEWEST_METADATA_LEVEL,
    RAFTLOG_METADATA_VERSION,
    SUPPORTED_FEATURES,
    UnsupportedMetadata,
)
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, only_directories
from raftlog.metadata.loader import MetadataLoader
from raftlog.metadata.metadata_records import (
    AclCreated,
    Batch,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterNamed,
    ControllerElected,
    FeatureChanged,
    PartitionChanged,
    Record,
    decode_batch,
    encode_batch,
)
from raftlog.metadata.record_levels import FIELDS_SINCE, RECORDS_SINCE, check_records
from raftlog.metadata.record_replay import apply_records
from raftlog.metadata.snapshot import decode_image, encode_image
from raftlog.metadata.usage import usage_of
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType

RULE = Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:al", "*", Operation.READ, Permission.ALLOW)

FIELDS_OF_LEVEL_0 = {
    "ClusterNamed": "cluster_id",
    "ControllerElected": "controller_id controller_epoch",
    "BrokerRegistered": "broker_id incarnation_id endpoints rack directory_ids features",
    "BrokerChanged": "broker_id broker_epoch fenced in_controlled_shutdown draining",
    "BrokerUnregistered": "broker_id broker_epoch directory_ids",
    "TopicCreated": "name topic_id",
    "PartitionCreated": "topic_id partition replicas isr leader",
    "PartitionChanged": ("topic_id partition leader isr replicas adding_replicas removing_replicas isr_lost"),
    "TopicDeleted": "topic_id",
    "ConfigChanged": "resource_type resource_name key value",
    "ProducerIdsAllocated": "broker_id next_producer_id",
    "FeatureChanged": "name level",
    "Batch": "controller_epoch base_offset records at_ms causes",
    "Endpoint": "listener host port security_protocol",
    "SupportedFeature": "name lowest highest",
    "BrokerState": (
        "broker_id broker_epoch incarnation_id endpoints rack fenced in_controlled_shutdown directory_ids "
        "draining features"
    ),
    "PartitionState": (
        "replicas isr leader leader_epoch partition_epoch adding_replicas removing_replicas isr_lost unclean_epoch"
    ),
    "TopicState": "name topic_id partitions",
}
"""The fields that 0.2.0 reads. It skips further fields, and stops at a kind of record that it does not know."""

SNAPSHOT_OF_LEVEL_0 = (
    "offset controller_epoch controller_id cluster_id brokers topics configs next_producer_id topics_offset "
    "features features_epoch departed"
)
REQUESTS_OF_LEVEL_0 = {
    "RegisterBroker",
    "BrokerHeartbeat",
    "AlterPartition",
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterConfigs",
    "ElectLeaders",
    "AlterReassignments",
    "ListReassignments",
    "TransferLeaderships",
    "DrainBroker",
    "AllocateProducerIds",
    "UnregisterBroker",
    "UpdateFeatures",
    "DescribeQuorum",
}


def at_level(level: int) -> MetadataImage:
    records: tuple[Any, ...] = (ControllerElected(1, 1), ClusterNamed("c"))
    if level:
        records += (FeatureChanged(RAFTLOG_METADATA_VERSION, level),)
    return apply_records(EMPTY_IMAGE, records)


def test_each_kind_of_record_has_a_level() -> None:
    """A kind that is new since 0.2.0 needs a row in RECORDS_SINCE, with the level that the release supports."""
    kinds = {each.__name__ for each in get_args(Record)}
    later = {each.__name__ for each in RECORDS_SINCE}
    assert kinds == (FIELDS_OF_LEVEL_0.keys() & kinds) | later
    assert not later & FIELDS_OF_LEVEL_0.keys()
    assert max(RECORDS_SINCE.values()) == NEWEST_METADATA_LEVEL


def test_each_request_has_a_level() -> None:
    """A request to the controller that is new since 0.2.0 says so in its row."""
    requests = set(get_args(controller_api.Request))
    rows = {**REQUESTS, **ADMIN_REQUESTS}
    assert rows.keys() == requests
    assert {each.__name__ for each in requests if not rows[each].since} == REQUESTS_OF_LEVEL_0


@pytest.mark.parametrize("kind", FIELDS_OF_LEVEL_0)
def test_records_of_level_0_have_the_fields_of_level_0(kind: str) -> None:
    """A new field of an old record would be passed over by 0.2.0, so that nodes' images would differ."""
    found = getattr(metadata_records, kind, None) or getattr(image, kind)
    records = {"PartitionState": PartitionChanged, "BrokerState": BrokerRegistered}
    later = FIELDS_SINCE.get(records.get(kind, found), {})
    assert found.__struct_fields__ == (*FIELDS_OF_LEVEL_0[kind].split(), *later)


def test_a_later_field_is_written_only_once_the_level_allows() -> None:
    """A record that does not use the field is written at each level."""
    check_records(at_level(2), (PartitionChanged(UUID(int=1), 0, isr=(1,)),))
    with pytest.raises(UnsupportedVersion, match=r"raftlog.metadata.version is 2, and this needs 3"):
        check_records(at_level(2), (PartitionChanged(UUID(int=1), 0, eligible=()),))
    check_records(at_level(3), (PartitionChanged(UUID(int=1), 0, eligible=(2,)),))


@pytest.mark.parametrize("level", [2, 3])
def test_an_older_image_keeps_only_the_directories_of_unregistered_brokers(level: int) -> None:
    """0.3.0 forgets the incarnation, and images of one level are equal on all nodes."""
    before = apply_records(at_level(level), (BrokerRegistered(7, UUID(int=7), (), None, (UUID(int=1),)),))
    after = apply_records(before, (BrokerUnregistered(7, before.offset - 1, (UUID(int=1),)),))
    kept = only_directories(7, (UUID(int=1),)) if level == 2 else before.brokers[7]
    assert after.unregistered == {7: kept}
    assert decode_image(encode_image(after)).unregistered == {7: kept}
    again = apply_records(after, (BrokerRegistered(7, UUID(int=8), (), None, (UUID(int=1),)),))
    assert [each.usage for each in (after, again)] == [usage_of(each) for each in (after, again)]


def test_a_snapshot_of_level_0_is_one_of_0_2_0() -> None:
    """Its first fields are the fields of 0.2.0, and the later fields are empty until the level is raised."""
    fields = snapshot._Snapshot.__struct_fields__
    known = tuple(SNAPSHOT_OF_LEVEL_0.split())
    assert fields[: len(known)] == known
    _, *values = msgspec.msgpack.decode(encode_image(at_level(0))[1:])
    assert not any(values[len(known) - 1 :])


def test_a_record_is_written_only_once_the_level_allows() -> None:
    """UNSUPPORTED_VERSION, with a sentence that says what to do."""
    with pytest.raises(UnsupportedVersion, match="finalize the upgrade with `raftlog cluster upgrade`"):
        check_records(at_level(0), (ClusterNamed("c"), AclCreated(RULE)))
    check_records(at_level(0), (ClusterNamed("c"),))
    check_records(at_level(1), (AclCreated(RULE),))


def test_a_broker_asks_no_controller_what_an_older_one_cannot_read() -> None:
    """It would say that the request is malformed."""
    with pytest.raises(UnsupportedVersion, match=r"raftlog.metadata.version is 0, and this needs 1"):
        check_request(at_level(0), CreateAcls((RULE,)))
    check_request(at_level(1), CreateAcls((RULE,)))
    check_request(at_level(0), ListReassignments())


def test_a_level_is_not_asked_for_while_a_broker_lacks_it() -> None:
    """The error names the broker, since a controller of 0.2.0 only says that itself lacks it."""
    old = BrokerRegistered(7, UUID(int=7), (), None, (), SUPPORTED_FEATURES[:-1])
    before = apply_records(at_level(0), (old,))
    with pytest.raises(InvalidUpdateVersion, match=r"broker 7 does not support raftlog.metadata.version"):
        check_request(before, UpdateFeatures((FeatureUpdate(RAFTLOG_METADATA_VERSION, 1),)))


def test_a_node_takes_no_metadata_of_a_level_that_it_lacks() -> None:
    """Neither as a batch nor as a snapshot, of which it would skip the new fields: the message says what to do."""
    newer = NEWEST_METADATA_LEVEL + 1
    loader = MetadataLoader(lambda call: call())
    with pytest.raises(UnsupportedMetadata, match=f"is {newer}, but this release supports levels 0 to"):
        loader.restore(encode_image(at_level(newer)))
    loader.restore(encode_image(at_level(0)))
    raised = Batch(1, loader.image.offset, (FeatureChanged(RAFTLOG_METADATA_VERSION, newer),))
    with pytest.raises(UnsupportedMetadata, match="install the cluster's release"):
        loader.apply(encode_batch(raised))
    assert loader.image == at_level(0)


def test_an_unknown_record_is_reported_in_a_sentence() -> None:
    """A newer release's record, or a snapshot of another shape: not a library's error of its own."""
    body = msgspec.msgpack.encode([1, 0, [[99, "x"]]])
    with pytest.raises(
        UnsupportedMetadata, match=r"a metadata batch has what this release does not know.*99"
    ):
        decode_batch(encode_batch(Batch(1, 0, ()))[:1] + body)
    with pytest.raises(UnsupportedMetadata):
        decode_image(encode_image(EMPTY_IMAGE)[:1] + msgspec.msgpack.encode(["offset"]))
