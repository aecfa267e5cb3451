"""raftlog.base.config.oauth: what holds for each listener, and which settings keep a node from starting."""

from __future__ import annotations

import pytest

from raftlog.base.config import ConfigFaults, NodeConfig, load_config
from raftlog.base.config.describe import describe_broker
from raftlog.base.config.oauth import ListenerOauth, Trust

FILE_URL = "file:///etc/raftlog/my%20keys.json"
URL = "https://identity.test/keys"
LISTENERS = {
    "listeners": "CLIENTS://:9092,PARTNERS://:9095,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PARTNERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "raftlog.cluster.secret": "s" * 32,
}
OFFERED = {"listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER"}
FILE = {"sasl.oauthbearer.jwks.endpoint.url": FILE_URL}
JAAS = "listener.name.clients.oauthbearer.sasl.jaas.config"
HANDLER = "listener.name.clients.oauthbearer.sasl.server.callback.handler.class"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule required"


def loaded(*settings: dict[str, str]) -> NodeConfig:
    merged = LISTENERS.copy()
    for each in settings:
        merged |= each
    return load_config(merged)


def faults_of(*settings: dict[str, str]) -> dict[str, str]:
    try:
        loaded(*settings)
    except ConfigFaults as error:
        return {fault.name: fault.rule for fault in error.faults}
    return {}


def oauth_of(*settings: dict[str, str]) -> ListenerOauth:
    return loaded(OFFERED, FILE, *settings).oauth["CLIENTS"]


def test_a_listener_that_offers_tokens_has_the_keys_of_a_file() -> None:
    """A file: URL needs no leave: the setting itself names it. Others have no keys."""
    config = loaded(OFFERED, FILE)
    assert config.oauth.keys() == {"CLIENTS"}
    found = config.oauth["CLIENTS"]
    assert (found.jwks_path, found.oauth_sub_claim, found.oauth_clock_skew_seconds) == (
        "/etc/raftlog/my keys.json",
        "sub",
        30,
    )
    assert not [each for each in config.warnings if "clear" in each.event]


def test_a_listener_has_the_settings_of_all_unless_it_has_its_own() -> None:
    """The mechanism's own name wins over the listener's, as in Kafka."""
    narrow = "listener.name.clients.oauthbearer.sasl.oauthbearer.expected.issuer"
    wide = "listener.name.clients.sasl.oauthbearer.expected.issuer"
    of_all = {"sasl.oauthbearer.expected.issuer": "all", "sasl.oauthbearer.expected.audience": "a, b"}
    assert oauth_of(of_all).oauth_expected_issuer == "all"
    assert oauth_of(of_all, {wide: "wide"}).oauth_expected_issuer == "wide"
    for order in ({wide: "wide", narrow: "narrow"}, {narrow: "narrow", wide: "wide"}):
        found = oauth_of(of_all, order)
        assert (found.oauth_expected_issuer, found.oauth_expected_audience) == ("narrow", ("a", "b"))
        assert found.names["oauth_expected_issuer"] == narrow


def test_what_an_administrator_of_kafka_writes_is_taken() -> None:
    """The handler that verifies tokens, by both of its names, and the module without options."""
    for package in (PACKAGE, f"{PACKAGE}.secured"):
        found = oauth_of({HANDLER: f"{package}.OAuthBearerValidatorCallbackHandler", JAAS: f"{MODULE};"})
        assert found.trust == Trust()


def test_the_jaas_line_says_which_authority_the_providers_certificate_is_of() -> None:
    """As in Kafka; the password is never shown."""
    line = f'{MODULE} ssl.truststore.location="/ca.p12" ssl.truststore.type="PKCS12" ssl.truststore.password="hush";'
    address = {"sasl.oauthbearer.jwks.endpoint.url": URL, "raftlog.sasl.oauthbearer.allowed.urls": URL}
    config = loaded(OFFERED, address, {JAAS: line})
    assert config.oauth["CLIENTS"].trust == Trust("/ca.p12", "PKCS12", "hush")
    assert "hush" not in repr(config) + repr(config.oauth)


@pytest.mark.parametrize(
    ("settings", "blamed", "says"),
    [
        ({}, "sasl.oauthbearer.jwks.endpoint.url", "takes signed tokens only"),
        (
            FILE | {"sasl.oauthbearer.jwks.endpoint.url": "keys.json"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "https:",
        ),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "file:keys.json"},
            "sasl.oauthbearer.jwks.endpoint.url",
            "absolute path",
        ),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/y"}, "sasl.oauthbearer.jwks.endpoint.url", "https:"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": URL},
            "sasl.oauthbearer.jwks.endpoint.url",
            f"add {URL} there",
        ),
        (
            {
                "sasl.oauthbearer.jwks.endpoint.url": URL,
                "raftlog.sasl.oauthbearer.allowed.urls": f"{URL}/more,https://identity.test",
            },
            "sasl.oauthbearer.jwks.endpoint.url",
            "allowed.urls does not name",
        ),
        (FILE | {JAAS: f'{MODULE} unsecuredLoginStringClaim_sub="admin";'}, JAAS, "requires signed tokens"),
        (FILE | {JAAS: f'{MODULE} clientSecret="hush";'}, JAAS, "brokers do not log in"),
        (
            FILE | {JAAS: "org.apache.kafka.common.security.plain.PlainLoginModule required;"},
            JAAS,
            "of PLAIN",
        ),
        (FILE | {JAAS: "com.sun.security.auth.module.JndiLoginModule required;"}, JAAS, "must be one of"),
        (
            FILE | {JAAS: f'{MODULE} ssl.truststore.location="/ca.pem";'},
            "sasl.oauthbearer.jwks.endpoint.url",
            "https",
        ),
        (FILE | {JAAS: f'{MODULE} ssl.truststore.type="JKS";'}, JAAS, "PEM or PKCS12"),
        (FILE | {HANDLER: "org.example.TakesAll"}, HANDLER, "loads no Java classes"),
        (
            FILE | {"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "20000"},
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "must be at most",
        ),
        (
            FILE | {"sasl.oauthbearer.sub.claim.name": ""},
            "sasl.oauthbearer.sub.claim.name",
            "must name a claim",
        ),
        (
            FILE | {"sasl.oauthbearer.clock.skew.seconds": "-1"},
            "sasl.oauthbearer.clock.skew.seconds",
            "at least 0",
        ),
        (
            FILE | {"listener.name.partners.sasl.oauthbearer.expected.issuer": "x"},
            "listener.name.partners.sasl.oauthbearer.expected.issuer",
            "no listener PARTNERS offers OAUTHBEARER",
        ),
    ],
)
def test_a_node_that_cannot_verify_tokens_does_not_start(
    settings: dict[str, str], blamed: str, says: str
) -> None:
    """The fault names the setting, and what to write; a JAAS line is never repeated."""
    faults = faults_of(OFFERED, settings)
    assert says in faults[blamed]
    assert "hush" not in str(faults)


def test_settings_of_tokens_without_a_listener_for_them_are_refused() -> None:
    """A setting about security that would have no effect: the operator meant something by it."""
    assert "no listener offers OAUTHBEARER" in faults_of(FILE)["sasl.oauthbearer.jwks.endpoint.url"]
    assert not faults_of({"sasl.oauthbearer.scope.claim.name": "scope"})


def test_keys_that_others_could_replace_are_warned_of() -> None:
    """An http: address beyond loopback, though the operator allowed it."""
    for host, warned in (("identity.test", True), ("127.0.0.1", False)):
        url = f"http://{host}/keys"
        config = loaded(
            OFFERED,
            {"sasl.oauthbearer.jwks.endpoint.url": url, "raftlog.sasl.oauthbearer.allowed.urls": url},
        )
        assert ("keys_fetched_in_the_clear" in [each.event for each in config.warnings]) == warned


def test_describe_configs_shows_them() -> None:
    """As Kafka does."""
    rows = {
        row.name: row for row in describe_broker(loaded(OFFERED, FILE), cluster_dynamic={}, broker_dynamic={})
    }
    assert rows["sasl.oauthbearer.jwks.endpoint.url"].value == FILE_URL
    assert rows["sasl.oauthbearer.expected.audience"].value == ""
    assert rows["sasl.oauthbearer.clock.skew.seconds"].value == "30"


@pytest.mark.parametrize(
    "url", ["https://alice:hush@x/", "ftp://alice:hush@x/", "file://alice:hush@x/y", "//hush@x"]
)
@pytest.mark.parametrize(
    "name",
    [
        "sasl.oauthbearer.jwks.endpoint.url",
        "listener.name.clients.sasl.oauthbearer.jwks.endpoint.url",
        "raftlog.sasl.oauthbearer.allowed.urls",
    ],
)
def test_a_password_in_an_address_is_refused_without_being_repeated(name: str, url: str) -> None:
    """Else addresses are in the log, in errors and in DescribeConfigs, whole."""
    rule = faults_of(OFFERED, FILE, {name: url})[name]
    assert "not contain a user or password" in rule and "hush" not in rule and "alice" not in rule
