"""Creating, deleting, growing topics."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import NotController, RequestTimedOut
from raftlog.broker.handlers.create_topics import _TopicConfigs
from raftlog.broker.handlers.shared.config_resources import CONFIGS_MAX
from raftlog.metadata.controller_api import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    ErrorReply,
    NewPartitions,
    NewTopic,
    TopicCreation,
    TopicRef,
    TopicResult,
    TopicResults,
)
from raftlog.metadata.image import PartitionState
from raftlog.protocol.message_builders import request_builders, response_builders
from tests.broker.fakes import FakePartitionServer
from tests.broker.handlers.one_broker import HandlerSetup, topic_state, versions, with_topics

CREATE, DELETE, GROW = 19, 20, 37
FAILURES = [RequestTimedOut("no majority"), ErrorReply(7, "no majority")]


def creatable(version: int, name: str, **fields: Any) -> Any:
    make = request_builders(CREATE, version)
    fields.setdefault("num_partitions", 2)
    fields.setdefault("replication_factor", 1)
    return make.CreatableTopic(name=name, **fields)


def creating(cluster: HandlerSetup, *refused: TopicCreation) -> None:
    def answer(request: CreateTopics) -> CreateTopicsReply:
        codes = {each.name: each for each in refused}
        results = []
        for number, topic in enumerate(request.topics):
            topic_id = UUID(int=1050 + number)
            results.append(codes.get(topic.name) or TopicCreation(topic.name, 0, None, topic_id, 2, 1))
            if not request.validate_only and topic.name not in codes:
                cluster.image = with_topics(cluster.image, topic_state(topic.name, 50 + number))
        return CreateTopicsReply(tuple(results))

    cluster.answers[CreateTopics] = answer


@pytest.mark.parametrize("version", versions(CREATE))
async def test_topics_are_created_each_on_its_own(version: int) -> None:
    """An error for one topic does not affect the others; from version 5 on the response has numbers and configs
    (KIP-525).
    """
    cluster = HandlerSetup()
    creating(cluster, TopicCreation("bad", 17, "why"))
    make = request_builders(CREATE, version)
    configs = (make.CreatableTopicConfig(name="retention.ms", value="1000"),)
    response = await cluster.call(
        CREATE,
        version,
        topics=(creatable(version, "new", configs=configs), creatable(version, "bad")),
        timeout=5000,
    )
    results = {each.name: each for each in response.topics}
    assert (results["new"].error_code, results["bad"].error_code, results["bad"].error_message) == (
        0,
        17,
        "why",
    )
    assert cluster.asked[0].topics[0] == NewTopic("new", 2, 1, {}, {"retention.ms": "1000"})
    if version >= 5:
        assert (results["new"].num_partitions, results["new"].replication_factor) == (2, 1)
        told = {each.name: each for each in results["new"].configs}
        assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", 1)
        assert (told["segment.bytes"].value, told["segment.bytes"].config_source) == ("1073741824", 5)
        assert len(told) >= 35
    if version >= 7:
        assert results["new"].topic_id == UUID(int=1050)


@pytest.mark.parametrize("version", [2, 3, 4, 7])
async def test_numbers_can_be_left_to_the_broker(version: int) -> None:
    """-1 (KIP-464), in older versions too: KafkaJS has no newer version, and Apache Kafka does not check it."""
    cluster = HandlerSetup()
    creating(cluster)
    topics = (creatable(version, "new", num_partitions=-1, replication_factor=-1),)
    response = await cluster.call(CREATE, version, topics=topics)
    assert response.topics[0].error_code == 0
    assert cluster.asked[0].topics == (NewTopic("new"),)


async def test_replicas_can_be_assigned_by_hand() -> None:
    """Assignments go to the controller as they are; numbers beside them are refused."""
    cluster = HandlerSetup()
    creating(cluster)
    make = request_builders(CREATE, 7)
    assignments = tuple(
        make.CreatableReplicaAssignment(partition_index=each, broker_ids=(each + 1, 2)) for each in (0, 1)
    )
    by_hand = {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    topics = (creatable(7, "new", **by_hand), creatable(7, "both", assignments=assignments))
    response = await cluster.call(CREATE, 7, topics=topics)
    assert {each.name: each.error_code for each in response.topics} == {"new": 0, "both": 42}
    assert cluster.asked[0].topics == (NewTopic("new", -1, -1, {0: (1, 2), 1: (2, 2)}),)


MALFORMED = {
    "twice": lambda make: (creatable(7, "x"), creatable(7, "x")),
    "partition assigned twice": lambda make: (
        creatable(
            7,
            "x",
            num_partitions=-1,
            replication_factor=-1,
            assignments=(make.CreatableReplicaAssignment(broker_ids=(1,)),) * 2,
        ),
    ),
    "config twice": lambda make: (
        creatable(7, "x", configs=(make.CreatableTopicConfig(name="retention.ms", value="1"),) * 2),
    ),
    "config without value": lambda make: (
        creatable(7, "x", configs=(make.CreatableTopicConfig(name="retention.ms", value=None),)),
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_topics_never_reach_the_controller(name: str) -> None:
    """One result for each name, with a message."""
    cluster = HandlerSetup()
    response = await cluster.call(CREATE, 7, topics=MALFORMED[name](request_builders(CREATE, 7)))
    (result,) = response.topics
    assert result.error_code in (39, 40, 42) and result.error_message
    assert (result.error_code == 40) == (
        name == "config without value"
    )  # INVALID_CONFIG, as Kafka's controller
    assert cluster.asked == []


async def test_a_topic_has_no_more_configs_than_the_controller_checks_in_one_turn() -> None:
    """INVALID_REQUEST: each unknown name among them is compared with the known names."""
    cluster = HandlerSetup()
    creating(cluster)
    make = request_builders(CREATE, 7)

    async def created(count: int) -> int:
        configs = tuple(make.CreatableTopicConfig(name=f"a{each}", value="1") for each in range(count))
        response = await cluster.call(CREATE, 7, topics=(creatable(7, "new", configs=configs),))
        return int(response.topics[0].error_code)

    assert await created(CONFIGS_MAX + 1) == 42
    assert not cluster.asked
    assert await created(CONFIGS_MAX) == 0


async def test_validate_only_creates_nothing() -> None:
    """The controller gets the flag, and the response does not wait."""
    cluster = HandlerSetup()
    creating(cluster)
    response = await cluster.call(CREATE, 7, topics=(creatable(7, "new"),), validate_only=True)
    assert response.topics[0].error_code == 0
    assert cluster.asked[0].validate_only and "new" not in cluster.image.topics


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_request_fails_each_topic(failure: Any) -> None:
    """Without a majority every topic has the retriable error, and its message."""
    cluster = HandlerSetup()
    cluster.answers = {CreateTopics: failure, DeleteTopics: failure, CreatePartitions: failure}
    created = await cluster.call(CREATE, 7, topics=(creatable(7, "x"), creatable(7, "y")))
    assert [(each.error_code, each.error_message) for each in created.topics] == [(7, "no majority")] * 2
    deleted = await cluster.call(DELETE, 5, topic_names=("a", "b"))
    assert [each.error_code for each in deleted.responses] == [7, 7]
    make = request_builders(GROW, 3)
    grown = await cluster.call(GROW, 3, topics=(make.CreatePartitionsTopic(name="a", count=2),))
    assert [each.error_code for each in grown.results] == [7]


async def test_messages_are_cut_to_what_the_wire_can_carry() -> None:
    """A legacy string has at most 32,767 bytes, and messages quote what clients sent."""
    cluster = HandlerSetup()
    creating(cluster, TopicCreation("bad", 17, "x" * 100_000))
    response = await cluster.call(CREATE, 2, topics=(creatable(2, "bad"),))
    assert len(response.topics[0].error_message) == 1000


async def test_a_created_topic_is_known_when_the_answer_leaves() -> None:
    """The response waits until this broker's image shows the topic, so the next request finds it."""
    cluster = HandlerSetup()
    creating(cluster)
    loop_image = cluster.image
    await cluster.call(CREATE, 7, topics=(creatable(7, "new"),))
    assert "new" in cluster.image.topics and "new" not in loop_image.topics


@pytest.mark.parametrize("api", [CREATE, GROW])
async def test_the_partitions_that_a_broker_leads_are_served_when_its_answer_leaves(api: int) -> None:
    """A topic of 200 partitions takes a moment to be made: its producers were refused right after the answer."""
    cluster = HandlerSetup()
    creating(cluster)
    growing(cluster)
    made = cluster.broker.leaderships_made = asyncio.Event()
    make = request_builders(GROW, 3)
    topics = (
        creatable(7, "new")
        if api == CREATE
        else make.CreatePartitionsTopic(name="a", count=3, assignments=None),
    )
    answer = asyncio.ensure_future(cluster.call(api, 7 if api == CREATE else 3, topics=topics))
    for _ in range(20):
        await asyncio.sleep(0)
    assert cluster.asked and not answer.done()
    made.set()
    results = (await answer).topics if api == CREATE else (await answer).results
    assert [each.error_code for each in results] == [0]


async def test_an_answer_that_created_nothing_waits_for_no_leader() -> None:
    """Others' partitions may be under way for long."""
    cluster = HandlerSetup()
    cluster.broker.leaderships_made = asyncio.Event()
    creating(cluster, TopicCreation("bad", 17, "no"))
    async with asyncio.timeout(0.5):
        await cluster.call(CREATE, 7, topics=(creatable(7, "bad"),))
        await cluster.call(CREATE, 7, topics=(creatable(7, "new"),), validate_only=True)


def deleting(cluster: HandlerSetup) -> None:
    def answer(request: DeleteTopics) -> TopicResults:
        results = []
        for each in request.topics:
            name = each.name or cluster.image.topic_names.get(each.topic_id)
            topic = cluster.image.topics.get(name)
            if topic is None:
                results.append(TopicResult(each.name, each.topic_id, 3 if each.name else 100, "unknown"))
                continue
            results.append(TopicResult(topic.name, topic.topic_id))
            topics = {key: value for key, value in cluster.image.topics.items() if value is not topic}
            ids = {key: value for key, value in cluster.image.topic_names.items() if value != topic.name}
            cluster.image = msgspec.structs.replace(cluster.image, topics=topics, topic_names=ids)
        return TopicResults(tuple(results))

    cluster.answers[DeleteTopics] = answer


@pytest.mark.parametrize("version", versions(DELETE))
async def test_topics_are_deleted_by_name(version: int) -> None:
    """Each on its own; messages from version 5 on."""
    cluster = HandlerSetup()
    deleting(cluster)
    make = request_builders(DELETE, version)
    if version >= 6:
        asked = {"topics": (make.DeleteTopicState(name="a"), make.DeleteTopicState(name="nope"))}
    else:
        asked = {"topic_names": ("a", "nope")}
    response = await cluster.call(DELETE, version, **asked)
    assert [(each.name, each.error_code) for each in response.responses] == [("a", 0), ("nope", 3)]
    assert cluster.asked[0].topics == (TopicRef("a"), TopicRef("nope"))
    if version >= 5:
        assert response.responses[1].error_message == "unknown"


async def test_topics_are_deleted_by_id() -> None:
    """From version 6 on (KIP-516); the response has name and id."""
    cluster = HandlerSetup()
    deleting(cluster)
    make = request_builders(DELETE, 6)
    ids = (UUID(int=1002), UUID(int=9))
    response = await cluster.call(
        DELETE, 6, topics=tuple(make.DeleteTopicState(topic_id=each) for each in ids)
    )
    assert [(each.name, each.topic_id, each.error_code) for each in response.responses] == [
        ("b", ids[0], 0),
        (None, ids[1], 100),
    ]


async def test_malformed_deletions_never_reach_the_controller() -> None:
    """Neither name nor id, both, or the same one twice."""
    cluster = HandlerSetup()
    make = request_builders(DELETE, 6)
    nothing = make.DeleteTopicState(name=None, topic_id=None)
    both = make.DeleteTopicState(name="a", topic_id=UUID(int=1))
    twice = make.DeleteTopicState(name="b")
    response = await cluster.call(DELETE, 6, topics=(nothing, both, twice, twice))
    assert [(each.name, each.error_code) for each in response.responses] == [(None, 42), ("a", 42), ("b", 42)]
    assert cluster.asked == []


@pytest.mark.parametrize("version,code", [(1, 42), (2, 42), (3, 73), (5, 73)])
async def test_deletion_can_be_disabled(version: int, code: int) -> None:
    """delete.topic.enable=false; older clients do not know TOPIC_DELETION_DISABLED (KIP-322)."""
    response = await HandlerSetup(delete_topic_enable=False).call(DELETE, version, topic_names=("a",))
    assert response.responses[0].error_code == code


def growing(cluster: HandlerSetup, *refused: TopicResult) -> None:
    def answer(request: CreatePartitions) -> TopicResults:
        codes = {each.name: each for each in refused}
        for each in request.topics:
            if each.name not in codes and not request.validate_only:
                partitions = (PartitionState((1,), (1,), 1),) * each.total
                cluster.image = with_topics(cluster.image, topic_state(each.name, 1, *partitions))
        return TopicResults(tuple(codes.get(each.name) or TopicResult(each.name) for each in request.topics))

    cluster.answers[CreatePartitions] = answer


@pytest.mark.parametrize("version", versions(GROW))
async def test_topics_get_more_partitions(version: int) -> None:
    """To a total, with or without assignments of the new partitions; each topic on its own."""
    cluster = HandlerSetup()
    growing(cluster, TopicResult("b", None, 37, "fewer than now"))
    make = request_builders(GROW, version)
    assignment = make.CreatePartitionsAssignment(broker_ids=(2, 1))
    response = await cluster.call(
        GROW,
        version,
        topics=(
            make.CreatePartitionsTopic(name="a", count=2, assignments=(assignment,)),
            make.CreatePartitionsTopic(name="b", count=1, assignments=None),
        ),
        timeout=100,
    )
    assert [(each.name, each.error_code, each.error_message) for each in response.results] == [
        ("a", 0, None),
        ("b", 37, "fewer than now"),
    ]
    assert cluster.asked[0].topics == (NewPartitions("a", 2, ((2, 1),)), NewPartitions("b", 1))
    assert len(cluster.image.topics["a"].partitions) == 2


async def test_a_topic_grows_once_in_a_request() -> None:
    """Named twice it is refused, the others are not."""
    cluster = HandlerSetup()
    growing(cluster)
    make = request_builders(GROW, 3)
    a, b = (make.CreatePartitionsTopic(name=name, count=5, assignments=None) for name in "ab")
    response = await cluster.call(GROW, 3, topics=(a, a, b), validate_only=True)
    assert {each.name: each.error_code for each in response.results} == {"a": 42, "b": 0}
    assert cluster.asked[0].validate_only and len(cluster.asked[0].topics) == 1


async def test_not_controller_reaches_the_client() -> None:
    """It is retriable: clients look for the controller again."""
    cluster = HandlerSetup()
    cluster.answers[CreateTopics] = NotController()
    response = await cluster.call(CREATE, 7, topics=(creatable(7, "x"),))
    assert response.topics[0].error_code == 41


async def test_equal_configs_of_created_topics_are_one_object() -> None:
    """The configs of five thousand topics, 37 each, took sixty megabytes until the response was encoded."""
    configs_of = _TopicConfigs(FakePartitionServer().broker, response_builders(CREATE, 7))
    usual, other = configs_of({}), configs_of({"retention.ms": "5000"})
    assert configs_of({}) is usual
    differing = [
        (one.name, another.value) for one, another in zip(usual, other, strict=True) if one is not another
    ]
    assert differing == [("retention.ms", "5000")]
