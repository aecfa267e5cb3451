"""A cluster keeps no more metadata than its limits allow, and loads what is at the limit."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.config import NodeConfig, settings_of
from raftlog.base.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidRegistration,
    InvalidRequest,
    PolicyViolation,
)
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.controller.metadata_limits import (
    MAX_BROKERS,
    MAX_GROUP_NAME_LENGTH,
    MAX_REGISTRATION_BYTES,
    MAX_VALUE_LENGTH,
)
from raftlog.metadata.controller_api import (
    DELETE,
    SET,
    AlterConfigs,
    AlterReassignments,
    ConfigAlteration,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    Reassignment,
    TopicRef,
)
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.snapshot import MAX_IMAGE_BYTES, decode_image, encode_image
from raftlog.metadata.usage import BASE_BYTES, usage_of
from raftlog.quorum.messages import SnapshotChunk
from raftlog.quorum.snapshot import IncomingSnapshot
from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster
from tests.controller.controller_cluster import ControllerCluster


def limited_cluster(**limits: Any) -> ControllerCluster:
    """Three brokers, with these limits."""
    controllers = ControllerCluster(**limits)
    controllers.start(1, 2, 3)
    return controllers


def configure(controllers: ControllerCluster, kind: str, name: str, key: str, value: str | None) -> Any:
    """Set one config, or delete it; returns its result."""
    op = ConfigOp(key, value, SET if value is not None else DELETE)
    return controllers.ask(AlterConfigs((ConfigAlteration(kind, name, (op,)),))).results[0]


def grow(controllers: ControllerCluster, name: str, total: int) -> Any:
    return controllers.ask(CreatePartitions((NewPartitions(name, total),))).results[0]


def test_topics_beyond_the_limit_are_refused_until_one_is_deleted() -> None:
    """POLICY_VIOLATION with the limit's name; within one request too; deleting makes room."""
    controllers = limited_cluster(raftlog_topics_max=3)
    made = controllers.ask(CreateTopics(tuple(NewTopic(f"t{number}", 1, 1) for number in range(5)))).results
    assert [each.error_code for each in made] == [0, 0, 0] + [PolicyViolation.code] * 2
    assert made[3].error_message == (
        "the cluster has 3 topics; 1 more would exceed raftlog.topics.max, which is 3"
    )
    assert controllers.ask(CreateTopics((NewTopic("x", 1, 1),), validate_only=True)).results[0].error_code
    controllers.ask(DeleteTopics((TopicRef(name="t0"),)))
    assert controllers.create("x").error_code == 0


def test_partitions_of_all_topics_are_bounded_however_they_come() -> None:
    """By creating, with and without assignments, and by growing; the replicas of one partition count once."""
    controllers = limited_cluster(raftlog_partitions_max=6)
    assert controllers.create("a", 4, 3).error_code == 0
    for refused in (
        controllers.create("b", 3),
        controllers.assign("b", *[(1,)] * 3),
        grow(controllers, "a", 7),
    ):
        assert refused.error_code == PolicyViolation.code
        assert "raftlog.partitions.max, which is 6" in refused.error_message
    assert grow(controllers, "a", 6).error_code == 0
    assert controllers.create("b", 1).error_code == PolicyViolation.code


def test_partitions_of_one_topic_are_bounded() -> None:
    """INVALID_PARTITIONS, at its creation and later."""
    controllers = limited_cluster(raftlog_topic_partitions_max=4)
    assert controllers.create("a", 5).error_code == InvalidPartitions.code
    assert controllers.assign("a", *[(1,)] * 5).error_code == InvalidPartitions.code
    assert controllers.create("a", 4).error_code == 0
    refused = grow(controllers, "a", 5)
    assert refused.error_code == InvalidPartitions.code
    assert refused.error_message == ("a topic has at most 4 partitions (raftlog.topic.partitions.max), not 5")


def test_the_clusters_own_topics_are_never_refused() -> None:
    """A client that fills a cluster with topics does not keep groups from working."""
    controllers = limited_cluster(
        raftlog_topics_max=1, raftlog_partitions_max=1, raftlog_metadata_max_bytes=1_000
    )
    controllers.create("a")
    assert controllers.create(CONSUMER_OFFSETS_TOPIC, 50, 3, cleanup_policy="compact").error_code == 0
    assert controllers.create("b").error_code == PolicyViolation.code


def test_configs_are_bounded_and_can_always_be_deleted() -> None:
    """Entries of all resources count together, entries of new topics too; changing a value takes no room."""
    controllers = limited_cluster(raftlog_configs_max=2)
    assert controllers.create("a", retention_ms="1").error_code == 0
    assert configure(controllers, "broker", "", "log.retention.ms", "5").error_code == 0
    refused = configure(controllers, "topic", "a", "segment.bytes", "2000000")
    assert refused.error_code == PolicyViolation.code
    assert "raftlog.configs.max, which is 2" in refused.error_message
    assert controllers.create("b", retention_ms="1").error_code == PolicyViolation.code
    assert configure(controllers, "topic", "a", "retention.ms", "2").error_code == 0
    assert configure(controllers, "topic", "a", "retention.ms", None).error_code == 0
    assert controllers.create("b", retention_ms="1").error_code == 0


def test_groups_that_do_not_exist_have_configs_within_a_limit() -> None:
    """Their number and their names' lengths are bounded: such configs are never removed otherwise."""
    controllers = limited_cluster(raftlog_group_configs_max=2)
    key = "consumer.session.timeout.ms"
    long = "g" * (MAX_GROUP_NAME_LENGTH + 1)
    assert configure(controllers, "group", long, key, "50000").error_code == InvalidRequest.code
    codes = [configure(controllers, "group", f"g{number}", key, "50000").error_code for number in range(3)]
    assert codes == [0, 0, PolicyViolation.code]
    assert configure(controllers, "group", "g0", "consumer.heartbeat.interval.ms", "6000").error_code == 0
    for each in (key, "consumer.heartbeat.interval.ms"):
        configure(controllers, "group", "g0", each, None)
    assert configure(controllers, "group", "g2", key, "50000").error_code == 0


def test_values_in_new_topics_are_as_short_as_in_altered_ones() -> None:
    """Kafka's 32,767 characters."""
    controllers = limited_cluster()
    value = "1:1" + ",1:1" * MAX_VALUE_LENGTH
    refused = controllers.create("a", leader_replication_throttled_replicas=value)
    assert refused.error_code == InvalidConfig.code
    assert refused.error_message == (
        f"leader.replication.throttled.replicas: a value has at most {MAX_VALUE_LENGTH} characters"
    )


def test_bytes_of_the_metadata_are_bounded() -> None:
    """Names, values and replicas count; what makes the image smaller is allowed at the limit."""
    controllers = limited_cluster(raftlog_metadata_max_bytes=1_539)
    value = ",".join(f"{number}:1" for number in range(200))
    key = "leader.replication.throttled.replicas"
    controllers.assign("a", (1,))
    refused = configure(controllers, "topic", "a", key, value)
    assert refused.error_code == PolicyViolation.code
    assert "raftlog.metadata.max.bytes, which is 1539" in refused.error_message
    assert configure(controllers, "topic", "a", key, value[:199]).error_code == 0
    while controllers.create(f"t{controllers.image.offset}").error_code == 0:
        assert controllers.image.usage.size_bytes <= 1_539
    moved = controllers.ask(AlterReassignments((Reassignment("a", 0, (1, 2, 3)),))).results[0]
    assert moved.error_code == PolicyViolation.code
    assert configure(controllers, "topic", "a", key, value[:99]).error_code == 0
    assert configure(controllers, "topic", "a", key, None).error_code == 0
    moved = controllers.ask(AlterReassignments((Reassignment("a", 0, (1, 2, 3)),))).results[0]
    assert moved.error_code == 0


def test_limits_can_be_changed_while_the_cluster_runs() -> None:
    """As cluster-wide configs: an operator at a limit need not restart controllers."""
    controllers = limited_cluster(raftlog_topics_max=1)
    controllers.create("a")
    assert configure(controllers, "broker", "", "raftlog.topics.max", "2").error_code == 0
    assert (controllers.create("b").error_code, controllers.create("c").error_code) == (
        0,
        PolicyViolation.code,
    )
    assert configure(controllers, "broker", "", "raftlog.topics.max", "1").error_code == 0
    assert set(controllers.image.topics) == {"a", "b"}, "what is there stays"


def test_registrations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many brokers, each with so many bytes; brokers that are registered may always come back."""
    controllers = limited_cluster()
    assert controllers.register(4, rack="r" * MAX_REGISTRATION_BYTES).error_code == InvalidRegistration.code
    monkeypatch.setattr("raftlog.controller.metadata_limits.MAX_BROKERS", 3)
    assert MAX_BROKERS > 3
    assert controllers.register(4).error_code == PolicyViolation.code
    controllers.die(3)
    controllers.come_back(3)
    assert not controllers.image.brokers[3].fenced


def test_nodes_restart_from_a_snapshot_at_the_limits() -> None:
    """A cluster that is full refuses, and carries on after every node loaded its snapshot."""

    async def script(loop: SimLoop) -> None:
        limits = {"raftlog.topics.max": "30", "raftlog.configs.max": "30", "raftlog.partitions.max": "60"}
        controllers = SimCluster(loop, settings=limits, compaction=SnapshotPolicy(entries=10))
        controllers.start()
        await controllers.until_ready()
        for number in range(40):
            code = await _create(controllers, NewTopic(f"t{number}", 2, 1, configs={"retention.ms": "1"}))
            assert code == (0 if number < 30 else PolicyViolation.code)
        full = controllers.last_image()
        assert (len(full.topics), full.usage.partitions, full.usage.configs) == (30, 60, 30)
        controllers.restart(1, 2, 3)
        await controllers.until_ready()
        quorum = controllers.nodes[1].node.control.quorum  # type: ignore[union-attr]
        assert quorum is not None and quorum._driver.journal.snapshot_index > 0
        assert controllers.last_image().topics.keys() == full.topics.keys()
        assert controllers.last_image().usage == usage_of(controllers.last_image())
        assert await _create(controllers, NewTopic("more", 1, 1)) == PolicyViolation.code

    simulate(script, seed=3)


async def _create(controllers: SimCluster, topic: NewTopic) -> int:
    node = controllers.nodes[1].node
    assert node is not None
    asked = controllers.nodes[1].host.start(node.control.submit(CreateTopics((topic,))))
    code: int = (await asked).results[0].error_code
    return code


def test_an_image_at_the_limit_of_bytes_is_one_that_observers_load() -> None:
    """Encoded it is no larger than its usage says, and it comes through as a snapshot, as the highest limit would."""
    limit = settings_of(NodeConfig)["raftlog.metadata.max.bytes"][1]
    value = "v" * MAX_VALUE_LENGTH
    configs, size_bytes = {}, 0
    while size_bytes < limit.default:
        configs["topic", f"t{len(configs)}"] = {"key": value}
        size_bytes += len(value) + 50
    image = MetadataImage(configs=configs)
    data = encode_image(image)
    usage = usage_of(image)
    assert limit.default - 2 * MAX_VALUE_LENGTH < len(data) <= usage.size_bytes + BASE_BYTES
    incoming, chunk_bytes, loaded = IncomingSnapshot(), 4 << 20, None
    for start in range(0, len(data), chunk_bytes):
        chunk = SnapshotChunk(1, 5, len(data), start, data[start : start + chunk_bytes])
        loaded = incoming.take(1, chunk)
    assert loaded is not None
    assert decode_image(loaded).configs == configs
    assert limit.at_most is not None and limit.at_most + BASE_BYTES < MAX_IMAGE_BYTES
