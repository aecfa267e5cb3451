"""Describing the cluster, its quorum and disks; elections; forgetting brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import BrokerIdNotRegistered, InvalidRequest, RequestTimedOut
from raftlog.base.types import TopicPartition
from raftlog.broker.handlers import describe_topic_partitions
from raftlog.metadata.controller_api import (
    Done,
    ElectionResult,
    ElectionResults,
    ElectLeaders,
    UnregisterBroker,
)
from raftlog.metadata.image import PartitionState
from raftlog.metadata.quorum_description import DescribeQuorum, QuorumDescription, QuorumReplica
from raftlog.protocol.message_builders import request_builders
from tests.broker.handlers.one_broker import (
    HandlerSetup,
    cluster_image,
    topic_state,
    versions,
    with_topics,
)

LOG_DIRS, ELECT, QUORUM, CLUSTER, UNREGISTER, PARTITIONS = 35, 43, 55, 60, 64, 75


@pytest.mark.parametrize("version", versions(CLUSTER))
async def test_the_cluster_is_described(version: int) -> None:
    """Live brokers on the client's listener (KIP-700)."""
    response = await HandlerSetup().call(
        CLUSTER, version, listener="EXTERNAL", include_cluster_authorized_operations=True
    )
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "the-cluster", 2)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers] == [
        (1, "public1", 19092, "r1"),
        (2, "public2", 19092, "r2"),
    ]
    assert response.cluster_authorized_operations == 0b1111110100000


async def test_fenced_brokers_are_returned_on_request() -> None:
    """include_fenced_brokers from version 2 on (KIP-1073)."""
    response = await HandlerSetup().call(CLUSTER, 2, include_fenced_brokers=True)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert response.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("endpoint_type,code", [(2, 114), (3, 115)])
async def test_a_brokers_listener_returns_brokers_only(endpoint_type: int, code: int) -> None:
    """Controllers are asked for on their own listener (KIP-919)."""
    response = await HandlerSetup().call(CLUSTER, 1, endpoint_type=endpoint_type)
    assert response.error_code == code and response.error_message


VOTERS = {1: ("voter1", 9093), 4: ("voter4", 9094)}


@pytest.mark.parametrize("version", (1, 2))
async def test_the_controllers_listener_returns_controllers(version: int) -> None:
    """Endpoint type 2 (KIP-919): all voters, whether they are brokers or not, and the id of the active controller."""
    cluster = HandlerSetup(msgspec.structs.replace(cluster_image(), controller_id=4), voters=VOTERS)
    response = await cluster.call(CLUSTER, version, to_controller=True, endpoint_type=2)
    assert (response.error_code, response.endpoint_type, response.cluster_id) == (0, 2, "the-cluster")
    assert response.controller_id == 4
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (each, *address) for each, address in VOTERS.items()
    ]


async def test_a_controller_names_itself_while_the_active_one_is_out_of_reach() -> None:
    """It forwards client requests as soon as there is a leader."""
    cluster = HandlerSetup(msgspec.structs.replace(cluster_image(), controller_id=4), voters=VOTERS)
    cluster.broker.in_touch = lambda _controller_id: False
    response = await cluster.call(CLUSTER, 1, to_controller=True, endpoint_type=2)
    assert response.controller_id == 1


@pytest.mark.parametrize("endpoint_type,code", [(1, 114), (3, 115)])
async def test_the_controllers_listener_returns_no_brokers(endpoint_type: int, code: int) -> None:
    """Brokers are asked for on their own listeners (KIP-919)."""
    response = await HandlerSetup(voters=VOTERS).call(
        CLUSTER, 1, to_controller=True, endpoint_type=endpoint_type
    )
    assert response.error_code == code and "endpoint type 2" in response.error_message


async def describe_partitions(
    cluster: HandlerSetup, *names: str, limit: int = 2000, cursor: Any = None
) -> Any:
    make = request_builders(PARTITIONS, 0)
    return await cluster.call(
        PARTITIONS,
        0,
        topics=tuple(make.TopicRequest(name=each) for each in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else make.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def told(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


async def test_topic_partitions_are_described() -> None:
    """Leader, epoch, replicas, ISR and offline replicas of each partition (KIP-966)."""
    response = await describe_partitions(HandlerSetup(), "b")
    (topic,) = response.topics
    assert (topic.error_code, topic.topic_id, topic.topic_authorized_operations) == (0, UUID(int=1002), 0xDF8)
    assert [
        (
            each.error_code,
            each.leader_id,
            each.leader_epoch,
            each.replica_nodes,
            each.isr_nodes,
            each.offline_replicas,
        )
        for each in topic.partitions
    ] == [
        (0, 2, 1, (1, 2), (1, 2), ()),
        (5, -1, 5, (2, 3), (3,), (3,)),
        (0, 1, 7, (3, 1), (1,), (3,)),
    ]
    assert response.next_cursor is None


async def test_unknown_and_illegal_topics_have_different_errors() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION and INVALID_TOPIC_EXCEPTION; no topic is created."""
    cluster = HandlerSetup()
    response = await describe_partitions(cluster, "nope", "no/pe", "a")
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a", 0),
        ("no/pe", 17),
        ("nope", 3),
    ]
    assert cluster.asked == []


@pytest.mark.parametrize("limit", range(1, 6))
async def test_pages_join_to_the_whole(limit: int) -> None:
    """Following the cursor gives every partition once, in order, no page above its limit."""
    cluster = HandlerSetup()
    cluster.image = with_topics(cluster.image, topic_state("c", 3, *[PartitionState((1,), (1,), 1)] * 4))
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        response = await describe_partitions(cluster, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in told(response) for index in indexes]
        assert 0 < len(page) <= limit
        found += page
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert found == [("a", 0)] + [("b", each) for each in range(3)] + [("c", each) for each in range(4)]


async def test_a_cursor_holds_for_named_topics_too() -> None:
    """Names before the cursor are done; a topic that vanished meanwhile is reported as unknown.

    A cursor that no response can have had is refused, as by Kafka.
    """
    response = await describe_partitions(HandlerSetup(), "a", "b", limit=10, cursor=("b", 2))
    assert told(response) == [("b", [2])]
    gone = await describe_partitions(HandlerSetup(), "a", "aa", limit=10, cursor=("aa", 2))
    assert [(each.name, each.error_code) for each in gone.topics] == [("aa", 3)]
    for wrong in (("aa", 0), ("a", -1)):
        with pytest.raises(InvalidRequest):
            await describe_partitions(HandlerSetup(), "a", limit=10, cursor=wrong)


def test_a_refused_question_about_partitions_names_each_topic_once() -> None:
    """The response has no error of its own, and without an error for a topic the connection would be closed."""
    message = SimpleNamespace(topics=tuple(SimpleNamespace(name=each) for each in ("b", "a", "b")))
    request: Any = None
    response = describe_topic_partitions.error_response(request, message, InvalidRequest())
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 42), ("b", 42)]


class FakeVolumes:
    """Volumes of a thousand bytes, one of them broken."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        if path == "/data/sick":
            raise OSError(5, "input/output error")
        return 1000, 400


def volume(path: str, logs: dict[tuple[str, int], int], *, error: OSError | None = None) -> Any:
    sizes = {
        TopicPartition(*name): SimpleNamespace(size_bytes=size, log_end_offset=7)
        for name, size in logs.items()
    }
    return SimpleNamespace(path=path, logs=sizes, error=error, full=False)


def with_replicas() -> HandlerSetup:
    cluster = HandlerSetup()
    cluster.broker.env.disk = FakeVolumes()
    volumes = [
        volume("/data/one", {("b", 1): 20, ("b", 0): 10, ("being-removed", 0): 5}),
        volume("/data/sick", {("a", 0): 30}),
        volume("/data/failed", {("a", 1): 30}, error=OSError(5, "input/output error")),
    ]
    held = SimpleNamespace(high_watermark=9)
    cluster.broker.replicas = SimpleNamespace(
        logs=SimpleNamespace(volumes=volumes, cordoned={"/data/one"}),
        partitions={TopicPartition(*name): held for name in (("b", 0), ("b", 1), ("a", 0), ("a", 1))},
    )
    return cluster


@pytest.mark.parametrize("version", versions(LOG_DIRS))
async def test_log_directories_are_described(version: int) -> None:
    """Sizes by partition, volume sizes from version 4 on (KIP-827); a sick disk is KAFKA_STORAGE_ERROR."""
    response = await with_replicas().call(LOG_DIRS, version, topics=None)
    one, sick, failed = response.results
    assert (one.error_code, one.log_dir, sick.error_code, failed.error_code) == (0, "/data/one", 56, 56)
    assert [
        (
            topic.name,
            [(each.partition_index, each.partition_size, each.offset_lag) for each in topic.partitions],
        )
        for topic in one.topics
    ] == [("b", [(0, 10, 2), (1, 20, 2)])]
    if version >= 4:
        assert (one.total_bytes, one.usable_bytes) == (1000, 400)
        assert (sick.total_bytes, sick.usable_bytes, sick.topics, failed.topics) == (-1, -1, (), ())
    if version >= 5:
        assert one.is_cordoned and not sick.is_cordoned


async def test_full_log_directory_has_no_byte_free() -> None:
    """Root's share, or a quota, may leave some; what was refused for want of room does not fit."""
    cluster = with_replicas()
    cluster.broker.replicas.logs.volumes[0].full = True
    response = await cluster.call(LOG_DIRS, 4, topics=None)
    assert (response.results[0].total_bytes, response.results[0].usable_bytes) == (1000, 0)


async def test_log_directories_are_described_for_named_partitions() -> None:
    """Directories without any of them are still listed."""
    topic = request_builders(LOG_DIRS, 4).DescribableLogDirTopic(topic="b", partitions=(1, 7))
    response = await with_replicas().call(LOG_DIRS, 4, topics=(topic,))
    assert [[each.name for each in result.topics] for result in response.results] == [["b"], [], []]
    assert [each.partition_index for each in response.results[0].topics[0].partitions] == [1]


def metadata_partition(version: int, topic: str = "__cluster_metadata") -> Any:
    make = request_builders(QUORUM, version)
    return make.TopicData(topic_name=topic, partitions=(make.PartitionData(partition_index=0),))


@pytest.mark.parametrize("version", versions(QUORUM))
async def test_the_quorum_is_described(version: int) -> None:
    """Leader, epoch, commit offset and voters from the active controller; their addresses from version 2 on."""
    cluster = HandlerSetup(voters={1: ("h1", 9093), 2: ("h2", 9093)}, controller_listener_names=("CTRL",))
    cluster.answers[DescribeQuorum] = QuorumDescription(
        2, 7, 90, (QuorumReplica(1, 88, 5, 4), QuorumReplica(2, 90)), (QuorumReplica(4, 80),)
    )
    response = await cluster.call(QUORUM, version, topics=(metadata_partition(version),))
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (2, 7, 90)
    assert [(each.replica_id, each.log_end_offset) for each in partition.current_voters] == [(1, 88), (2, 90)]
    assert [each.replica_id for each in partition.observers] == [4]
    if version >= 1:
        assert partition.current_voters[0].last_caught_up_timestamp == 4
    if version >= 2:
        assert [
            (each.node_id, each.listeners[0].host, each.listeners[0].name) for each in response.nodes
        ] == [
            (1, "h1", "CTRL"),
            (2, "h2", "CTRL"),
        ]


async def test_only_the_metadata_partition_is_a_quorum() -> None:
    """Any other is UNKNOWN_TOPIC_OR_PARTITION; without a majority the whole request is retriable."""
    cluster = HandlerSetup()
    cluster.answers[DescribeQuorum] = QuorumDescription(1, 1, 1, ())
    response = await cluster.call(QUORUM, 2, topics=(metadata_partition(2, "a"),))
    assert response.topics[0].partitions[0].error_code == 3
    cluster.answers[DescribeQuorum] = RequestTimedOut("no majority")
    response = await cluster.refused(QUORUM, 2, topics=(metadata_partition(2),))
    assert (response.error_code, response.error_message) == (7, "no majority")


@pytest.mark.parametrize("version", versions(ELECT))
async def test_leaders_are_elected(version: int) -> None:
    """Preferred in version 0, either type from version 1 on (KIP-460); results by partition."""
    cluster = HandlerSetup()
    cluster.answers[ElectLeaders] = ElectionResults(
        (
            ElectionResult("b", 0),
            ElectionResult("b", 1, 80, "fenced"),
            ElectionResult("a", 0, 84, "not needed"),
        )
    )
    make = request_builders(ELECT, version)
    partitions = (
        make.TopicPartitions(topic="b", partitions=(0, 1)),
        make.TopicPartitions(topic="a", partitions=(0, 0)),
    )
    response = await cluster.call(ELECT, version, election_type=1, topic_partitions=partitions, timeout=100)
    assert [
        (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
        for topic in response.replica_election_results
    ] == [("b", [(0, 0), (1, 80)]), ("a", [(0, 84)])]
    expected_type = 0 if version == 0 else 1
    assert cluster.asked == [ElectLeaders(expected_type, (("b", 0), ("b", 1), ("a", 0)))]


async def test_all_leaders_are_elected_at_once() -> None:
    """No list of partitions means all."""
    cluster = HandlerSetup()
    cluster.answers[ElectLeaders] = ElectionResults(())
    assert (await cluster.call(ELECT, 2, topic_partitions=None)).replica_election_results == ()
    assert cluster.asked == [ElectLeaders(0, None)]


async def test_a_failed_election_is_an_error_for_each_partition() -> None:
    """Version 0 has no error of the whole request."""
    cluster = HandlerSetup()
    cluster.answers[ElectLeaders] = RequestTimedOut()
    partitions = (request_builders(ELECT, 0).TopicPartitions(topic="b", partitions=(0,)),)
    response = await cluster.call(ELECT, 0, topic_partitions=partitions)
    assert response.replica_election_results[0].partition_result[0].error_code == 7
    assert (await cluster.call(ELECT, 1, topic_partitions=None)).error_code == 7


async def test_a_broker_can_be_forgotten() -> None:
    """UnregisterBroker, with the controller's word."""
    cluster = HandlerSetup()
    cluster.answers[UnregisterBroker] = Done()
    assert (await cluster.call(UNREGISTER, 0, broker_id=3)).error_code == 0
    assert cluster.asked == [UnregisterBroker(3)]
    cluster.answers[UnregisterBroker] = BrokerIdNotRegistered("no broker 9")
    response = await cluster.refused(UNREGISTER, 0, broker_id=9)
    assert (response.error_code, response.error_message) == (102, "no broker 9")
