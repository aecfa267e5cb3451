"""Versions that kio lacks, byte for byte as the definitions of Apache Kafka 4.4 say."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.protocol.apis import NEWER_VERSIONS
from raftlog.protocol.message_builders import request_builders, response_builders
from raftlog.protocol.reader import read_message
from raftlog.protocol.schema import message_type, module_of, schema_of
from raftlog.protocol.writer import entity_writer

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def encoded(message: object) -> bytes:
    out = bytearray()
    entity_writer(type(message))(out, message)
    return bytes(out)


def api_versions_request() -> object:
    make = request_builders(18, 5)
    return make.ApiVersionsRequest(
        client_software_name="ab", client_software_version="1", cluster_id="cl", node_id=3
    )


def api_versions_response() -> object:
    make = response_builders(18, 5)
    return make.ApiVersionsResponse(
        error_code=129, api_keys=(make.ApiVersion(api_key=18, min_version=0, max_version=5),), throttle_time=0
    )


def txn_offset_commit_request() -> object:
    make = request_builders(28, 6)
    partition = make.TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=2, committed_leader_epoch=3, committed_metadata=None
    )
    topic = make.TxnOffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=(partition,))
    return make.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=5,
        producer_epoch=6,
        generation_id=7,
        member_id="m",
        group_instance_id=None,
        topics=(topic,),
    )


def txn_offset_commit_response() -> object:
    make = response_builders(28, 6)
    partition = make.TxnOffsetCommitResponsePartition(partition_index=1, error_code=100)
    topic = make.TxnOffsetCommitResponseTopic(topic_id=TOPIC_ID, partitions=(partition,))
    return make.TxnOffsetCommitResponse(throttle_time=0, topics=(topic,))


def delete_groups_request() -> object:
    return request_builders(42, 3).DeleteGroupsRequest(groups_names=("g",))


def delete_groups_response() -> object:
    make = response_builders(42, 3)
    results = (
        make.DeletableGroupResult(group_id="g", error_code=0, error_message=None),
        make.DeletableGroupResult(group_id="h", error_code=68, error_message="no"),
    )
    return make.DeleteGroupsResponse(throttle_time=0, results=results)


@pytest.mark.parametrize(
    "message,parts",
    [
        (api_versions_request(), ("03 6162", "02 31", "03 636c", "00000003", "00")),
        (api_versions_response(), ("0081", "02 0012 0000 0005 00", "00000000", "00")),
        (
            txn_offset_commit_request(),
            (
                *("02 74", "02 67", "0000000000000005", "0006", "00000007", "02 6d", "00"),
                *("02", TOPIC_ID.hex, "02", "00000001", "0000000000000002", "00000003", "00", "00"),
                *("00", "00"),
            ),
        ),
        (
            txn_offset_commit_response(),
            ("00000000", "02", TOPIC_ID.hex, "02", "00000001", "0064", "00", "00", "00"),
        ),
        (delete_groups_request(), ("02", "02 67", "00")),
        (
            delete_groups_response(),
            ("00000000", "03", "02 67", "0000", "00", "00", "02 68", "0044", "03 6e6f", "00", "00"),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_bytes_are_those_of_kafkas_definitions(message: object, parts: tuple[str, ...]) -> None:
    """Fields in the order of the definitions, and back."""
    wanted = bytes.fromhex("".join(parts))
    assert encoded(message) == wanted
    assert read_message(type(message), memoryview(wanted), 0) == message


def test_entities_of_a_newer_version_are_its_own() -> None:
    """Each entity has the version, also where it has the fields of the version before."""
    for key, version in NEWER_VERSIONS:
        for direction in ("request", "response"):
            entity = message_type(key, version, direction)  # type: ignore[arg-type]
            assert (int(entity.__api_key__), int(entity.__version__)) == (key, version)
            found = vars(module_of(key, version, direction))  # type: ignore[arg-type]
            for field in schema_of(entity).fields:
                assert field.entity is None or field.entity is found[field.entity.__name__]
