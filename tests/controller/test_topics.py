"""Creating, deleting and growing topics, with the codes that Kafka answers."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.base.types import INTERNAL_TOPICS, NAME_MAX_CHARS
from raftlog.controller.topics import random_uuid
from raftlog.metadata.controller_api import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicRef,
)
from tests.controller.controller_cluster import ControllerCluster


def codes(controllers: ControllerCluster, *topics: NewTopic) -> list[int]:
    return [each.error_code for each in controllers.ask(CreateTopics(topics)).results]


def test_created_topic_has_all_it_was_asked_for(controllers: ControllerCluster) -> None:
    """Partitions, replicas on distinct brokers, everyone in sync, the first replica leading, configs set."""
    created = controllers.create("t", 6, 3, retention_ms="1000")
    topic = controllers.image.topics["t"]
    assert (created.error_code, created.topic_id) == (0, topic.topic_id)
    assert (created.num_partitions, created.replication_factor) == (6, 3)
    assert len(topic.partitions) == 6
    for state in topic.partitions:
        assert sorted(state.replicas) == [1, 2, 3]
        assert state.isr == state.replicas
        assert state.leader == state.replicas[0]
    assert controllers.image.config("topic", "t") == {"retention.ms": "1000"}


def test_numbers_left_out_are_the_nodes_defaults() -> None:
    """-1 means num.partitions and default.replication.factor."""
    controllers = ControllerCluster(num_partitions=4, default_replication_factor=2)
    controllers.start(1, 2, 3)
    created = controllers.create("t", -1, -1)
    assert (created.num_partitions, created.replication_factor) == (4, 2)


def test_validate_only_writes_nothing(controllers: ControllerCluster) -> None:
    """The answer is that of creating, the cluster stays as it was."""
    batches = len(controllers.journal)
    (result,) = controllers.ask(CreateTopics((NewTopic("t", 2, 3),), validate_only=True)).results
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert len(controllers.journal) == batches


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * (NAME_MAX_CHARS + 1), "a b", "a/b", "ä", "a\n", "topic:1"]
)
def test_illegal_names_are_refused_with_the_rule(controllers: ControllerCluster, name: str) -> None:
    """A topic's name becomes a folder's name; the message says what is wrong."""
    (result,) = controllers.ask(CreateTopics((NewTopic(name, 1, 1),))).results
    assert result.error_code == InvalidTopic.code
    assert "topic name" in result.error_message


@pytest.mark.parametrize("name", ["a", "a" * NAME_MAX_CHARS, "a.b_c-D9", "...", "__x"])
def test_legal_names_are_taken(controllers: ControllerCluster, name: str) -> None:
    """Letters, digits, dot, underscore and dash, up to 249."""
    assert codes(controllers, NewTopic(name, 1, 1)) == [0]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("old", 1, 1), TopicAlreadyExists),
        (NewTopic("t", 0, 1), InvalidPartitions),
        (NewTopic("t", -2, 1), InvalidPartitions),
        (NewTopic("t", 1, 0), InvalidReplicationFactor),
        (NewTopic("t", 1, 4), InvalidReplicationFactor),
        (NewTopic("t", 10_001, 1), PolicyViolation),
        (NewTopic("t", 1, 1, configs={"retention.ms": "soon"}), InvalidConfig),
        (NewTopic("t", 1, 1, configs={"no.such": "1"}), InvalidConfig),
        (NewTopic("t", 1, 1, configs={"cleanup.policy": "shred"}), InvalidConfig),
        (NewTopic("t", 1, -1, assignments={0: (1,)}), InvalidRequest),
        (NewTopic("t", -1, 1, assignments={0: (1,)}), InvalidRequest),
        (NewTopic("t", assignments={1: (1,)}), InvalidReplicaAssignment),
        (NewTopic("t", assignments={0: ()}), InvalidReplicaAssignment),
        (NewTopic("t", assignments={0: (1, 1)}), InvalidReplicaAssignment),
        (NewTopic("t", assignments={0: (1, 9)}), InvalidReplicaAssignment),
        (NewTopic("t", assignments={0: (1, 2), 1: (1,)}), InvalidReplicaAssignment),
    ],
)
def test_impossible_topics_are_refused(
    controllers: ControllerCluster, topic: NewTopic, error: type[KafkaError]
) -> None:
    """Each with its own code, and the topics beside it in the request are created."""
    controllers.create("old")
    before = controllers.image
    good = NewTopic("good", 1, 1)
    assert codes(controllers, topic, good) == [error.code, 0]
    assert controllers.image.topics.keys() == before.topics.keys() | {"good"}


@pytest.mark.parametrize(("existing", "name"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_a_name_that_metrics_could_not_distinguish_is_refused(
    controllers: ControllerCluster, existing: str, name: str
) -> None:
    """INVALID_TOPIC_EXCEPTION, as Kafka's Topic.hasCollision; once the other is gone the name is free."""
    controllers.create(existing)
    (result,) = controllers.ask(CreateTopics((NewTopic(name, 1, 1),))).results
    assert (result.error_code, existing in result.error_message) == (InvalidTopic.code, True)
    assert codes(controllers, NewTopic(existing, 1, 1)) == [TopicAlreadyExists.code]
    assert codes(controllers, NewTopic("a-b", 1, 1), NewTopic("a.bc", 1, 1)) == [0, 0]
    controllers.ask(DeleteTopics((TopicRef(name=existing),)))
    assert codes(controllers, NewTopic(name, 1, 1)) == [0]


def test_a_topic_config_without_effect_is_warned_about_when_it_is_set(controllers: ControllerCluster) -> None:
    """At creation and later; a default is in force, so it is none."""
    with capture_logs() as logs:
        given = {"preallocate": "true", "message.downconversion.enable": "true", "compression.type": "zstd"}
        assert codes(controllers, NewTopic("t", 1, 1, configs=given)) == [0]
        for value in ("false", "true"):
            controllers.ask(
                AlterConfigs((ConfigAlteration("topic", "t", (ConfigOp("preallocate", value),)),))
            )
    warnings = [each for each in logs if each["log_level"] == "warning"]
    assert [(each["event"], each["key"], each["topic"]) for each in warnings] == [
        ("config_without_effect", "preallocate", "t")
    ] * 2
    assert "without effect" in warnings[0]["reason"]


def test_topic_named_twice_is_created_not_at_all(controllers: ControllerCluster) -> None:
    """Two entries for one name contradict each other."""
    (result,) = controllers.ask(CreateTopics((NewTopic("t", 1, 1), NewTopic("t", 2, 1)))).results
    assert result.error_code == InvalidRequest.code
    assert "t" not in controllers.image.topics


def test_internal_topic_may_be_compacted(controllers: ControllerCluster) -> None:
    """The offsets topic carries cleanup.policy=compact as Kafka's does."""
    assert codes(
        controllers, NewTopic("__consumer_offsets", 1, 1, configs={"cleanup.policy": "compact"})
    ) == [0]


def test_request_creates_at_most_one_batch_of_partitions(controllers: ControllerCluster) -> None:
    """10,000 partitions in one request and no more; what fits is created."""
    assert codes(controllers, NewTopic("a", 6_000, 1), NewTopic("b", 6_000, 1), NewTopic("c", 4_000, 1)) == [
        0,
        PolicyViolation.code,
        0,
    ]


def test_null_config_is_no_config(controllers: ControllerCluster) -> None:
    """A config named without value stays at its default."""
    assert codes(controllers, NewTopic("t", 1, 1, configs={"retention.ms": None})) == [0]
    assert controllers.image.config("topic", "t") == {}


def test_given_assignment_is_taken_as_it_is(controllers: ControllerCluster) -> None:
    """Replicas in the given order; an unavailable broker starts outside the isr and does not lead."""
    controllers.die(1)
    controllers.assign("t", (1, 2), (2, 3))
    assert controllers.partition("t", 0).replicas == (1, 2)
    assert (controllers.partition("t", 0).leader, controllers.partition("t", 0).isr) == (2, (2,))
    assert controllers.assign("u", (1,)).error_code == InvalidReplicaAssignment.code


def test_dead_broker_does_not_hinder_creation(controllers: ControllerCluster) -> None:
    """Three registered, one fenced, replication factor 3: created with two in sync."""
    controllers.die(2)
    assert controllers.create("t", 3, 3).error_code == 0
    for state in controllers.image.topics["t"].partitions:
        assert set(state.isr) == {1, 3}
        assert state.replicas[-1] == 2


def test_nothing_is_created_while_no_broker_is_in_service() -> None:
    """All fenced: there could be no leader."""
    controllers = ControllerCluster()
    controllers.elect(1)
    controllers.register(1)
    assert controllers.create("t").error_code == InvalidReplicationFactor.code


def test_deleting_by_name_and_by_id(controllers: ControllerCluster) -> None:
    """Each topic on its own; unknown names and ids have their own codes; a topic named twice stays."""
    controllers.create("a")
    controllers.create("b")
    b = controllers.image.topics["b"].topic_id
    refs = (
        TopicRef(name="a"),
        TopicRef(topic_id=b),
        TopicRef(name="b"),
        TopicRef(name="x"),
        TopicRef(topic_id=UUID(int=9)),
    )
    results = controllers.ask(DeleteTopics(refs)).results
    assert [each.error_code for each in results] == [
        0,
        InvalidRequest.code,
        InvalidRequest.code,
        UnknownTopicOrPartition.code,
        UnknownTopicId.code,
    ]
    assert controllers.image.topics.keys() == {"b"}
    (by_id,) = controllers.ask(DeleteTopics((TopicRef(topic_id=b),))).results
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (0, "b", b)
    assert controllers.image.topics == {}


def test_the_name_of_the_quorums_log_is_no_topics(controllers: ControllerCluster) -> None:
    """INVALID_REQUEST, as from Kafka, also where it is only validated."""
    assert codes(controllers, NewTopic("__cluster_metadata", 1, 1)) == [InvalidRequest.code]


def test_of_two_wrong_numbers_the_replication_factor_is_named(controllers: ControllerCluster) -> None:
    """The order is Kafka's."""
    assert codes(controllers, NewTopic("t", 0, 0)) == [InvalidReplicationFactor.code]


def test_topic_made_again_has_another_id(controllers: ControllerCluster) -> None:
    """So that the old topic's records are not taken for the new topic's."""
    first = controllers.create("a").topic_id
    controllers.ask(DeleteTopics((TopicRef(name="a"),)))
    assert controllers.create("a").topic_id != first


def test_deletion_can_be_forbidden() -> None:
    """delete.topic.enable=false refuses the whole request."""
    controllers = ControllerCluster(delete_topic_enable=False)
    controllers.start(1)
    controllers.create("a")
    assert controllers.ask(DeleteTopics((TopicRef(name="a"),))).error_code == TopicDeletionDisabled.code


def test_growing_adds_partitions_with_the_same_replication(controllers: ControllerCluster) -> None:
    """Old partitions stay as they were, new partitions are numbered on, evenly spread over the whole topic."""
    controllers.create("t", 2, 2)
    before = controllers.image.topics["t"].partitions
    (result,) = controllers.ask(CreatePartitions((NewPartitions("t", 6),))).results
    after = controllers.image.topics["t"].partitions
    assert (result.error_code, result.topic_id) == (0, controllers.image.topics["t"].topic_id)
    assert after[:2] == before
    assert [len(each.replicas) for each in after] == [2] * 6
    assert sorted(each.leader for each in after) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (NewPartitions("__consumer_offsets", 3), InvalidPartitions),
        (NewPartitions("__transaction_state", 3), InvalidPartitions),
        (NewPartitions("x", 3), UnknownTopicOrPartition),
        (NewPartitions("t", 2), InvalidPartitions),
        (NewPartitions("t", 1), InvalidPartitions),
        (NewPartitions("t", -1), InvalidPartitions),
        (NewPartitions("t", 20_000), PolicyViolation),
        (NewPartitions("t", 4, ((1, 2),)), InvalidReplicaAssignment),
        (NewPartitions("t", 3, ((1, 2, 3),)), InvalidReplicaAssignment),
        (NewPartitions("t", 3, ((1, 1),)), InvalidReplicaAssignment),
    ],
)
def test_impossible_growth_is_refused(
    controllers: ControllerCluster, wanted: NewPartitions, error: type[KafkaError]
) -> None:
    """Each with its own code, without effect."""
    for topic in ("t", *INTERNAL_TOPICS):
        controllers.create(topic, 2, 2)
    batches = len(controllers.journal)
    (result,) = controllers.ask(CreatePartitions((wanted,))).results
    assert result.error_code == error.code
    assert len(controllers.journal) == batches


def test_growth_may_be_only_validated_or_assigned(controllers: ControllerCluster) -> None:
    """validate_only writes no record; given assignments are taken."""
    controllers.create("t", 1, 2)
    wanted = (NewPartitions("t", 2, ((3, 1),)),)
    assert controllers.ask(CreatePartitions(wanted, validate_only=True)).results[0].error_code == 0
    assert len(controllers.image.topics["t"].partitions) == 1
    assert controllers.ask(CreatePartitions(wanted)).results[0].error_code == 0
    assert controllers.partition("t", 1).replicas == (3, 1)


def test_topic_ids_are_random_and_never_look_like_a_flag() -> None:
    """Version 4, and the Base64 form that tools print begins with no dash."""
    drawn = [random_uuid(Random(seed)) for seed in range(300)]
    assert len(set(drawn)) == 300
    assert {each.version for each in drawn} == {4}
    assert all(each.bytes[0] >> 2 != 62 for each in drawn)


def test_a_creation_that_is_asked_again_is_answered_again() -> None:
    """The controller died after its batch was replicated, before it answered; the next controller gets the same
    request.
    """
    controllers = ControllerCluster(controllers=2)
    controllers.start(1, 2, 3)
    controllers.commit_at_once = False
    request = CreateTopics((NewTopic("t", 4, 2, topic_id=UUID(int=77)),))
    assert controllers.submit(request) == []
    controllers.elect(2)
    controllers.commit()
    controllers.commit_at_once = True
    (again,) = controllers.ask(request).results
    assert (again.error_code, again.topic_id) == (0, UUID(int=77))
    assert (again.num_partitions, again.replication_factor) == (4, 2)
    assert controllers.image.topics["t"].topic_id == UUID(int=77)
    assert len(controllers.journal) == controllers.commit_index


def test_only_the_very_same_creation_is_answered_again(controllers: ControllerCluster) -> None:
    """Another request for that name finds it taken; the id of another topic cannot be chosen."""
    controllers.ask(CreateTopics((NewTopic("t", 1, 1, topic_id=UUID(int=77)),)))
    assert codes(controllers, NewTopic("t", 1, 1, topic_id=UUID(int=78))) == [TopicAlreadyExists.code]
    assert codes(controllers, NewTopic("t", 1, 1)) == [TopicAlreadyExists.code]
    assert codes(controllers, NewTopic("other", 1, 1, topic_id=UUID(int=77))) == [InvalidRequest.code]
