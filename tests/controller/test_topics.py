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


def codes(cluster: ControllerCluster, *topics: NewTopic) -> list[int]:
    return [each.error_code for each in cluster.ask(CreateTopics(topics)).results]


def test_created_topic_has_all_it_was_asked_for(cluster: ControllerCluster) -> None:
    """Partitions, replicas on distinct brokers, everyone in sync, the first replica leading, configs set."""
    created = cluster.create("t", 6, 3, retention_ms="1000")
    topic = cluster.image.topics["t"]
    assert (created.error_code, created.topic_id) == (0, topic.topic_id)
    assert (created.num_partitions, created.replication_factor) == (6, 3)
    assert len(topic.partitions) == 6
    for state in topic.partitions:
        assert sorted(state.replicas) == [1, 2, 3]
        assert state.isr == state.replicas
        assert state.leader == state.replicas[0]
    assert cluster.image.config("topic", "t") == {"retention.ms": "1000"}


def test_numbers_left_out_are_the_nodes_defaults() -> None:
    """-1 means num.partitions and default.replication.factor."""
    cluster = ControllerCluster(num_partitions=4, default_replication_factor=2)
    cluster.start(1, 2, 3)
    created = cluster.create("t", -1, -1)
    assert (created.num_partitions, created.replication_factor) == (4, 2)


def test_validate_only_writes_nothing(cluster: ControllerCluster) -> None:
    """The answer is that of creating, the cluster stays as it was."""
    batches = len(cluster.journal)
    (result,) = cluster.ask(CreateTopics((NewTopic("t", 2, 3),), validate_only=True)).results
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert len(cluster.journal) == batches


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * (NAME_MAX_CHARS + 1), "a b", "a/b", "ä", "a\n", "topic:1"]
)
def test_illegal_names_are_refused_with_the_rule(cluster: ControllerCluster, name: str) -> None:
    """A topic's name becomes a folder's name; the message says what is wrong."""
    (result,) = cluster.ask(CreateTopics((NewTopic(name, 1, 1),))).results
    assert result.error_code == InvalidTopic.code
    assert "topic name" in result.error_message


@pytest.mark.parametrize("name", ["a", "a" * NAME_MAX_CHARS, "a.b_c-D9", "...", "__x"])
def test_legal_names_are_taken(cluster: ControllerCluster, name: str) -> None:
    """Letters, digits, dot, underscore and dash, up to 249."""
    assert codes(cluster, NewTopic(name, 1, 1)) == [0]


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
    cluster: ControllerCluster, topic: NewTopic, error: type[KafkaError]
) -> None:
    """Each with its own code, and the topics beside it in the request are created."""
    cluster.create("old")
    before = cluster.image
    good = NewTopic("good", 1, 1)
    assert codes(cluster, topic, good) == [error.code, 0]
    assert cluster.image.topics.keys() == before.topics.keys() | {"good"}


@pytest.mark.parametrize(("existing", "name"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_a_name_that_metrics_could_not_distinguish_is_refused(
    cluster: ControllerCluster, existing: str, name: str
) -> None:
    """INVALID_TOPIC_EXCEPTION, as Kafka's Topic.hasCollision; once the other is gone the name is free."""
    cluster.create(existing)
    (result,) = cluster.ask(CreateTopics((NewTopic(name, 1, 1),))).results
    assert (result.error_code, existing in result.error_message) == (InvalidTopic.code, True)
    assert codes(cluster, NewTopic(existing, 1, 1)) == [TopicAlreadyExists.code]
    assert codes(cluster, NewTopic("a-b", 1, 1), NewTopic("a.bc", 1, 1)) == [0, 0]
    cluster.ask(DeleteTopics((TopicRef(name=existing),)))
    assert codes(cluster, NewTopic(name, 1, 1)) == [0]


def test_a_topic_config_without_effect_is_warned_about_when_it_is_set(cluster: ControllerCluster) -> None:
    """At creation and later; a default is in force, so it is none."""
    with capture_logs() as logs:
        given = {"preallocate": "true", "message.downconversion.enable": "true", "compression.type": "zstd"}
        assert codes(cluster, NewTopic("t", 1, 1, configs=given)) == [0]
        for value in ("false", "true"):
            cluster.ask(AlterConfigs((ConfigAlteration("topic", "t", (ConfigOp("preallocate", value),)),)))
    warnings = [each for each in logs if each["log_level"] == "warning"]
    assert [(each["event"], each["key"], each["topic"]) for each in warnings] == [
        ("config_without_effect", "preallocate", "t")
    ] * 2
    assert "without effect" in warnings[0]["reason"]


def test_topic_named_twice_is_created_not_at_all(cluster: ControllerCluster) -> None:
    """Two entries for one name contradict each other."""
    (result,) = cluster.ask(CreateTopics((NewTopic("t", 1, 1), NewTopic("t", 2, 1)))).results
    assert result.error_code == InvalidRequest.code
    assert "t" not in cluster.image.topics


def test_internal_topic_may_be_compacted(cluster: ControllerCluster) -> None:
    """The offsets topic carries cleanup.policy=compact as Kafka's does."""
    assert codes(cluster, NewTopic("__consumer_offsets", 1, 1, configs={"cleanup.policy": "compact"})) == [0]


def test_request_creates_at_most_one_batch_of_partitions(cluster: ControllerCluster) -> None:
    """10,000 partitions in one request and no more; what fits is created."""
    assert codes(cluster, NewTopic("a", 6_000, 1), NewTopic("b", 6_000, 1), NewTopic("c", 4_000, 1)) == [
        0,
        PolicyViolation.code,
        0,
    ]


def test_null_config_is_no_config(cluster: ControllerCluster) -> None:
    """A config named without value stays at its default."""
    assert codes(cluster, NewTopic("t", 1, 1, configs={"retention.ms": None})) == [0]
    assert cluster.image.config("topic", "t") == {}


def test_given_assignment_is_taken_as_it_is(cluster: ControllerCluster) -> None:
    """Replicas in the given order; an unavailable broker starts outside the isr and does not lead."""
    cluster.die(1)
    cluster.assign("t", (1, 2), (2, 3))
    assert cluster.partition("t", 0).replicas == (1, 2)
    assert (cluster.partition("t", 0).leader, cluster.partition("t", 0).isr) == (2, (2,))
    assert cluster.assign("u", (1,)).error_code == InvalidReplicaAssignment.code


def test_dead_broker_does_not_hinder_creation(cluster: ControllerCluster) -> None:
    """Three registered, one fenced, replication factor 3: created with two in sync."""
    cluster.die(2)
    assert cluster.create("t", 3, 3).error_code == 0
    for state in cluster.image.topics["t"].partitions:
        assert set(state.isr) == {1, 3}
        assert state.replicas[-1] == 2


def test_nothing_is_created_while_no_broker_is_in_service() -> None:
    """All fenced: there could be no leader."""
    cluster = ControllerCluster()
    cluster.elect(1)
    cluster.register(1)
    assert cluster.create("t").error_code == InvalidReplicationFactor.code


def test_deleting_by_name_and_by_id(cluster: ControllerCluster) -> None:
    """Each topic on its own; unknown names and ids have their own codes; a topic named twice stays."""
    cluster.create("a")
    cluster.create("b")
    b = cluster.image.topics["b"].topic_id
    refs = (
        TopicRef(name="a"),
        TopicRef(topic_id=b),
        TopicRef(name="b"),
        TopicRef(name="x"),
        TopicRef(topic_id=UUID(int=9)),
    )
    results = cluster.ask(DeleteTopics(refs)).results
    assert [each.error_code for each in results] == [
        0,
        InvalidRequest.code,
        InvalidRequest.code,
        UnknownTopicOrPartition.code,
        UnknownTopicId.code,
    ]
    assert cluster.image.topics.keys() == {"b"}
    (by_id,) = cluster.ask(DeleteTopics((TopicRef(topic_id=b),))).results
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (0, "b", b)
    assert cluster.image.topics == {}


def test_the_name_of_the_quorums_log_is_no_topics(cluster: ControllerCluster) -> None:
    """INVALID_REQUEST, as from Kafka, also where it is only validated."""
    assert codes(cluster, NewTopic("__cluster_metadata", 1, 1)) == [InvalidRequest.code]


def test_of_two_wrong_numbers_the_replication_factor_is_named(cluster: ControllerCluster) -> None:
    """The order is Kafka's."""
    assert codes(cluster, NewTopic("t", 0, 0)) == [InvalidReplicationFactor.code]


def test_topic_made_again_has_another_id(cluster: ControllerCluster) -> None:
    """So that the old topic's records are not taken for the new topic's."""
    first = cluster.create("a").topic_id
    cluster.ask(DeleteTopics((TopicRef(name="a"),)))
    assert cluster.create("a").topic_id != first


def test_deletion_can_be_forbidden() -> None:
    """delete.topic.enable=false refuses the whole request."""
    cluster = ControllerCluster(delete_topic_enable=False)
    cluster.start(1)
    cluster.create("a")
    assert cluster.ask(DeleteTopics((TopicRef(name="a"),))).error_code == TopicDeletionDisabled.code


def test_growing_adds_partitions_with_the_same_replication(cluster: ControllerCluster) -> None:
    """Old partitions stay as they were, new partitions are numbered on, evenly spread over the whole topic."""
    cluster.create("t", 2, 2)
    before = cluster.image.topics["t"].partitions
    (result,) = cluster.ask(CreatePartitions((NewPartitions("t", 6),))).results
    after = cluster.image.topics["t"].partitions
    assert (result.error_code, result.topic_id) == (0, cluster.image.topics["t"].topic_id)
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
    cluster: ControllerCluster, wanted: NewPartitions, error: type[KafkaError]
) -> None:
    """Each with its own code, without effect."""
    for topic in ("t", *INTERNAL_TOPICS):
        cluster.create(topic, 2, 2)
    batches = len(cluster.journal)
    (result,) = cluster.ask(CreatePartitions((wanted,))).results
    assert result.error_code == error.code
    assert len(cluster.journal) == batches


def test_growth_may_be_only_validated_or_assigned(cluster: ControllerCluster) -> None:
    """validate_only writes no record; given assignments are taken."""
    cluster.create("t", 1, 2)
    wanted = (NewPartitions("t", 2, ((3, 1),)),)
    assert cluster.ask(CreatePartitions(wanted, validate_only=True)).results[0].error_code == 0
    assert len(cluster.image.topics["t"].partitions) == 1
    assert cluster.ask(CreatePartitions(wanted)).results[0].error_code == 0
    assert cluster.partition("t", 1).replicas == (3, 1)


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
    cluster = ControllerCluster(controllers=2)
    cluster.start(1, 2, 3)
    cluster.commit_at_once = False
    request = CreateTopics((NewTopic("t", 4, 2, topic_id=UUID(int=77)),))
    assert cluster.submit(request) == []
    cluster.elect(2)
    cluster.commit()
    cluster.commit_at_once = True
    (again,) = cluster.ask(request).results
    assert (again.error_code, again.topic_id) == (0, UUID(int=77))
    assert (again.num_partitions, again.replication_factor) == (4, 2)
    assert cluster.image.topics["t"].topic_id == UUID(int=77)
    assert len(cluster.journal) == cluster.commit_index


def test_only_the_very_same_creation_is_answered_again(cluster: ControllerCluster) -> None:
    """Another request for that name finds it taken; the id of another topic cannot be chosen."""
    cluster.ask(CreateTopics((NewTopic("t", 1, 1, topic_id=UUID(int=77)),)))
    assert codes(cluster, NewTopic("t", 1, 1, topic_id=UUID(int=78))) == [TopicAlreadyExists.code]
    assert codes(cluster, NewTopic("t", 1, 1)) == [TopicAlreadyExists.code]
    assert codes(cluster, NewTopic("other", 1, 1, topic_id=UUID(int=77))) == [InvalidRequest.code]
