"""raftlog.broker.network.controller_clients: which Kafka clients get in at the controllers' listener (KIP-919)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from raftlog.base.config import load_config
from raftlog.base.config.broker import NodeConfig
from raftlog.base.config.network import Listener
from raftlog.base.config.security import ListenerLogins
from raftlog.base.config.tls import ListenerTls
from raftlog.broker.network.controller_clients import SETTING, why_refused
from raftlog.broker.rights import client_demands_of, make_authorizer
from raftlog.metadata.features import client_demands
from raftlog.metadata.image import BrokerState, Endpoint, MetadataImage, SupportedFeature
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.broker.fakes import FakePartitionServer, api_versions
from tests.broker.network.test_server import door

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RULE = Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:al", "*", Operation.READ, Permission.ALLOW)


def demanding(*listeners: str) -> Mapping[str, ListenerTls]:
    """Return the TLS of listeners that demand certificates."""
    return {each: ListenerTls(listener=each, ssl_client_auth="required") for each in listeners}


def seen(
    *protocols: str, rules: tuple[Acl, ...] = (), features: tuple[SupportedFeature, ...] = ()
) -> MetadataImage:
    """Return the metadata of a cluster with a broker that has listeners with these protocols."""
    endpoints = tuple(Endpoint(each, "h", 9092, each) for each in protocols)
    broker = BrokerState(7, 1, UUID(int=7), endpoints, fenced=False, features=features)
    brokers = {7: broker} if protocols else {}
    return MetadataImage(brokers=brokers, acls=dict.fromkeys(rules, True))


def refusal(image: MetadataImage, *, with_rules: bool = False, **config: Any) -> str | None:
    """Return what a controller that is no broker says to Kafka clients."""
    fake = FakePartitionServer(
        controller_listener_names=("CONTROLLER",),
        roles=frozenset({"controller"}),
        listeners=(Listener("CONTROLLER", "", 9093),),
        authorizer_class_name=AUTHORIZER if with_rules else "",
        **config,
    )
    fake.image = image
    fake.broker.authorizer = make_authorizer(fake.broker.config)
    return why_refused(fake.broker)


async def test_no_kafka_client_gets_in_by_default() -> None:
    """Neither rules nor open brokers let a stranger in: a setting or a certificate has to."""
    for image in (seen(), seen("PLAINTEXT"), seen("SASL_SSL", rules=(RULE,))):
        for with_rules in (True, False):
            assert f"or {SETTING}=true" in str(refusal(image, with_rules=with_rules))
    assert refusal(seen("PLAINTEXT"), tls=demanding("CONTROLLER")) is None
    assert refusal(seen("PLAINTEXT"), controller_anonymous_clients=True) is None
    for asked in ("none", "requested"):
        tls = {"CONTROLLER": ListenerTls(listener="CONTROLLER", ssl_client_auth=asked)}
        assert refusal(seen("PLAINTEXT"), tls=tls) is not None


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
async def test_a_controller_admits_no_client_without_a_login_if_brokers_require_it(protocol: str) -> None:
    """It has no listener of brokers itself, so it goes by what they have registered."""
    image = seen("PLAINTEXT", protocol)
    assert "log in or show certificates" in str(refusal(image, controller_anonymous_clients=True))
    assert refusal(image, tls=demanding("CONTROLLER")) is None
    assert refusal(image, controller_anonymous_clients=True, with_rules=True) is None


async def test_a_controller_without_the_clusters_acls_admits_no_client() -> None:
    """A certificate is no right: brokers would ask the rules."""
    judging = client_demands(rules=True, certificates=False)
    for image in (seen("PLAINTEXT", rules=(RULE,)), seen("PLAINTEXT", features=judging)):
        for way in ({"controller_anonymous_clients": True}, {"tls": demanding("CONTROLLER")}):
            assert "has no authorizer" in str(refusal(image, **way))
            assert refusal(image, with_rules=True, **way) is None


@pytest.mark.parametrize("certificates", [True, False])
async def test_a_controller_goes_by_whether_brokers_demand_certificates(certificates: bool) -> None:
    """TLS alone is no login."""
    image = seen("SSL", features=client_demands(rules=False, certificates=certificates))
    assert (refusal(image, controller_anonymous_clients=True) is None) == (not certificates)


def test_a_broker_registers_its_demands() -> None:
    """The demands of its own listeners, not of the controllers'."""
    listeners = (Listener("A", "", 1, "SSL"), Listener("CONTROLLER", "", 2, "SSL"))
    for asking, rules in (((), ""), (("CONTROLLER",), AUTHORIZER), (("A",), "")):
        config = NodeConfig(
            listeners=listeners,
            controller_listener_names=("CONTROLLER",),
            tls=demanding(*asking),
            authorizer_class_name=rules,
        )
        assert client_demands_of(config) == client_demands(rules=bool(rules), certificates="A" in asking)


async def test_a_node_goes_by_its_own_listeners_as_well() -> None:
    """Before any broker has registered, it uses its own settings."""
    ways = (
        {"logins": {"CLIENTS": ListenerLogins(("PLAIN",), {"al": "hush"})}},
        {"tls": demanding("CLIENTS")},
    )
    for each in ways:
        assert "log in or show" in str(refusal(seen(), controller_anonymous_clients=True, **each))


async def test_controller_clients_are_refused_until_the_active_controller_was_heard_from() -> None:
    """The rules and brokers that a node knows from before may be others by now."""
    fake = FakePartitionServer(controller_anonymous_clients=True)
    assert why_refused(fake.broker) is None
    fake.broker.in_touch = lambda _controller_id: False
    assert "has no metadata from the active controller" in str(why_refused(fake.broker))


async def test_a_refused_client_gets_no_reason_and_the_log_has_it() -> None:
    """One line says it. Nodes get in as ever."""
    async with door(controller_anonymous_clients=False) as found:
        with capture_logs() as logs:
            client = await found.connect()
            client.writer.write(api_versions(5))
            assert await client.is_closed()
        (told,) = (each for each in logs if each["log_level"] == "warning")
        assert told["event"] == "controller_client_refused"
        assert (told["address"], told["listener"]) == ("127.0.0.1", "CONTROLLER")
        assert SETTING in told["reason"]
        assert found.fake.server.counters.closed_by_broker["controller_client_refused"] == 1
        assert (await found.dial()).opened, "nodes prove the secret"


def test_the_setting_is_off_by_default() -> None:
    """It is one row of the table."""
    assert load_config().controller_anonymous_clients is False
    assert load_config(flags={SETTING: "true"}).controller_anonymous_clients is True
