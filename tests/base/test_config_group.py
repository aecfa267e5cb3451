"""Claims about configs of single groups: resolution, validation, descriptions (KIP-848, KIP-1142)."""

from __future__ import annotations

import pytest

from raftlog.base.config import (
    ConfigFaults,
    GroupConfig,
    NodeConfig,
    group_config,
    load_config,
    validate_group_configs,
)
from raftlog.base.config.describe import ConfigSource, describe_group
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
        ({"share.session.timeout.ms": "50000"}, "share.session.timeout.ms: there is no such group config"),
        ({"streams.num.standby.replicas": "1"}, "streams.num.*: there is no such group config"),
    ],
)
def test_a_bad_group_config_is_refused_by_name_and_rule(configs, rule):
    """Out of the broker's bounds, malformed, or unknown; share and streams groups are not built."""
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
    ],
)
def test_a_brokers_own_values_are_within_its_bounds(name, value):
    """Else no group could be set to what all others have. Kafka's broker does not start either."""
    with pytest.raises(ConfigFaults) as caught:
        load_config({name: value})
    (fault,) = caught.value.faults
    assert fault.name == name and value in fault.rule


def test_a_described_group_says_where_each_value_comes_from():
    """Source 8 for what is the group's own; then its broker's file and default."""
    node = load_config({"group.consumer.session.timeout.ms": "50000"})
    rows = {row.name: row for row in describe_group(node, {SESSION: "55000"})}
    assert rows.keys() == {SESSION, HEARTBEAT}
    assert rows[SESSION][1:4] == ("55000", ConfigSource.DYNAMIC_GROUP, False)
    assert [tuple(each) for each in rows[SESSION].synonyms] == [
        (SESSION, "55000", 8),
        ("group.consumer.session.timeout.ms", "50000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert rows[HEARTBEAT].is_default and rows[HEARTBEAT].value == "5000" and rows[HEARTBEAT].doc
