"""Metadata responses name the brokers, the topics and their leaders."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    InvalidReplicationFactor,
    NotController,
    PolicyViolation,
    RequestTimedOut,
    TopicAlreadyExists,
)
from raftlog.broker import metadata_view
from raftlog.broker.handlers import metadata
from raftlog.broker.unreachable_brokers import UnreachableBrokers
from raftlog.metadata.controller_api import CreateTopics, CreateTopicsReply, ErrorReply, TopicCreation
from raftlog.metadata.image import PartitionState
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.writer import PreEncoded
from tests.broker.handlers.one_broker import (
    HandlerSetup,
    broker_state,
    cluster_image,
    topic_state,
    versions,
    with_topics,
)

API_KEY = 3
VERSIONS = versions(API_KEY)


def names(version: int, *wanted: str) -> tuple[Any, ...]:
    make = request_builders(API_KEY, version)
    return tuple(make.MetadataRequestTopic(name=each) for each in wanted)


def by_name(response: Any) -> dict[str, Any]:
    return {topic.name: topic for topic in response.topics}


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_returns_brokers_topics_and_leaders(version: int) -> None:
    """The same image in each version's words (Metadata 0-13)."""
    response = await HandlerSetup().call(API_KEY, version, topics=names(version, "b"))
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, "host1", 9092),
        (2, "host2", 9092),
    ]
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, "b")
    led, leaderless, half = topic.partitions
    assert (led.error_code, led.leader_id, led.replica_nodes, led.isr_nodes) == (0, 2, (1, 2), (1, 2))
    assert (leaderless.error_code, leaderless.leader_id) == (5, -1)
    assert half.leader_id == 1
    if version >= 1:
        assert response.controller_id == 2
        assert [each.rack for each in response.brokers] == ["r1", "r2"]
    if version >= 2:
        assert response.cluster_id == "the-cluster"
    if version >= 5:
        assert (led.offline_replicas, half.offline_replicas) == ((), (3,))
    if version >= 7:
        assert [each.leader_epoch for each in topic.partitions] == [1, 5, 7]
    if version >= 10:
        assert topic.topic_id == UUID(int=1002)
    if version >= 8:
        assert topic.topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_leader_that_was_lost_is_not_named(version: int) -> None:
    """A client must not go on trusting a leader that is probably dead: LEADER_NOT_AVAILABLE is retriable."""
    cluster = HandlerSetup()
    absences = cluster.broker.absences = UnreachableBrokers(lambda: 0.0, unnamed_s=3.0)
    absences.lost(2)
    everything = None if version else ()
    response = await cluster.call(API_KEY, version, topics=everything)
    led, _, half = by_name(response)["b"].partitions
    assert (led.error_code, led.leader_id) == (5, -1)
    assert half.leader_id == 1
    absences.found(2)
    response = await cluster.call(API_KEY, version, topics=everything)
    assert by_name(response)["b"].partitions[0].leader_id == 2


async def test_an_answer_waits_for_the_successor_of_a_lost_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for no other: after an answer without a leader, librdkafka asks again only after a second."""
    turns: list[float] = []
    cluster = HandlerSetup()
    absences = cluster.broker.absences = UnreachableBrokers(lambda: 0.0, unnamed_s=3.0)
    absences.lost(2)
    before = cluster.image
    fenced = msgspec.structs.replace(before, brokers={**before.brokers, 2: broker_state(2, fenced=True)})
    after = with_topics(fenced, topic_state("b", 2, PartitionState((1, 2), (1,), 1, 2)))

    async def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 5:
            cluster.image = after
            absences.on_metadata(before, after)

    monkeypatch.setattr(metadata.asyncio, "sleep", sleep)
    await cluster.call(API_KEY, 9, topics=names(9, "a"))
    assert len(turns) == 1
    response = await cluster.call(API_KEY, 9, topics=names(9, "b"))
    assert response.topics[0].partitions[0].leader_id == 1
    assert len(turns) == 5


async def test_a_broker_fenced_moments_ago_is_listed_still() -> None:
    """librdkafka forgets an unlisted broker together with the partitions that the same answer moves elsewhere."""
    cluster = HandlerSetup()
    absences = cluster.broker.absences = UnreachableBrokers(lambda: 0.0, unnamed_s=3.0)
    before = cluster.image
    cluster.image = msgspec.structs.replace(
        before, brokers={**before.brokers, 2: broker_state(2, fenced=True)}, controller_id=2
    )
    absences.on_metadata(before, cluster.image)
    response = await cluster.call(API_KEY, 9, topics=names(9, "a"))
    assert [each.node_id for each in response.brokers] == [1, 2]
    assert response.controller_id == 1
    assert response.topics[0].partitions[0].offline_replicas == (2, 3)
    everything = await cluster.call(API_KEY, 9, topics=None)
    assert [each.node_id for each in everything.brokers] == [1, 2]


async def test_an_answer_about_no_topic_lists_live_brokers_only() -> None:
    """Admin clients send it, and then ask each listed broker for its groups: a dead broker would fail the list."""
    cluster = HandlerSetup()
    absences = cluster.broker.absences = UnreachableBrokers(lambda: 0.0, unnamed_s=3.0)
    before = cluster.image
    cluster.image = msgspec.structs.replace(
        before, brokers={**before.brokers, 2: broker_state(2, fenced=True)}
    )
    absences.on_metadata(before, cluster.image)
    response = await cluster.call(API_KEY, 9, topics=())
    assert [each.node_id for each in response.brokers] == [1]


async def test_version_0_leaves_dead_replicas_out() -> None:
    """It has no field for them; REPLICA_NOT_AVAILABLE says that some are missing."""
    response = await HandlerSetup().call(API_KEY, 0, topics=names(0, "b"))
    half = response.topics[0].partitions[2]
    assert (half.error_code, half.leader_id, half.replica_nodes) == (9, 1, (1,))


@pytest.mark.parametrize("version", VERSIONS)
async def test_empty_and_null_lists_of_topics(version: int) -> None:
    """Version 0 means all topics by an empty list; from version 1 on null means all and empty means none."""
    cluster = HandlerSetup()
    empty = await cluster.call(API_KEY, version, topics=())
    assert set(by_name(empty)) == ({"a", "b"} if version == 0 else set())
    if version >= 1:
        everything = await cluster.call(API_KEY, version, topics=None)
        assert set(by_name(everything)) == {"a", "b"}
    assert cluster.asked == []


async def test_an_unreachable_controller_is_not_named() -> None:
    """Clients use this broker, which forwards: a client that was sent to a dead broker waits for it in vain."""
    cluster = HandlerSetup()
    assert (await cluster.call(API_KEY, 9, topics=[])).controller_id == 2
    cluster.broker.in_touch = lambda controller_id: controller_id != 2
    assert (await cluster.call(API_KEY, 9, topics=[])).controller_id == 1


async def test_a_fenced_broker_names_another_one_for_admin_requests() -> None:
    """It is in no list of brokers, and its clients need a broker from a list."""
    image = cluster_image()
    fenced = {**image.brokers, 1: broker_state(1, fenced=True)}
    cluster = HandlerSetup(msgspec.structs.replace(image, brokers=fenced))
    cluster.broker.in_touch = lambda controller_id: False
    assert (await cluster.call(API_KEY, 9, topics=[])).controller_id == 2


async def test_clients_hear_the_listener_they_came_by() -> None:
    """Endpoints are from the client's listener; a leader without that listener is LISTENER_NOT_FOUND (v6+)."""
    image = cluster_image()
    inside = broker_state(2, endpoints=broker_state(2).endpoints[:1])
    cluster = HandlerSetup(msgspec.structs.replace(image, brokers={**image.brokers, 2: inside}))
    response = await cluster.call(API_KEY, 9, listener="EXTERNAL", topics=names(9, "b"))
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(1, "public1", 19092)]
    assert [each.error_code for each in response.topics[0].partitions] == [72, 5, 0]
    assert response.controller_id == 1
    old = await cluster.call(API_KEY, 5, listener="EXTERNAL", topics=names(5, "b"))
    assert [each.error_code for each in old.topics[0].partitions] == [5, 5, 0]


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_are_found_by_id(version: int) -> None:
    """From version 12 on a request may name a topic by id; an unknown topic has no name (KIP-516)."""
    make = request_builders(API_KEY, version)
    ids = [UUID(int=1001), UUID(int=5)]
    topics = tuple(make.MetadataRequestTopic(topic_id=each, name=None) for each in ids)
    found, unknown = (await HandlerSetup().call(API_KEY, version, topics=topics)).topics
    assert (found.error_code, found.name, found.topic_id) == (0, "a", ids[0])
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (100, None, ids[1])


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_before_version_12(version: int) -> None:
    """Versions 10 and 11 return ids but do not accept them."""
    make = request_builders(API_KEY, version)
    asked = (make.MetadataRequestTopic(topic_id=UUID(int=1001), name=None),)
    (topic,) = (await HandlerSetup().call(API_KEY, version, topics=asked)).topics
    assert topic.error_code == 42


async def test_a_topic_named_twice_is_returned_once() -> None:
    """Names are a set."""
    response = await HandlerSetup().call(API_KEY, 9, topics=names(9, "a", "a"))
    assert [each.name for each in response.topics] == ["a"]


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "a/b", "ü", "x" * 250])
async def test_illegal_names_are_invalid_and_never_created(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION for what no topic can be called."""
    cluster = HandlerSetup()
    (topic,) = (await cluster.call(API_KEY, 9, topics=names(9, name), allow_auto_topic_creation=True)).topics
    assert (topic.error_code, topic.name) == (17, name)
    assert cluster.asked == []


def creating(cluster: HandlerSetup, codes: dict[str, int]) -> None:
    """Answer CreateTopics, and publish what was created with the next image."""

    def answer(request: CreateTopics) -> CreateTopicsReply:
        results = []
        for number, topic in enumerate(request.topics):
            code = codes.get(topic.name, 0)
            results.append(TopicCreation(topic.name, code))
            if code == 0:
                cluster.image = with_topics(cluster.image, topic_state(topic.name, 100 + number))
        return CreateTopicsReply(tuple(results))

    cluster.answers[CreateTopics] = answer


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_topic_is_created_and_returned_at_once(version: int) -> None:
    """auto.create.topics.enable: with the controller's default numbers, known to this broker when the answer leaves."""
    cluster = HandlerSetup()
    creating(cluster, {})
    response = await cluster.call(
        API_KEY, version, topics=names(version, "new", "a"), allow_auto_topic_creation=True
    )
    assert by_name(response)["new"].error_code == 0
    assert by_name(response)["new"].partitions[0].leader_id == 1
    (request,) = cluster.asked
    assert [(each.name, each.num_partitions, each.replication_factor) for each in request.topics] == [
        ("new", -1, -1)
    ]


@pytest.mark.parametrize("version", range(4, 14))
async def test_a_client_can_refuse_creation(version: int) -> None:
    """allow_auto_topic_creation=false (KIP-204): UNKNOWN_TOPIC_OR_PARTITION."""
    cluster = HandlerSetup()
    response = await cluster.call(
        API_KEY, version, topics=names(version, "new"), allow_auto_topic_creation=False
    )
    assert (response.topics[0].error_code, cluster.asked) == (3, [])


async def test_the_broker_can_refuse_creation() -> None:
    """auto.create.topics.enable=false: UNKNOWN_TOPIC_OR_PARTITION."""
    cluster = HandlerSetup(auto_create_topics_enable=False)
    response = await cluster.call(API_KEY, 9, topics=names(9, "new"), allow_auto_topic_creation=True)
    assert (response.topics[0].error_code, cluster.asked) == (3, [])


@pytest.mark.parametrize(
    "code,told",
    [
        (InvalidReplicationFactor.code, 38),
        (PolicyViolation.code, 44),
        (NotController.code, 5),
        (TopicAlreadyExists.code, 3),
    ],
)
async def test_refusals_of_the_controller_are_returned(code: int, told: int) -> None:
    """An error that asking again cannot change is sent as it is; clients retry all others. A race won by others shows
    up soon.
    """
    cluster = HandlerSetup()
    creating(cluster, {"new": code})
    response = await cluster.call(API_KEY, 9, topics=names(9, "new"), allow_auto_topic_creation=True)
    assert response.topics[0].error_code == told


@pytest.mark.parametrize("failure", [RequestTimedOut(), ErrorReply(41), NotController()])
async def test_without_a_majority_creation_is_retriable(failure: Any) -> None:
    """LEADER_NOT_AVAILABLE for the missing topic, and the others are returned as usual."""
    cluster = HandlerSetup()
    cluster.answers[CreateTopics] = failure
    response = await cluster.call(API_KEY, 9, topics=names(9, "new", "a"), allow_auto_topic_creation=True)
    assert {name: topic.error_code for name, topic in by_name(response).items()} == {"new": 5, "a": 0}


async def test_the_offsets_topic_is_created_with_its_own_settings() -> None:
    """offsets.topic.num.partitions, compacted, a replica on every node of three though one node is down (KIP-115)."""
    cluster = HandlerSetup()
    creating(cluster, {})
    response = await cluster.call(
        API_KEY, 9, topics=names(9, "__consumer_offsets"), allow_auto_topic_creation=True
    )
    assert response.topics[0].is_internal
    (wanted,) = cluster.asked[0].topics
    assert (wanted.num_partitions, wanted.replication_factor) == (50, 3)
    assert wanted.configs["cleanup.policy"] == "compact"


async def test_authorized_operations_are_returned_on_request() -> None:
    """Versions 8 to 10 for the cluster, 8 and up for topics (KIP-430): without ACLs, all of them."""
    response = await HandlerSetup().call(
        API_KEY,
        8,
        topics=names(8, "a"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert response.cluster_authorized_operations == 0b1111110100000
    assert response.topics[0].topic_authorized_operations == 0b110111111000


async def test_only_changed_topics_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics and brokers that newer images share stay bytes, so a large cluster costs what changed in it."""
    encoded: list[str] = []
    encode = metadata_view.encode_entity

    def count(entity: Any) -> PreEncoded:
        if hasattr(entity, "partitions"):
            encoded.append(entity.name)
        return encode(entity)

    monkeypatch.setattr(metadata_view, "encode_entity", count)
    cluster = HandlerSetup()
    first = await cluster.call(API_KEY, 9, topics=None)
    assert sorted(encoded) == ["a", "b"]
    assert await cluster.call(API_KEY, 9, topics=None) == first
    cluster.image = with_topics(cluster.image, topic_state("a", 7))
    assert by_name(await cluster.call(API_KEY, 10, topics=None))["a"].topic_id == UUID(int=1007)
    encoded.clear()
    await cluster.call(API_KEY, 9, topics=None)
    assert encoded == ["a"]
    cluster.image = msgspec.structs.replace(
        cluster.image, brokers={**cluster.image.brokers, 1: broker_state(1, fenced=True)}
    )
    response = await cluster.call(API_KEY, 9, topics=None)
    assert by_name(response)["a"].partitions[0].error_code == 5
    assert response.controller_id == 2


async def test_deleted_topics_are_not_kept_for_ever() -> None:
    """The encoded parts stay within twice the topics there are."""
    cluster = HandlerSetup()
    for number in range(400):
        cluster.image = cluster_image(brokers=cluster.image.brokers)
        cluster.image = with_topics(cluster.image, topic_state(f"t{number}", number))
        await cluster.call(API_KEY, 9, topics=None)
    (view,) = cluster.broker.metadata_views._views.values()
    assert len(view._topics) <= 110


async def test_deleted_topics_are_dropped_from_all_views() -> None:
    """A request in one version also drops what the views of other versions keep."""
    cluster = HandlerSetup()
    before = cluster.image
    cluster.image = with_topics(before, *(topic_state(f"t{number}", number) for number in range(400)))
    await cluster.call(API_KEY, 9, topics=None)
    await cluster.call(API_KEY, 10, topics=None)
    cluster.image = before
    await cluster.call(API_KEY, 9, topics=names(9, "a"))
    assert max(len(view._topics) for view in cluster.broker.metadata_views._views.values()) <= 110
