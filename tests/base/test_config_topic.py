"""Claims about topic configs: defaults, resolution, validation, descriptions."""

from __future__ import annotations

import pytest

from raftlog.base.config import (
    NodeConfig,
    TopicConfig,
    load_config,
    parse_topic_configs,
    settings_of,
    topic_config,
    validate_broker_configs,
    validate_topic_configs,
)
from raftlog.base.config.describe import (
    ConfigSource,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from raftlog.base.errors import InvalidConfig
from raftlog.base.types import SHARE_GROUP_STATE_TOPIC
from tests.kit.errors import raises_faults

KAFKAS, OURS = 37, 5
"""Topic configs: Apache Kafka's, and the five about schemas."""


def test_there_are_all_topic_configs_of_kafka():
    """Clients expect DescribeConfigs to list them all (TopicConfig.java of Kafka 4, and the two of QuotaConfig)."""
    assert len(settings_of(TopicConfig)) == KAFKAS + OURS


def test_an_untouched_topic_has_kafkas_documented_defaults():
    """The numbers every introduction to Kafka prints."""
    config = TopicConfig()
    assert config.retention_ms == 604_800_000
    assert config.segment_bytes == 1_073_741_824
    assert config.max_message_bytes == 1_048_588
    assert config.min_insync_replicas == 1
    assert config.cleanup_policy == ("delete",)
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert config.compression_type == "producer"


def test_an_untouched_node_gives_its_topics_the_untouched_defaults():
    """The broker's own defaults and the topic's agree, all of them."""
    assert topic_config(NodeConfig(), {}, {}) == TopicConfig()
    assert topic_config(load_config(), {}, {}) == TopicConfig()


def test_a_topics_own_config_goes_before_the_brokers_dynamic_before_its_file():
    """Precedence of KIP-226."""
    node = load_config({"log.retention.ms": "1", "log.segment.bytes": "100", "message.max.bytes": "50"})
    config = topic_config(node, {"log.retention.ms": "2", "log.segment.bytes": "200"}, {"retention.ms": "3"})
    assert (config.retention_ms, config.segment_bytes, config.max_message_bytes) == (3, 200, 50)


@pytest.mark.parametrize(
    ("file", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1", "log.retention.ms": "1"}, 1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_counts(file, retention_ms):
    """Kafka: log.retention.ms before minutes before hours; -1 is for ever in each."""
    assert topic_config(load_config(file), {}, {}).retention_ms == retention_ms


def test_resolving_twice_gives_the_same_object():
    """It is asked for on every reconcile of thousands of partitions."""
    node = NodeConfig()
    assert topic_config(node, {}, {"retention.ms": "5"}) is topic_config(node, {}, {"retention.ms": "5"})


@pytest.mark.parametrize(
    ("configs", "rule"),
    [
        ({"cleanup.policy": "compact,"}, "cleanup.policy: must have no empty item, but is 'compact,'"),
        ({"cleanup.policy": ","}, "must have no empty item"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level: must be 1 to 9, or -1"),
        ({"cleanup.policy": "shred"}, "must be compact, delete, or both, but is 'shred'"),
        ({"retention.ms": "a week"}, "retention.ms: must be a whole number, but is 'a week'"),
        ({"retention.ms": "7d"}, "retention.ms: must be in milliseconds, such as 604800000, but is '7d'"),
        ({"segment.bytes": "7d"}, "segment.bytes: must be a whole number"),
        ({"retention.ms": "-2"}, "must be at least -1"),
        ({"min.insync.replicas": "0"}, "must be at least 1"),
        ({"retention.ms": "1_000"}, "must be a whole number"),
        ({"min.cleanable.dirty.ratio": "0.2_5"}, "must be a number"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "must be at most max.compaction.lag.ms",
        ),
        ({"retention.m": "1"}, "there is no such topic config; did you mean retention.ms?"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"min.cleanable.dirty.ratio": "nan"}, "must be at least 0"),
        ({"segment.bytes": "1", "segment.ms": "0"}, "segment.bytes: .*; segment.ms: "),
    ],
)
def test_a_bad_topic_config_is_refused_by_name_and_rule(configs, rule):
    """INVALID_CONFIG carries the message to the client."""
    with pytest.raises(InvalidConfig, match=rule):
        validate_topic_configs(configs)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", ()),
        (" ", ()),
        ("compact,compact", ("compact",)),
        ("delete, compact,delete", ("delete", "compact")),
    ],
)
def test_a_cleanup_policy_may_be_empty_and_doubles_vanish(text, policy):
    """Kafka since 4.2: an empty list keeps everything. Asked of Kafka 4.3's LogConfig."""
    assert parse_topic_configs({"cleanup.policy": text}) == {"cleanup.policy": policy}
    assert topic_config(NodeConfig(), {"log.cleanup.policy": text}, {}).cleanup_policy == policy


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", ""])
def test_a_topic_is_compacted_or_not_as_it_says(policy):
    """Internal topics are always compacted: deletion by age would lose records still in use."""
    validate_topic_configs({"cleanup.policy": policy})
    if "compact" in policy:
        validate_topic_configs({"cleanup.policy": policy}, topic="__consumer_offsets")
    else:
        with pytest.raises(InvalidConfig, match=r"cleanup\.policy"):
            validate_topic_configs({"cleanup.policy": policy}, topic="__consumer_offsets")


def test_a_running_broker_takes_topic_defaults_and_nothing_else():
    """KIP-226, as far as raftlog acts on changes."""
    validate_broker_configs({"log.retention.ms": "5"}, cluster_wide=True)
    for name, value in (
        ("node.id", "2"),
        ("log.retention.ms", "x"),
        ("nonsense", "1"),
        ("num.partitions", "2"),
    ):
        with pytest.raises(InvalidConfig, match=name):
            validate_broker_configs({name: value}, cluster_wide=False)


def test_a_described_topic_says_where_each_value_comes_from():
    """Sources and synonyms of DescribeConfigs (KIP-226)."""
    node = load_config({"log.segment.bytes": "2000"})
    rows = {
        row.name: row
        for row in describe_topic(
            node,
            {"retention.ms": "3"},
            cluster_dynamic={"message.max.bytes": "10"},
            broker_dynamic={"log.index.interval.bytes": "9"},
        )
    }
    assert len(rows) == KAFKAS + OURS
    assert (rows["retention.ms"].value, rows["retention.ms"].source) == ("3", ConfigSource.DYNAMIC_TOPIC)
    assert rows["max.message.bytes"][1:3] == ("10", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert rows["index.interval.bytes"][1:3] == ("9", ConfigSource.DYNAMIC_BROKER)
    assert rows["segment.bytes"][1:3] == ("2000", ConfigSource.STATIC_BROKER)
    assert rows["segment.ms"][1:3] == ("604800000", ConfigSource.DEFAULT)
    assert [tuple(each) for each in rows["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "2000", ConfigSource.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]
    assert rows["retention.ms"].synonyms[-1].name == "log.retention.hours"


def test_a_described_broker_hides_its_secret_and_shows_the_rest():
    """Num.partitions missing has broken a client of another broker; a secret shown breaks the cluster."""
    node = load_config({"raftlog.cluster.secret": "hush, hush, do not tell", "num.partitions": "6"})
    rows = {row.name: row for row in describe_broker(node, cluster_dynamic={}, broker_dynamic={})}
    assert rows["num.partitions"][1:4] == ("6", ConfigSource.STATIC_BROKER, True)
    assert rows["raftlog.cluster.secret"].value is None and rows["raftlog.cluster.secret"].sensitive
    assert "hush" not in str(rows)
    assert rows["process.roles"].value == "broker,controller"
    assert rows["log.retention.ms"].value is None and not rows["log.retention.ms"].read_only


def test_a_change_of_a_running_broker_is_described_as_such():
    """The newest value counts, and the file's value remains as a synonym."""
    node = load_config({"log.retention.ms": "7"})
    rows = {
        r.name: r for r in describe_broker(node, cluster_dynamic={"log.retention.ms": "8"}, broker_dynamic={})
    }
    assert rows["log.retention.ms"][1:3] == ("8", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert [each.value for each in rows["log.retention.ms"].synonyms] == ["8", "7"]
    assert [row.value for row in describe_cluster_default({"log.retention.ms": "8"})] == ["8"]


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_no_broker_has_a_retention_of_no_time(name: str) -> None:
    """It would delete the records of every topic; Kafka refuses it too. A topic may have it."""
    with raises_faults(name):
        load_config({name: "0"})
    with raises_faults(name):
        load_config({name: "-2"})
    assert parse_topic_configs({"retention.ms": "0"}) == {"retention.ms": 0}


def test_a_value_that_an_older_version_stored_is_in_the_way_of_nothing() -> None:
    """It is shown as it is, and may stay while other configs change; anew it is refused."""
    brokers = {"log.retention.ms": "0", "compression.gzip.level": "0"}
    assert [each.value for each in describe_cluster_default(brokers)] == ["0", "0"]
    changed = {**brokers, "log.segment.bytes": "1000"}
    validate_broker_configs(changed, cluster_wide=True, stored=brokers)
    with pytest.raises(InvalidConfig, match=r"log.retention.ms: must be at least 1"):
        validate_broker_configs(changed, cluster_wide=True)
    topic = {"leader.replication.throttled.replicas": "0:1,,1:2"}
    validate_topic_configs({**topic, "retention.ms": "5"}, stored=topic)
    with pytest.raises(InvalidConfig, match=r"leader\.replication\.throttled\.replicas: .*'0:1,,1:2'"):
        validate_topic_configs(topic)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "1"),
        ("retention.bytes", "1"),
    ],
)
def test_the_states_of_share_groups_are_neither_compacted_nor_aged(name: str, value: str) -> None:
    """Each of their updates counts until its coordinator deletes it (KIP-932)."""
    validate_topic_configs({"cleanup.policy": "delete", "retention.ms": "-1"}, topic=SHARE_GROUP_STATE_TOPIC)
    with pytest.raises(InvalidConfig, match=name):
        validate_topic_configs({name: value}, topic=SHARE_GROUP_STATE_TOPIC)
