"""Claims about the broker settings of Apache Kafka 4.3: raftlog has each, keeps it, or refuses it in a true sentence.

`kafka_4_3_broker_configs.txt` is what Kafka's own classes print: name, type, and how a running broker takes it. A test
of tests/interop holds it against them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from raftlog.base.config import (
    ALIASES,
    ConfigFaults,
    NodeConfig,
    broker_config,
    load_config,
    settings_of,
    validate_broker_configs,
    without_effect,
)
from raftlog.base.config.describe import ConfigSource, describe_broker, describe_cluster_default
from raftlog.base.config.kafka import KAFKA_SETTINGS, SECURITY, is_kafkas, missing_security
from raftlog.base.config.resolve import NO_LOGINS
from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.base.config.tls import TlsSettings
from raftlog.base.errors import InvalidConfig
from tests.kit.errors import raises_faults

SAMPLES = {
    "boolean": "true",
    "class": "org.example.Thing",
    "double": "0.5",
    "int": "5",
    "list": "one",
    "long": "5",
    "password": "hush",
    "short": "5",
    "string": "text",
}
REBINDS = {
    "listeners",
    "listener.security.protocol.map",
    "sasl.enabled.mechanisms",
    *settings_of(TlsSettings),
}
"""Dynamic in Kafka; raftlog binds its listeners, and knows how clients log in there, when it starts. New certificates
come with new files.
"""


class Known(NamedTuple):
    """A broker setting of Kafka; `update`: read-only, per-broker or cluster-wide."""

    name: str
    kind: str
    update: str


OF_KAFKA = [
    Known(*line.split())
    for line in (Path(__file__).parent / "kafka_4_3_broker_configs.txt").read_text().splitlines()
]
DYNAMIC = [each for each in OF_KAFKA if each.update != "read-only"]


def refusal_of(name: str, text: str, *, cluster_wide: bool) -> str:
    with pytest.raises(InvalidConfig) as refused:
        validate_broker_configs({name: text}, cluster_wide=cluster_wide)
    return str(refused.value)


def rule_of(name: str, text: str) -> str | None:
    """Return the rule that a file breaks which sets this, None for a file that is taken."""
    try:
        load_config({name: text})
    except ConfigFaults as error:
        return next(fault.rule for fault in error.faults if fault.name == name)
    return None


def test_raftlog_knows_every_broker_setting_of_kafka_as_kafka_has_it():
    """All 363 of Kafka 4.3, 102 of them dynamic, are in two tables with Kafka's type and way of updating."""
    assert (len(OF_KAFKA), len(DYNAMIC)) == (363, 102)
    own = {name: row for name, (_, row) in settings_of(NodeConfig).items()}
    for name, kind, update in OF_KAFKA:
        assert (name in own or name in ALIASES) != (name in KAFKA_SETTINGS), name
        row = own.get(ALIASES.get(name, name)) or KAFKA_SETTINGS[name].row
        if name not in REBINDS:
            assert row.update == update, name
        if name in KAFKA_SETTINGS:
            assert row.kind == kind, name


@pytest.mark.parametrize("known", DYNAMIC, ids=lambda known: known.name)
def test_every_dynamic_broker_setting_of_kafka_is_taken_or_refused_in_a_true_sentence(known: Known):
    """No error calls a setting of Kafka unknown, or suggests the very name that was given."""
    name, kind, update = known
    own = settings_of(NodeConfig).get(name)
    text = own[1].format(own[1].default) if own and own[1].default is not None else SAMPLES[kind]
    wide = update == "cluster-wide"
    if own or KAFKA_SETTINGS[name].is_kept:
        if name in REBINDS:
            assert "cannot be changed while brokers run" in refusal_of(name, text, cluster_wide=wide)
            return
        validate_broker_configs({name: text}, cluster_wide=wide)
        if not wide:
            assert "is per broker" in refusal_of(name, text, cluster_wide=True)
        if not own:
            assert "without effect" in str(without_effect(name))
        return
    said = refusal_of(name, text, cluster_wide=wide)
    assert "no such" not in said and "did you mean" not in said
    assert KAFKA_SETTINGS[name].why in said


@pytest.mark.parametrize("known", OF_KAFKA, ids=lambda known: known.name)
def test_no_broker_setting_of_kafka_is_a_strange_name_in_a_file(known: Known):
    """A file for Kafka starts a node, or is refused for its security with the setting's name."""
    name, kind, _ = known
    if name in settings_of(NodeConfig) or name in ALIASES:
        return
    missing = missing_security(name)
    rule = rule_of(name, SAMPLES[kind])
    assert (rule is not None) == (missing is not None)
    if missing:
        assert rule.startswith(missing)
        assert KAFKA_SETTINGS[name].treatment == "security"


def test_a_kafka_setting_that_raftlog_keeps_is_still_checked_by_its_type():
    """A mistake is not kept, since a tool would show it as in force."""
    assert "must be a whole number" in refusal_of("num.io.threads", "many", cluster_wide=True)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sasl.kerberos.service.name", "raftlog does not carry out this setting of SASL"),
        (
            "num.replica.alter.log.dirs.threads",
            "cannot be changed while brokers run, and has no meaning in raftlog",
        ),
        ("listener.name.external.max.connections", "no such family"),
        ("listener.name.external.ssl.protocol", "raftlog does not carry out this setting of TLS"),
        ("broker.id", "cannot be changed while brokers run"),
        ("nonsense", "there is no such broker config"),
        ("num.io.thread", "did you mean num.io.threads?"),
    ],
)
def test_a_refusal_says_what_is_missing(name: str, says: str):
    """An operator can distinguish a missing feature from a typing mistake."""
    assert says in refusal_of(name, "1", cluster_wide=False)


REFUSED = {
    "config.providers",
    "principal.builder.class",
    "sasl.jaas.config",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.mechanism.inter.broker.protocol",
    "ssl.cipher.suites",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
}
"""Settings that Kafka can change at run time and raftlog lacks.

An operator who relies on them may have a cluster that is less secure than expected, or data in the wrong place. This
list only shrinks.
"""


def test_what_kafka_changes_at_run_time_is_refused_only_where_its_absence_does_harm() -> None:
    """Everything else is stored, with a warning in the log: clients' test suites and tools set some of it."""
    dynamic = {known.name for known in OF_KAFKA if known.update != "read-only"}
    missing = {name for name in dynamic - settings_of(NodeConfig).keys() if not KAFKA_SETTINGS[name].is_kept}
    assert missing == REFUSED
    for name in ("sasl.login.refresh.buffer.seconds", "listener.name.external.sasl.kerberos.kinit.cmd"):
        assert missing_security(name) is None


def test_a_setting_without_effect_is_shown_where_it_was_set_and_nowhere_else():
    """A value without effect is not a default in force; DescribeConfigs says so in words."""
    untouched = describe_broker(load_config(), cluster_dynamic={}, broker_dynamic={})
    assert not {row.name for row in untouched} & KAFKA_SETTINGS.keys()
    node = load_config({"num.io.threads": "9", "queued.max.requests": "7"})
    rows = {
        row.name: row
        for row in describe_broker(node, cluster_dynamic={"num.io.threads": "8"}, broker_dynamic={})
    }
    threads, queue = rows["num.io.threads"], rows["queued.max.requests"]
    assert (threads.value, threads.source, threads.read_only) == (
        "8",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        False,
    )
    assert [each.value for each in threads.synonyms] == ["8", "9"]
    assert (queue.value, queue.source, queue.read_only) == ("7", ConfigSource.STATIC_BROKER, True)
    assert "without effect" in threads.doc
    assert [row.value for row in describe_cluster_default({"num.io.threads": "8"})] == ["8"]


# --- security


@pytest.mark.parametrize(
    "name",
    [
        *(prefix if not prefix.endswith(".") else f"{prefix}anything.at.all" for prefix in SECURITY),
        "config.providers.vault.class",
        "confluent.ssl.keystore.location",
        "listener.name.external.sasl.server.callback.handler.class",
        "listener.name.external.oauthbearer.sasl.jaas.config",
        "listener.name.external.ssl.client.auth",
    ],
)
def test_a_node_that_must_be_closed_does_not_start_open(name: str):
    """By rule, not by a list of names: what begins so is about security, and raftlog cannot carry it out."""
    rule = rule_of(name, "anything")
    assert rule is not None and "security" in rule
    assert is_kafkas(name)


@pytest.mark.parametrize(
    "name", ["authorizer.class.name", "super.users", "ssl.endpoint.identification.algorithm"]
)
def test_an_empty_setting_about_security_asks_for_nothing(name: str):
    """Kafka's own default of an authorizer is the empty text."""
    assert rule_of(name, "") is None


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("RAFTLOG_SSL_KEYSTORE_LOCATION", "ssl.keystore.location"),
        (
            "RAFTLOG_LISTENER_NAME_EXTERNAL_SASL_JAAS_CONFIG",
            "RAFTLOG_LISTENER_NAME_EXTERNAL_SASL_JAAS_CONFIG",
        ),
    ],
)
def test_the_environment_cannot_ask_for_security_in_vain_either(variable: str, name: str):
    """A container gets its settings so. A variable that Kubernetes made from a service's name is still no fault."""
    with pytest.raises(ConfigFaults) as refused:
        load_config(environment={variable: "x"})
    assert [each.name for each in refused.value.faults] == [name]
    load_config(environment={"RAFTLOG_SSL_SERVICE_HOST": "10.0.0.1", "RAFTLOG_SSL_PORT_9093_TCP": "x"})


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"}, NO_LOGINS),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"}, NO_LOGINS),
        (
            {
                "process.roles": "broker",
                "node.id": "2",
                "listeners": "PLAINTEXT://:9092",
                "controller.quorum.voters": "1@a:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            },
            NO_LOGINS,
        ),
    ],
)
def test_no_protocol_that_is_not_carried_out_is_taken_wherever_a_node_listens_or_connects(
    file: dict[str, str], missing: str
):
    """With TLS required, a node would otherwise send confidential data in the clear."""
    with pytest.raises(ConfigFaults, match=missing):
        load_config(file)


PLAIN_LINE = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_al="hush" user_bob="hush2";'
)
SASL_NODE = {
    "listeners": "CLIENTS://:9092,INSIDE://:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "raftlog.cluster.secret": "s" * 32,
}


@pytest.mark.parametrize(
    "file",
    [
        {name: text for name, text in SASL_NODE.items() if name != "raftlog.cluster.secret"},
        {"authorizer.class.name": STANDARD_AUTHORIZER},
    ],
)
def test_logins_and_rules_need_a_secret(file: dict[str, str]):
    """With a secret derived from the voters, any client that knows them could pose as a broker, past all logins and
    ACLs.
    """
    with raises_faults("raftlog.cluster.secret"):
        load_config(file)


def test_a_scram_line_leaves_the_users_of_plain():
    """The order of the two lines does not matter."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    lines = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": PLAIN_LINE,
        "listener.name.clients.scram-sha-512.sasl.jaas.config": scram,
    }
    assert set(load_config(SASL_NODE | lines).logins["CLIENTS"].plain_users) == {"al", "bob"}


def test_a_sasl_listener_has_its_own_mechanisms_users_and_times():
    """Source: Kafka, "Listener configuration": an override is for one listener only."""
    own = {
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.clients.plain.sasl.jaas.config": PLAIN_LINE,
        "listener.name.clients.connections.max.reauth.ms": "60000",
    }
    logins = load_config(SASL_NODE | own).logins
    assert logins == {"CLIENTS": (("PLAIN", "SCRAM-SHA-256"), {"al": "hush", "bob": "hush2"}, 60_000)}
    assert load_config(SASL_NODE).logins == {"CLIENTS": (("SCRAM-SHA-512",), {}, 0)}


def test_no_password_of_a_listener_is_shown():
    """Neither the settings' text form nor DescribeConfigs has it."""
    node = load_config(
        SASL_NODE
        | {"sasl.enabled.mechanisms": "PLAIN", "listener.name.clients.plain.sasl.jaas.config": PLAIN_LINE}
    )
    shown = repr(node) + repr(describe_broker(node, cluster_dynamic={}, broker_dynamic={}))
    assert "hush" not in shown


@pytest.mark.parametrize(
    ("changes", "name", "says"),
    [
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms", "no mechanism"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms", "must be of PLAIN"),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.clients.plain.sasl.jaas.config",
            "PLAIN needs users",
        ),
        (
            {"listener.name.clients.sasl.enabled.mechanisms": "SCRAM"},
            "listener.name.clients.sasl.enabled.mechanisms",
            "must be of PLAIN",
        ),
        (
            {"listener.name.clients.connections.max.reauth.ms": "-1"},
            "listener.name.clients.connections.max.reauth.ms",
            "at least 0",
        ),
        (
            {"listener.name.clients.scram-sha-512.sasl.jaas.config": PLAIN_LINE},
            "listener.name.clients.scram-sha-512.sasl.jaas.config",
            "names the login module of PLAIN",
        ),
        (
            {"listener.name.inside.sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.inside.sasl.enabled.mechanisms",
            "no SASL listener INSIDE",
        ),
    ],
)
def test_an_impossible_login_keeps_a_node_from_starting(changes: dict[str, str], name: str, says: str):
    """A mistake is reported by the setting's name, and without any password."""
    with pytest.raises(ConfigFaults) as refused:
        load_config(SASL_NODE | changes)
    (fault,) = (each for each in refused.value.faults if each.name == name)
    assert says in fault.rule
    assert "hush" not in str(refused.value)


def test_an_authorizer_without_super_users_is_pointed_out():
    """The first ACL could never be created."""
    authorizer = {"authorizer.class.name": STANDARD_AUTHORIZER, "raftlog.cluster.secret": "s" * 32}
    assert "super_users_missing" in {each.event for each in load_config(authorizer).warnings}
    told = load_config(authorizer | {"super.users": "User:admin"}).warnings
    assert "super_users_missing" not in {each.event for each in told}


# --- what is in force


def test_a_brokers_own_value_goes_before_all_brokers_before_its_file_before_the_default():
    """KIP-226: one order, for every reader of a config."""
    node = load_config({"max.connections": "10", "producer.id.expiration.ms": "7"})
    assert broker_config(node, {}) is node
    found = broker_config(node, {"max.connections": "20"})
    assert (found.max_connections, found.producer_id_expiration_ms) == (20, 7)
    assert found.max_connections_per_ip == NodeConfig().max_connections_per_ip
    assert broker_config(node, {"max.connections": "20"}) is found


def test_a_dynamic_value_that_cannot_be_read_leaves_the_nodes_own():
    """No node fails at a record of another version."""
    node = load_config({"max.connections": "10"})
    strange = {"max.connections": "many", "node.id": "9", "num.io.threads": "4", "gone": "1"}
    found = broker_config(node, strange)
    assert (found.max_connections, found.node_id) == (10, node.node_id)
