"""Claims about configs of single groups: resolution, validation, descriptions (KIP-848, KIP-1142)."""

from __future__ import annotations

import pytest

from raftlog.base.config import (
    ConfigFaults,
    GroupConfig,
    NodeConfig,
    group_config,
    load_config,
    settings_of,
    validate_group_configs,
)
from raftlog.base.config.describe import ConfigSource, describe_group
from raftlog.base.config.share import LATEST
from raftlog.base.errors import InvalidConfig

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_a_group_without_configs_has_what_its_broker_has():
    """The broker's own defaults and the group's agree."""
    assert group_config(NodeConfig(), {}) == group_config(load_config(), {}) == GroupConfig()
    node = load_config({"group.consumer.session.timeout.ms": "50000"})
    assert group_config(node, {}) == GroupConfig(50_000, 5_000)
    assert group_config(node, {HEARTBEAT: "6000"}) == GroupConfig(50_000, 6_000)


def test_what_was_set_while_the_bounds_were_wider_is_the_nearest_that_is_allowed():
    """The metadata outlives a broker's file. Kafka 4.3 clamps too, and keeps a session longer than its heartbeat."""
    node = NodeConfig()
    assert group_config(node, {SESSION: "1000", HEARTBEAT: "1000"}) == GroupConfig(45_000, 5_000)
    assert group_config(node, {SESSION: "90000", HEARTBEAT: "90000"}) == GroupConfig(60_000, 15_000)
    narrow = NodeConfig(
        group_consumer_min_session_timeout_ms=1,
        group_consumer_max_session_timeout_ms=9_000,
        group_consumer_session_timeout_ms=9_000,
    )
    assert group_config(narrow, {SESSION: "9000", HEARTBEAT: "9000"}) == GroupConfig(9_000, 5_000)


@pytest.mark.parametrize(
    ("configs", "rule"),
    [
        ({SESSION: "44999"}, r"session.timeout.ms: must be from 45000 .*min.* to 60000 .*, but is '44999'"),
        ({SESSION: "60001"}, "session.timeout.ms: must be from 45000"),
        ({HEARTBEAT: "4999"}, "heartbeat.interval.ms: must be from 5000"),
        ({HEARTBEAT: "15001"}, "heartbeat.interval.ms: must be from 5000 .* to 15000"),
        ({HEARTBEAT: "often"}, "must be a whole number, but is 'often'"),
        ({HEARTBEAT: "0", SESSION: ""}, "heartbeat.interval.ms: .*; consumer.session.timeout.ms: "),
        ({"consumer.session.timeout": "50000"}, "there is no such group config, only consumer.session"),
        ({"share.session.timeout.ms": "44999"}, r"must be from 45000 \(group.share.min.\*\) to 60000"),
        ({"share.heartbeat.interval.ms": "15001"}, "must be from 5000 .* to 15000"),
        ({"share.record.lock.duration.ms": "999"}, "must be at least 1000"),
        ({"share.record.lock.duration.ms": "60001"}, "must be from 15000 .* to 60000"),
        ({"share.delivery.count.limit": "1"}, "must be at least 2"),
        ({"share.delivery.count.limit": "11"}, "must be from 2 .* to 10"),
        ({"share.partition.max.record.locks": "4001"}, "must be from 100 .* to 4000"),
        ({"share.isolation.level": "serializable"}, "must be one of read_committed, read_uncommitted"),
        ({"share.renew.acknowledge.enable": "1"}, "must be true or false"),
        ({"share.auto.offset.reset": "none"}, "must be latest, earliest, or by_duration:"),
        ({"errors.deadletterqueue.topic.name": "__dlq"}, r"topic.name: must not begin with __, .* '__dlq'"),
        (
            {"errors.deadletterqueue.topic.name": "dlq/a"},
            r"topic.name: a topic name is 1 to 249 of .* 'dlq/a'",
        ),
        ({"errors.deadletterqueue.topic.name": "d" * 250}, r"topic.name: a topic name is 1 to 249 of"),
        ({"errors.deadletterqueue.copy.record.enable": "yes"}, "copy.record.enable: must be true or false"),
        ({"share.assignment.interval.ms": "1"}, "there is no such group config"),
        ({"streams.num.standby.replicas": "1"}, "streams.num.*: there is no such group config"),
    ],
)
def test_a_bad_group_config_is_refused_by_name_and_rule(configs, rule):
    """Out of the broker's bounds, malformed, or unknown; streams groups are not built."""
    with pytest.raises(InvalidConfig, match=rule):
        validate_group_configs(configs, NodeConfig())


def test_a_session_is_longer_than_a_heartbeat_interval_whoever_says_so():
    """A config that a group does not set itself is its broker's."""
    node = load_config(
        {
            "group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.session.timeout.ms": "10000",
        }
    )
    validate_group_configs({HEARTBEAT: "9999"}, node)
    validate_group_configs({HEARTBEAT: "10000", SESSION: "10001"}, node)
    for wrong in ({HEARTBEAT: "10000"}, {SESSION: "6000", HEARTBEAT: "6000"}):
        with pytest.raises(InvalidConfig, match=f"{SESSION}: must be more than {HEARTBEAT}"):
            validate_group_configs(wrong, node)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.consumer.session.timeout.ms", "44999"),
        ("group.consumer.session.timeout.ms", "60001"),
        ("group.consumer.heartbeat.interval.ms", "4999"),
        ("group.consumer.heartbeat.interval.ms", "15001"),
        ("group.share.session.timeout.ms", "60001"),
        ("group.share.heartbeat.interval.ms", "4999"),
        ("group.share.record.lock.duration.ms", "60001"),
        ("group.share.partition.max.record.locks", "4001"),
    ],
)
def test_a_brokers_own_values_are_within_its_bounds(name, value):
    """Else no group could be set to what all others have. Kafka's broker does not start either."""
    with pytest.raises(ConfigFaults) as caught:
        load_config({name: value})
    (fault,) = caught.value.faults
    assert fault.name == name and value in fault.rule


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("pt1h", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.567S", 93_784_567),
        ("PT1,5S", 1_500),
        ("PT1.S", 1_000),
        ("PT0S", 0),
        ("PT0.0001S", 0),
        ("+PT+1H", 3_600_000),
        ("PT1H-30M", 1_800_000),
        ("-PT-1H", 3_600_000),
        ("P106751991167D", 9_223_372_036_828_800_000),
    ],
)
def test_a_duration_is_read_as_java_reads_it(text: str, milliseconds: int) -> None:
    """Each was asked of Apache Kafka 4.3's ShareGroupAutoOffsetResetStrategy. The text is described as it was set."""
    own = {"share.auto.offset.reset": f"by_duration:{text}"}
    validate_group_configs(own, NodeConfig())
    reset = group_config(NodeConfig(), own).share_auto_offset_reset
    assert (reset.strategy, reset.duration_ms) == ("by_duration", milliseconds)
    rows = {row.name: row.value for row in describe_group(NodeConfig(), own)}
    assert rows["share.auto.offset.reset"] == f"by_duration:{text}"


@pytest.mark.parametrize(
    "text",
    [
        *("LATEST", "none", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT"),
        *("by_duration:-PT1H", "by_duration:PT-0.5S", "by_duration:P1W", "by_duration:PT1M1H"),
        *("by_duration: PT1H", "by_duration:PT.5S", "by_duration:PT1.1234567891S"),
        *("BY_DURATION:PT1H", "by_duration:P999999999999999D", "by_duration:PT\u0661H"),
    ],
)
def test_what_java_reads_as_no_duration_is_refused(text: str) -> None:
    """Each was asked of Apache Kafka 4.3 too, but the last, which is Python's alone."""
    with pytest.raises(InvalidConfig, match="must be latest, earliest, or by_duration:"):
        validate_group_configs({"share.auto.offset.reset": text}, NodeConfig())


def test_a_share_group_has_what_its_broker_has_within_its_bounds() -> None:
    """Bounds hold for the configs that brokers set too; the others have no bounds."""
    node = load_config(
        {"group.share.record.lock.duration.ms": "20000", "group.share.max.delivery.count.limit": "6"}
    )
    own = {"share.delivery.count.limit": "9", "share.isolation.level": "read_committed"}
    config = group_config(node, own)
    assert config.share_record_lock_duration_ms == 20_000
    assert config.share_delivery_count_limit == 6
    assert config.share_isolation_level == "read_committed"
    assert (config.share_auto_offset_reset, config.share_renew_acknowledge_enable) == (LATEST, True)


def test_a_described_group_says_where_each_value_comes_from():
    """Source 8 for what is the group's own; then its broker's file and default."""
    node = load_config({"group.consumer.session.timeout.ms": "50000"})
    rows = {row.name: row for row in describe_group(node, {SESSION: "55000"})}
    assert rows.keys() == settings_of(GroupConfig).keys()
    assert rows[SESSION][1:4] == ("55000", ConfigSource.DYNAMIC_GROUP, False)
    assert [tuple(each) for each in rows[SESSION].synonyms] == [
        (SESSION, "55000", 8),
        ("group.consumer.session.timeout.ms", "50000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert rows[HEARTBEAT].is_default and rows[HEARTBEAT].value == "5000" and rows[HEARTBEAT].doc
