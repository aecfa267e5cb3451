"""Dynamic configs: operations, validation, and what they set off (KIP-226, KIP-339)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from raftlog.base.config import load_config
from raftlog.base.config.client_metrics import MOST_SUBSCRIPTIONS
from raftlog.base.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from raftlog.metadata.controller_api import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
)
from raftlog.metadata.effective_config import effective_broker_config
from tests.controller.controller_cluster import ControllerCluster

pytestmark = pytest.mark.brokers(1, 2, 3, t=((1,),))


def alter(
    controllers: ControllerCluster,
    *ops: ConfigOp,
    resource: tuple[str, str] = ("topic", "t"),
    replace: bool = False,
    validate_only: bool = False,
) -> int:
    """Alter one resource; returns the error code."""
    alteration = ConfigAlteration(*resource, ops)
    reply = controllers.ask(AlterConfigs((alteration,), replace, validate_only))
    return reply.results[0].error_code


def test_set_and_delete_touch_only_what_they_name(controllers: ControllerCluster) -> None:
    """Incremental alteration keeps the other configs."""
    assert alter(controllers, ConfigOp("retention.ms", "1"), ConfigOp("segment.bytes", "1000")) == 0
    assert alter(controllers, ConfigOp("retention.ms", None, DELETE)) == 0
    assert controllers.image.config("topic", "t") == {"segment.bytes": "1000"}


def test_replacing_drops_what_is_not_named(controllers: ControllerCluster) -> None:
    """The old AlterConfigs names the complete new set."""
    alter(controllers, ConfigOp("retention.ms", "1"), ConfigOp("segment.bytes", "1000"))
    assert alter(controllers, ConfigOp("retention.ms", "2"), replace=True) == 0
    assert controllers.image.config("topic", "t") == {"retention.ms": "2"}


def test_an_item_that_is_appended_twice_at_once_is_there_once(controllers: ControllerCluster) -> None:
    """As in Kafka, and as if it were appended by two operations."""
    controllers.create("doubled")
    op = ConfigOp("cleanup.policy", "compact,compact", APPEND)
    assert alter(controllers, op, resource=("topic", "doubled")) == 0
    assert controllers.image.config("topic", "doubled") == {"cleanup.policy": "delete,compact"}


def test_append_and_subtract_start_from_what_holds(controllers: ControllerCluster) -> None:
    """Lists grow from the default if unset; items are not repeated (KIP-339)."""
    offsets = ("topic", "__consumer_offsets")
    controllers.create("__consumer_offsets")
    assert alter(controllers, ConfigOp("cleanup.policy", "compact,delete", APPEND), resource=offsets) == 0
    assert controllers.image.config(*offsets) == {"cleanup.policy": "delete,compact"}
    assert alter(controllers, ConfigOp("cleanup.policy", "delete", SUBTRACT), resource=offsets) == 0
    assert controllers.image.config(*offsets) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (ConfigOp("retention.ms", "5", APPEND), InvalidConfig),
        (ConfigOp("no.such", "5", APPEND), InvalidConfig),
        (ConfigOp("no.such", "5"), InvalidConfig),
        (ConfigOp("retention.ms", "soon"), InvalidConfig),
        (ConfigOp("retention.ms", None), InvalidConfig),
        (ConfigOp("compression.type", "x" * 40_000), InvalidConfig),
        (ConfigOp("cleanup.policy", "shred"), InvalidConfig),
        (ConfigOp("cleanup.policy", "delete,,compact"), InvalidConfig),
        (ConfigOp("cleanup.policy", "", APPEND), InvalidConfig),
        (ConfigOp("retention.ms", "5", 9), InvalidRequest),
    ],
)
def test_faulty_operations_change_nothing(
    controllers: ControllerCluster, op: ConfigOp, error: type[KafkaError]
) -> None:
    """A resource is altered wholly or not at all."""
    batches = len(controllers.journal)
    assert alter(controllers, ConfigOp("segment.bytes", "1000"), op) == error.code
    assert len(controllers.journal) == batches


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (("topic", "x"), UnknownTopicOrPartition),
        (("topic", "a b"), InvalidTopic),
        (("topic", ""), InvalidRequest),
        (("broker", "9"), BrokerIdNotRegistered),
        (("broker", "one"), BrokerIdNotRegistered),
        (("group", ""), InvalidRequest),
        (("client", "c"), InvalidRequest),
    ],
)
def test_unknown_resources_have_their_own_errors(
    controllers: ControllerCluster, resource: tuple[str, str], error: type[KafkaError]
) -> None:
    """Each kind of resource has its own code."""
    assert alter(controllers, ConfigOp("message.max.bytes", "1000"), resource=resource) == error.code


def test_broker_configs_for_one_and_for_all(controllers: ControllerCluster) -> None:
    """Dynamic broker configs are kept per broker and cluster-wide; read-only configs are refused."""
    assert alter(controllers, ConfigOp("message.max.bytes", "1000"), resource=("broker", "")) == 0
    assert alter(controllers, ConfigOp("message.max.bytes", "2000"), resource=("broker", "1")) == 0
    assert alter(controllers, ConfigOp("node.id", "7"), resource=("broker", "1")) == InvalidConfig.code
    assert controllers.image.config("broker", "") == {"message.max.bytes": "1000"}
    assert controllers.image.config("broker", "1") == {"message.max.bytes": "2000"}


def test_group_configs_need_no_group_and_outlive_leaders_and_snapshots() -> None:
    """They are kept like topic configs; an unknown config is refused (KIP-1142)."""
    controllers = ControllerCluster(controllers=2)
    controllers.start(1)
    group = ("group", "to-come")
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert alter(controllers, ConfigOp(session, "50000"), ConfigOp(heartbeat, "6000"), resource=group) == 0
    for wrong in (
        ConfigOp(session, "1"),
        ConfigOp(session, "50000", APPEND),
        ConfigOp("share.session.timeout.ms", "5000"),
        ConfigOp("streams.session.timeout.ms", "50000"),
        ConfigOp("retention.ms", "1"),
    ):
        assert alter(controllers, wrong, resource=group) == InvalidConfig.code
    controllers.restart_from_snapshot(2)
    controllers.elect(2)
    assert alter(controllers, ConfigOp(heartbeat, None, DELETE), resource=group) == 0
    assert controllers.image.configs == {group: {session: "50000"}}
    assert alter(controllers, ConfigOp(heartbeat, "7000"), resource=group, replace=True) == 0
    assert controllers.image.configs == {group: {heartbeat: "7000"}}
    assert alter(controllers, resource=group, replace=True) == 0
    assert controllers.image.configs == {}


def test_named_twice_is_refused(controllers: ControllerCluster) -> None:
    """A resource twice in a request, a key twice in a resource: it is unclear which holds."""
    op = ConfigOp("retention.ms", "1")
    assert alter(controllers, op, op) == InvalidRequest.code
    alteration = ConfigAlteration("topic", "t", (op,))
    (result,) = controllers.ask(AlterConfigs((alteration, alteration))).results
    assert result.error_code == InvalidRequest.code
    assert controllers.image.configs == {}


def test_setting_what_is_set_writes_nothing(controllers: ControllerCluster) -> None:
    """Only differences are records; validate_only writes none."""
    alter(controllers, ConfigOp("retention.ms", "1"))
    batches = len(controllers.journal)
    assert alter(controllers, ConfigOp("retention.ms", "1", SET)) == 0
    assert alter(controllers, ConfigOp("retention.ms", "2"), validate_only=True) == 0
    assert len(controllers.journal) == batches


@pytest.mark.parametrize("resource", [("topic", "t2"), ("broker", "")])
def test_allowing_unclean_elections_elects_at_once(
    controllers: ControllerCluster, resource: tuple[str, str]
) -> None:
    """A partition that is offline when an operator allows it comes online with the data that is there."""
    controllers.assign("t2", (3, 2))
    controllers.die(2)
    controllers.die(3)
    controllers.come_back(2)
    assert (controllers.partition("t2").leader, controllers.partition("t2").isr) == (-1, (3,))
    assert alter(controllers, ConfigOp("unclean.leader.election.enable", "true"), resource=resource) == 0
    assert (controllers.partition("t2").leader, controllers.partition("t2").isr) == (2, (2,))


def test_what_is_accepted_without_effect_is_warned_about_in_the_log(controllers: ControllerCluster) -> None:
    """A tool that sets all of Kafka's settings succeeds, and the log names the settings without effect."""
    with capture_logs() as logs:
        resource = ("broker", "")
        assert alter(controllers, ConfigOp("num.io.threads", "9"), resource=resource) == 0
        assert alter(controllers, ConfigOp("num.io.threads", None, DELETE), resource=resource) == 0
        assert alter(controllers, ConfigOp("max.connections", "9"), resource=resource) == 0
    (warning,) = [each for each in logs if each["log_level"] == "warning"]
    assert (warning["event"], warning["key"]) == ("config_without_effect", "num.io.threads")
    assert "without effect" in warning["reason"]
    assert controllers.image.config("broker", "") == {"max.connections": "9"}


def test_the_settings_in_force_are_the_brokers_own_over_those_of_all_brokers(
    controllers: ControllerCluster,
) -> None:
    """KIP-226, for the subscribers to changes at run time."""
    node = load_config({"max.connections": "1", "max.connections.per.ip": "1"})
    alter(controllers, ConfigOp("max.connections", "5"), resource=("broker", ""))
    alter(controllers, ConfigOp("max.connections.per.ip", "5"), resource=("broker", ""))
    alter(controllers, ConfigOp("max.connections", "7"), resource=("broker", "1"))
    found = effective_broker_config(node, controllers.image)
    assert (found.max_connections, found.max_connections_per_ip) == (7, 5)
    alter(controllers, ConfigOp("max.connections", None, DELETE), resource=("broker", "1"))
    alter(controllers, ConfigOp("max.connections", None, DELETE), resource=("broker", ""))
    assert effective_broker_config(node, controllers.image).max_connections == 1


def test_client_metrics_subscriptions_are_checked_and_bounded(controllers: ControllerCluster) -> None:
    """KIP-714's three configs; expressions are cheap expressions of RE2, and the number of subscriptions is bounded."""
    resource = ("client-metrics", "m")
    good = (
        ConfigOp("metrics", "org.apache.kafka.producer.,*"),
        ConfigOp("interval.ms", "1000"),
        ConfigOp("match", "client_id=app-.*, client_software_version=1[.].*"),
    )
    assert alter(controllers, *good, resource=resource) == 0
    assert alter(controllers, ConfigOp("metrics", "x", APPEND), resource=("client-metrics", "n")) == 0
    assert controllers.image.config("client-metrics", "n") == {"metrics": "x"}
    for key, value in (
        ("interval.ms", "99"),
        ("match", "client_id"),
        ("match", "colour=red"),
        ("match", "client_id=("),
        ("match", "client_id=(a{50}){50}"),
        ("nonsense", "1"),
    ):
        assert alter(controllers, ConfigOp(key, value), resource=resource) == InvalidConfig.code, (key, value)
    assert alter(controllers, *good, resource=("client-metrics", "")) == InvalidConfig.code
    alterations = tuple(
        ConfigAlteration("client-metrics", f"s{number}", (ConfigOp("interval.ms", "1000"),))
        for number in range(MOST_SUBSCRIPTIONS)
    )
    codes = [each.error_code for each in controllers.ask(AlterConfigs(alterations, False, False)).results]
    assert codes == [0] * (MOST_SUBSCRIPTIONS - 2) + [PolicyViolation.code] * 2
    assert alter(controllers, ConfigOp("interval.ms", None, DELETE), resource=("client-metrics", "s0")) == 0
    assert alter(controllers, ConfigOp("interval.ms", "1000"), resource=("client-metrics", "last")) == 0
