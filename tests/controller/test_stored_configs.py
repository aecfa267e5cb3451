"""Values that an older version stored and this version refuses, for every config: they block no other change.

A metadata log and its snapshots keep every value accepted once. A node starts with that, shows it, changes other
configs of the same resource, and deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from raftlog.base.config import (
    KAFKA_SETTINGS,
    GroupConfig,
    NodeConfig,
    Setting,
    TopicConfig,
    broker_config,
    group_config,
    settings_of,
    topic_config,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from raftlog.base.config.client_metrics import (
    ClientMetricsConfig,
    client_metrics_config,
    validate_client_metrics_configs,
)
from raftlog.base.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from raftlog.base.errors import InvalidConfig
from raftlog.metadata.controller_api import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
)
from raftlog.metadata.metadata_records import Batch, ConfigChanged, encode_batch
from tests.controller.controller_cluster import ControllerCluster

NODE = NodeConfig(node_id=1)
REFUSED_TEXTS = ("no such value", "-3", "0", str(2**70), "a,,b", "1.5", "true,", "", "0:1,,1:2", "x=y=z")
"""Of each config the first that it refuses is stored."""
FORGOTTEN = "a.config.that.is.gone"
"""An older version had it."""


class Resource(NamedTuple):
    """A kind of resource with configs; `resource` is an instance."""

    resource: tuple[str, str]
    rows: Mapping[str, Setting]
    validate: Callable[[Mapping[str, str]], None]
    in_force: Callable[[Mapping[str, str]], Any]
    describe: Callable[[Mapping[str, str]], list[ConfigEntry]]

    def refused(self) -> dict[str, str]:
        """Return a value that is refused today of each config that refuses any."""
        found = {
            name: next(filter(lambda text: self._refuses(name, text), REFUSED_TEXTS), None)
            for name in self.rows
        }
        return {name: text for name, text in found.items() if text is not None}

    def _refuses(self, name: str, text: str) -> bool:
        try:
            self.validate({name: text})
        except InvalidConfig:
            return True
        return False

    def settable(self) -> dict[str, str]:
        """Return the default of each config that takes it, which says that it can be set at all."""
        texts = {name: row.format(row.default) for name, row in self.rows.items()}
        return {
            name: text for name, text in texts.items() if text is not None and not self._refuses(name, text)
        }


def rows_of(table: type[Any]) -> dict[str, Setting]:
    return {name: row for name, (_, row) in settings_of(table).items()}


BROKERS = rows_of(NodeConfig) | {name: kafkas.row for name, kafkas in KAFKA_SETTINGS.items()}
RESOURCES = (
    Resource(
        ("topic", "t"),
        rows_of(TopicConfig),
        validate_topic_configs,
        lambda stored: topic_config(NODE, {}, stored),
        lambda stored: describe_topic(NODE, stored, cluster_dynamic={}, broker_dynamic={}),
    ),
    Resource(
        ("broker", ""),
        BROKERS,
        lambda configs: validate_broker_configs(configs, cluster_wide=True),
        lambda stored: (broker_config(NODE, stored), topic_config(NODE, stored, {})),
        lambda stored: [
            *describe_broker(NODE, cluster_dynamic=stored, broker_dynamic={}),
            *describe_cluster_default(stored),
        ],
    ),
    Resource(
        ("broker", "1"),
        BROKERS,
        lambda configs: validate_broker_configs(configs, cluster_wide=False),
        lambda stored: broker_config(NODE, stored),
        lambda stored: describe_broker(NODE, cluster_dynamic={}, broker_dynamic=stored),
    ),
    Resource(
        ("group", "g"),
        rows_of(GroupConfig),
        lambda configs: validate_group_configs(configs, NODE),
        lambda stored: group_config(NODE, stored),
        lambda stored: describe_group(NODE, stored),
    ),
    Resource(
        ("client-metrics", "m"),
        rows_of(ClientMetricsConfig),
        lambda configs: validate_client_metrics_configs("m", configs),
        client_metrics_config,
        describe_client_metrics,
    ),
)
LEAST = {"topic": 25, "broker": 100, "group": 2, "client-metrics": 2}
"""How many configs of a kind are known to refuse something."""


def upgraded(each: Resource, stored: Mapping[str, str]) -> ControllerCluster:
    """Return a cluster with metadata from an older version, read back from its snapshot."""
    controllers = ControllerCluster()
    controllers.start(1)
    controllers.create("t")
    store(controllers, each, stored)
    assert controllers.image.config(*each.resource) == stored
    return controllers


def store(controllers: ControllerCluster, each: Resource, stored: Mapping[str, str]) -> None:
    """Write configs as an older version did, and have the snapshot read back."""
    records = tuple(ConfigChanged(*each.resource, key, text) for key, text in stored.items())
    controllers.journal.append(encode_batch(Batch(controllers.term, controllers.image.offset, records)))
    controllers.commit()
    controllers.restart_from_snapshot(1)
    controllers.elect(1)


def alter(controllers: ControllerCluster, each: Resource, key: str, value: str | None, op: int) -> int:
    alteration = ConfigAlteration(*each.resource, (ConfigOp(key, value, op),))
    return int(controllers.ask(AlterConfigs((alteration,))).results[0].error_code)


@pytest.fixture(params=RESOURCES, ids=lambda each: "-".join(each.resource).strip("-"))
def kind(request: pytest.FixtureRequest) -> Resource:
    found: Resource = request.param
    return found


def test_most_configs_refuse_something(kind: Resource) -> None:
    """Else the other tests show little."""
    assert len(kind.refused()) >= LEAST[kind.resource[0]]
    assert len(kind.settable()) > 0


def test_what_is_refused_today_is_passed_over_and_shown(kind: Resource) -> None:
    """One by one and all at once: a default is in force, and DescribeConfigs shows the stored value."""
    stored = kind.refused()
    for few in ({}, *({name: text} for name, text in stored.items()), {**stored, FORGOTTEN: "1"}):
        kind.in_force(few)
        shown = {synonym.value for entry in kind.describe(few) for synonym in entry.synonyms}
        for name in few:
            assert name == FORGOTTEN or kind.rows[name].sensitive or few[name] in shown, name


def test_every_other_config_is_changed_beside_configs_that_are_refused_today(kind: Resource) -> None:
    """Each is set to a sound value and deleted, with all others as an older version stored them."""
    stored = {**kind.refused(), FORGOTTEN: "1"}
    settable = kind.settable()
    controllers = upgraded(kind, stored)
    for name, text in settable.items():
        assert alter(controllers, kind, name, text, SET) == 0, name
        assert controllers.image.config(*kind.resource)[name] == text
        assert alter(controllers, kind, name, None, DELETE) == 0, name
        before = stored.pop(name, None)
        assert controllers.image.config(*kind.resource) == stored
        if before is not None:
            stored[name] = before
            store(controllers, kind, {name: before})


def test_what_is_refused_today_is_deleted(kind: Resource) -> None:
    """One after the other, until all are gone."""
    left = {**kind.refused(), FORGOTTEN: "1"}
    controllers = upgraded(kind, left)
    for name in tuple(left):
        assert alter(controllers, kind, name, None, DELETE) == 0, name
        del left[name]
        assert controllers.image.config(*kind.resource) == left


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
def test_a_list_that_is_refused_today_is_judged_when_it_changes(kind: Resource, op: int) -> None:
    """An answer comes for each, and what it leaves behind is accepted."""
    stored = kind.refused()
    for name, row in kind.rows.items():
        if row.kind != "list":
            continue
        for few in ({}, {name: stored.get(name, "a")}):
            controllers = upgraded(kind, few)
            if alter(controllers, kind, name, "a", op) == 0:
                after = controllers.image.config(*kind.resource)
                assert after == few or not kind._refuses(name, after[name]), name


def test_a_refused_value_is_refused_anew(kind: Resource) -> None:
    """Only what stands there already may stay."""
    stored = kind.refused()
    controllers = upgraded(kind, {})
    for name, text in stored.items():
        assert alter(controllers, kind, name, text, SET) == InvalidConfig.code, name


TOPIC, GROUP = RESOURCES[0], RESOURCES[3]


def test_configs_that_contradict_each_other_since_long_ago_block_no_third() -> None:
    """A change of either is judged."""
    stored = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    controllers = upgraded(TOPIC, stored)
    assert alter(controllers, TOPIC, "retention.ms", "7", SET) == 0
    assert alter(controllers, TOPIC, "max.compaction.lag.ms", "6", SET) == InvalidConfig.code
    assert alter(controllers, TOPIC, "max.compaction.lag.ms", "60", SET) == 0


def test_a_groups_value_from_wider_bounds_blocks_no_other() -> None:
    """It counts as the bound: a session must be longer than a heartbeat interval still."""
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    controllers = upgraded(GROUP, {heartbeat: "1000000"})
    assert alter(controllers, GROUP, session, "60000", SET) == 0
    assert alter(controllers, GROUP, session, None, DELETE) == 0
    assert alter(controllers, GROUP, session, "1000000", SET) == InvalidConfig.code


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
def test_a_list_that_a_running_broker_does_not_change_is_refused(op: int) -> None:
    """Its items are no texts in the config of a node, and the controller failed over them."""
    for each in RESOURCES[1:3]:
        controllers = upgraded(each, {})
        for name in ("listeners", "process.roles", "controller.quorum.voters"):
            assert alter(controllers, each, name, "PLAINTEXT://:9092", op) == InvalidConfig.code
