"""raftlog.base.config.tls: what holds for each listener, and which settings keep a node from starting."""

from __future__ import annotations

import pytest

from raftlog.base import config
from raftlog.base.config import ConfigFaults, NodeConfig, load_config
from raftlog.base.config.describe import describe_broker
from raftlog.base.config.files import LISTENER_VARIABLE, parse_environment

LISTENERS = {"listeners": "SSL://:9092,INSIDE://:9094,CONTROLLER://:9093"} | {
    "listener.security.protocol.map": "SSL:SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}
FILES = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/tls/node.pem",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/tls/ca.pem",
}


def faults_of(*settings: dict[str, str]) -> dict[str, str]:
    merged = LISTENERS.copy()
    for each in settings:
        merged |= each
    try:
        load_config(merged)
    except ConfigFaults as error:
        return {fault.name: fault.rule for fault in error.faults}
    return {}


def test_a_listener_has_the_settings_of_all_unless_it_has_its_own() -> None:
    """Kafka's listener.name.NAME.ssl..., for one listener only."""
    two = {
        "listeners": "SSL://:9092,PARTNERS://:9095,INSIDE://:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": "SSL:SSL,PARTNERS:SASL_SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "raftlog.cluster.secret": "s" * 32,
        "listener.name.partners.ssl.client.auth": "required",
        "listener.name.partners.ssl.keystore.location": "/tls/partners.pem",
        "listener.name.partners.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    }
    tls = load_config(LISTENERS | FILES | two).tls
    assert tls.keys() == {"SSL", "PARTNERS"}
    plain, partners = tls["SSL"], tls["PARTNERS"]
    assert (plain.ssl_client_auth, partners.ssl_client_auth) == ("none", "required")
    assert (plain.ssl_keystore_location, partners.ssl_keystore_location) == (
        "/tls/node.pem",
        "/tls/partners.pem",
    )
    assert plain.ssl_truststore_location == partners.ssl_truststore_location == "/tls/ca.pem"
    assert partners.names["ssl_client_auth"] == "listener.name.partners.ssl.client.auth"
    assert plain.names["ssl_client_auth"] == "ssl.client.auth"


def test_the_environment_has_settings_of_one_listener_too() -> None:
    """A container has no file: it gets all of its settings so, and a mistake is blamed on the setting."""
    own = {"RAFTLOG_LISTENER_NAME_SSL_SSL_CLIENT_AUTH": "required"}
    assert load_config(LISTENERS | FILES, environment=own).tls["SSL"].ssl_client_auth == "required"
    with pytest.raises(
        ConfigFaults, match=r"listener\.name\.ssl\.ssl\.client\.auth: .*'yes' \(environment\)"
    ):
        load_config(LISTENERS | FILES, environment=dict.fromkeys(own, "yes"))
    with pytest.raises(ConfigFaults, match="no listener ELSEWHERE has SSL"):
        load_config(LISTENERS, environment={"RAFTLOG_LISTENER_NAME_ELSEWHERE_SSL_CLIENT_AUTH": "required"})


def test_every_setting_of_one_listener_is_known_by_its_variable() -> None:
    """Settings for logins, tokens and limits as well: every setting of a file can come from the environment."""
    for setting in config._OF_LISTENERS:
        variable = f"{LISTENER_VARIABLE}MY_OWN_{setting.upper().replace('.', '_').replace('-', '_')}"
        found, strangers = parse_environment({variable: "x"}, (), config._OF_LISTENERS)
        assert found == {f"listener.name.my_own.{setting}": "x"} and not strangers
        assert any(split(*found) is not None for split in config._SPLIT_OVERRIDES)


@pytest.mark.parametrize(
    ("settings", "blamed", "says"),
    [
        ({}, "ssl.keystore.location", "needs a certificate"),
        ({"ssl.keystore.location": "/tls/keys.jks"}, "ssl.keystore.type", "is JKS, which only Java reads"),
        (
            FILES | {"listener.name.ssl.ssl.keystore.type": "JKS"},
            "listener.name.ssl.ssl.keystore.type",
            "is JKS, which only Java reads",
        ),
        (FILES | {"ssl.truststore.type": "JKS"}, "ssl.truststore.type", "is JKS"),
        (FILES | {"ssl.keystore.type": "BKS"}, "ssl.keystore.type", "must be one of JKS, PEM, PKCS12"),
        (FILES | {"ssl.client.auth": "yes"}, "ssl.client.auth", "must be one of required, requested, none"),
        (
            FILES | {"ssl.truststore.location": "", "ssl.client.auth": "required"},
            "ssl.truststore.location",
            "needs it for the trusted authorities",
        ),
        (FILES | {"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.location", "set one of both"),
        (FILES | {"ssl.truststore.certificates": "x"}, "ssl.truststore.location", "set one of both"),
        (FILES | {"ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain", "belong together"),
        (FILES | {"ssl.keystore.password": "x"}, "ssl.keystore.password", "is for PKCS12"),
        (FILES | {"ssl.truststore.password": "x"}, "ssl.truststore.password", "is for PKCS12"),
        (
            FILES | {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
            "ssl.key.password",
            "a PKCS12 store has one password",
        ),
        (
            FILES | {"ssl.enabled.protocols": "TLSv1.1"},
            "ssl.enabled.protocols",
            "must be TLSv1.2, TLSv1.3, or both",
        ),
        (FILES | {"ssl.enabled.protocols": ""}, "ssl.enabled.protocols", "must name a version"),
        (
            FILES | {"ssl.principal.mapping.rules": "RULE:x"},
            "ssl.principal.mapping.rules",
            "must be DEFAULT or",
        ),
        (FILES | {"ssl.cipher.suites": "X"}, "ssl.cipher.suites", "does not carry out this setting of TLS"),
        (
            FILES | {"listener.name.inside.ssl.client.auth": "required"},
            "listener.name.inside.ssl.client.auth",
            "no listener INSIDE has SSL",
        ),
    ],
)
def test_what_cannot_be_secured_as_asked_keeps_a_node_from_starting(
    settings: dict[str, str], blamed: str, says: str
) -> None:
    """By the name of the setting, and all at once."""
    assert says in faults_of(settings)[blamed]


def test_settings_of_tls_without_a_listener_for_them_keep_a_node_from_starting() -> None:
    """With certificates configured, an operator expects TLS."""
    plain = {"listener.security.protocol.map": "SSL:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    assert "no listener has SSL or SASL_SSL" in faults_of(FILES, plain)["ssl.keystore.location"]
    assert not faults_of(plain, {"ssl.client.auth": "none", "ssl.endpoint.identification.algorithm": ""})


def test_no_key_and_no_password_is_shown() -> None:
    """Neither in a text form, nor by DescribeConfigs, nor in a fault."""
    secret = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "hush1",
        "ssl.keystore.key": "hush2",
        "ssl.key.password": "hush3",
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.certificates": "hush4",
    }
    node = load_config(LISTENERS | secret)
    assert isinstance(node, NodeConfig)
    shown = repr(node) + repr(node.given) + repr(describe_broker(node, cluster_dynamic={}, broker_dynamic={}))
    assert "hush" not in shown
    assert "hush" not in str(faults_of(secret, {"ssl.keystore.password": "hush5"}))


def test_controllers_elsewhere_need_no_certificate_of_a_broker_that_only_connects() -> None:
    """As with Kafka, its keystore is for controllers that require client certificates; a truststore alone suffices."""
    settings = {
        "process.roles": "broker",
        "node.id": "4",
        "listeners": "PLAINTEXT://:9092",
        "controller.quorum.voters": "1@a:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "listener.name.controller.ssl.truststore.type": "PEM",
        "listener.name.controller.ssl.truststore.location": "/tls/ca.pem",
    }
    tls = load_config(settings).tls
    assert tls.keys() == {"CONTROLLER"}
    assert tls["CONTROLLER"].ssl_truststore_location == "/tls/ca.pem"
    votes = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    }
    with pytest.raises(ConfigFaults, match=r"listener CONTROLLER speaks TLS and needs a certificate"):
        load_config(settings | votes)
