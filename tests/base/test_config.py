"""Claims about loading a node's config."""

from __future__ import annotations

import ipaddress
from pathlib import PurePosixPath

import pytest

from raftlog.base import variables
from raftlog.base.config import ConfigFaults, Listener, NodeConfig, load_config, settings_of
from raftlog.base.config.describe import describe_broker
from raftlog.base.config.network import is_loopback
from tests.kit.errors import raises_faults

KAFKA_4_SERVER_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/var/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
"""The settings of the config/server.properties that Apache Kafka 4 ships."""

THREE_VOTERS = "1@one:9093,2@two:9093,3@three:9093"


def faults_of(file: dict[str, str], **layers: dict[str, str]) -> dict[str, str]:
    """Return {name: rule} of a config that must not load."""
    with pytest.raises(ConfigFaults) as caught:
        load_config(file, **layers)
    return {fault.name: fault.rule for fault in caught.value.faults}


def warnings_of(config: NodeConfig) -> dict[str, dict[str, object]]:
    return {warning.event: dict(warning.fields) for warning in config.warnings}


def test_a_server_properties_of_kafka_4_starts_one_node_unchanged():
    """Kafka 4's own sample names only bootstrap servers; a node alone is its own voter (KIP-853)."""
    config = load_config(KAFKA_4_SERVER_PROPERTIES)
    assert config.roles == {"broker", "controller"}
    assert config.voters == {1: ("localhost", 9093)}
    assert config.listeners == (Listener("PLAINTEXT", "", 9092), Listener("CONTROLLER", "", 9093))
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("/var/kraft-combined-logs",)
    assert config.metadata_log_dir == "/var/kraft-combined-logs"
    assert config.offsets_topic_replication_factor == 1
    assert (config.transaction_state_log_replication_factor, config.transaction_state_log_min_isr) == (1, 1)
    assert config.share_coordinator_state_topic_replication_factor == 1
    assert config.share_coordinator_state_topic_min_isr == 1


def test_settings_that_only_kafka_has_are_named_in_one_warning():
    """A file for Kafka starts; the operator hears once what has no effect."""
    ignored = warnings_of(load_config(KAFKA_4_SERVER_PROPERTIES))["kafka_settings_ignored"]["settings"]
    assert ignored == [
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
    ]


def test_nothing_at_all_is_a_node_alone():
    """A newcomer's `raftlog server` without any setting works."""
    config = load_config(hostname="box", working_dir="/srv/node")
    assert config.node_id == 1
    assert config.voters == {1: ("localhost", 9093)}
    assert config.advertised_listeners == (Listener("PLAINTEXT", "box", 9092),)
    assert config.log_dirs == ("/srv/node/raftlog-data",)


def test_a_flag_goes_before_the_environment_before_the_file_before_the_default():
    """One order of precedence: default < file < environment < flag."""
    file = {"num.partitions": "2", "default.replication.factor": "2", "min.insync.replicas": "2"}
    environment = {"RAFTLOG_NUM_PARTITIONS": "3", "RAFTLOG_DEFAULT_REPLICATION_FACTOR": "3", "PATH": "/bin"}
    config = load_config(file, environment=environment, flags={"num.partitions": "4"})
    assert (config.num_partitions, config.default_replication_factor, config.min_insync_replicas) == (4, 3, 2)
    assert config.fetch_max_bytes == 57_671_680
    assert config.given["num.partitions"] == "4"


def test_the_environment_names_raftlogs_own_settings_without_their_prefix():
    """RAFTLOG_LOG_LEVEL, not RAFTLOG_RAFTLOG_LOG_LEVEL."""
    config = load_config(
        environment={"RAFTLOG_LOG_LEVEL": "debug", "RAFTLOG_CLUSTER_SECRET": "sixteen bytes at least"}
    )
    assert config.log_level == "debug"
    assert config.cluster_secret == b"sixteen bytes at least"


def test_a_strange_environment_variable_is_a_warning_and_no_fault():
    """Kubernetes injects RAFTLOG_PORT_9092_TCP and the like for a service named raftlog."""
    config = load_config(environment={"RAFTLOG_SERVICE_HOST": "10.0.0.1", "RAFTLOG_CONFIG": "x"})
    assert warnings_of(config)["environment_variables_unknown"] == {"variables": ["RAFTLOG_SERVICE_HOST"]}


def test_variables_of_the_command_line_are_not_strange_to_a_node():
    """A shell that exports them for `raftlog topic` may start a node as well."""
    config = load_config(environment=dict.fromkeys(variables.NOT_SETTINGS, "x"))
    assert "environment_variables_unknown" not in warnings_of(config)


def test_all_faults_are_reported_at_once_by_name():
    """A person repairs a config once, not once per fault."""
    faults = faults_of(
        {
            "num.partitons": "3",
            "num.partitions": "many",
            "min.insync.replicas": "0",
            "log.flush.policy": "sometimes",
            "auto.create.topics.enable": "yes",
            "broker.session.timeout.ms": "99999999999",
            "retention.ms": "1",
        }
    )
    assert faults["num.partitons"] == "there is no such setting; did you mean num.partitions?"
    assert faults["num.partitions"] == "must be a whole number, but is 'many'"
    assert faults["min.insync.replicas"] == "must be at least 1, but is '0'"
    assert faults["log.flush.policy"] == "must be one of commit, os, but is 'sometimes'"
    assert faults["auto.create.topics.enable"] == "must be true or false, but is 'yes'"
    assert faults["broker.session.timeout.ms"] == "must be at most 2147483647, but is '99999999999'"
    assert faults["retention.ms"] == "is a topic's config; the node's setting is log.retention.ms"
    assert len(faults) == 7


def test_a_fault_says_where_the_setting_was_made():
    """With three layers the error must name the layer."""
    with pytest.raises(
        ConfigFaults, match=r"num\.partitions: must be a whole number, but is 'x' \(environment\)"
    ):
        load_config({}, environment={"RAFTLOG_NUM_PARTITIONS": "x"})


def test_several_bootstrap_servers_without_voters_get_the_advice_what_to_add():
    """raftlog's quorum needs ids; Kafka 4 files name addresses only."""
    rule = faults_of({"node.id": "1", "controller.quorum.bootstrap.servers": "a:9093,b:9093"})[
        "controller.quorum.voters"
    ]
    assert "add controller.quorum.voters=ID@a:9093,ID@b:9093 on every node" in rule


def test_another_nodes_bootstrap_server_is_no_cluster_of_one():
    """A second node that points at the first must not found a cluster of its own by mistake."""
    file = {"node.id": "2", "controller.quorum.bootstrap.servers": "other:9093"}
    assert "other:9093 is another node" in faults_of(file)["controller.quorum.voters"]
    assert load_config(file, hostname="other").voters == {2: ("other", 9093)}


def test_a_broker_alone_needs_voters():
    """Without voters a broker has no controller to register with."""
    faults = faults_of({"process.roles": "broker", "node.id": "4", "listeners": "PLAINTEXT://:9092"})
    assert set(faults) == {"controller.quorum.voters"}


def test_a_node_among_several_needs_its_own_number():
    """Two nodes both called 1 by default would take each other's place."""
    assert "node.id" in faults_of({"controller.quorum.voters": THREE_VOTERS})


def test_a_controller_that_is_no_voter_is_an_observer():
    """It can become a voter while the cluster runs (KIP-853)."""
    config = load_config({"node.id": "4", "controller.quorum.voters": THREE_VOTERS})
    assert warnings_of(config)["controller_is_observer"]["node_id"] == 4


def test_a_voter_that_is_no_controller_is_refused():
    """The quorum would wait for a vote that never comes."""
    file = {
        "process.roles": "broker",
        "node.id": "2",
        "listeners": "PLAINTEXT://:9092",
        "controller.quorum.voters": THREE_VOTERS,
    }
    assert "is no controller" in faults_of(file)["process.roles"]


def test_broker_id_is_an_older_name_of_node_id():
    """Files of Kafka before KRaft say broker.id."""
    assert load_config({"broker.id": "7"}).node_id == 7
    assert load_config({"log.dir": "/a"}).log_dirs == ("/a",)


@pytest.mark.parametrize(
    ("voters", "warned"),
    [
        ("1@h:1", False),
        ("1@h:1,2@h:2", True),
        ("1@h:1,2@h:2,3@h:3", False),
        ("1@h:1,2@h:2,3@h:3,4@h:4", True),
    ],
)
def test_an_even_number_of_voters_is_warned_about(voters, warned):
    """Four voters survive no more than three do."""
    config = load_config({"node.id": "1", "controller.quorum.voters": voters})
    assert ("even_number_of_voters" in warnings_of(config)) is warned


@pytest.mark.parametrize(
    ("listener", "advertised", "reason"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092", "every interface"),
        ("PLAINTEXT://:9092", "PLAINTEXT://localhost:9092", "connect to themselves"),
        ("PLAINTEXT://10.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092", "connect to themselves"),
        ("PLAINTEXT://localhost:9092", "PLAINTEXT://10.0.0.1:9092", "this machine only"),
        ("PLAINTEXT://:9092", "PLAINTEXT://host:0", "port 0"),
    ],
)
def test_an_unreachable_address_is_warned_about(listener, advertised, reason):
    """Advertising a wrong address is the commonest mistake with Kafka."""
    config = load_config({"listeners": f"{listener},CONTROLLER://:9093", "advertised.listeners": advertised})
    assert reason in str(warnings_of(config)["advertised_listener_unreachable"]["reason"])


def test_reachable_addresses_are_not_warned_about():
    """A warning that always appears is ignored."""
    for listener, advertised in (
        ("PLAINTEXT://:9092", "host:9092"),
        ("PLAINTEXT://localhost:9092", "localhost:19092"),
    ):
        config = load_config(
            {
                "listeners": f"{listener},CONTROLLER://:9093",
                "advertised.listeners": f"PLAINTEXT://{advertised}",
            }
        )
        assert "advertised_listener_unreachable" not in warnings_of(config)


def test_a_listener_that_is_not_advertised_is_hidden_from_clients():
    """Kafka: advertised.listeners, when set, is the whole list."""
    config = load_config(
        {
            "listeners": "IN://:9092,OUT://:9094,CONTROLLER://:9093",
            "advertised.listeners": "OUT://host:9094",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "OUT",
        }
    )
    assert config.advertised_listeners == (Listener("OUT", "host", 9094),)
    assert config.inter_broker_listener_name == "OUT"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://:9093,CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "SSL://:9092,CONTROLLER://:9093"}, "ssl.keystore.location"),
        ({"listeners": "INSIDE://:9092,CONTROLLER://:9093"}, "listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094"}, "listeners"),
        ({"listeners": "PLAINTEXT://:99999"}, "listeners"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "listeners"),
        ({"advertised.listeners": "OTHER://host:9092"}, "advertised.listeners"),
        ({"inter.broker.listener.name": "OTHER"}, "inter.broker.listener.name"),
        ({"controller.quorum.voters": "localhost:9093"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "1@0.0.0.0:9093"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "controller.quorum.voters"),
        ({"process.roles": "zookeeper"}, "process.roles"),
        ({"broker.heartbeat.interval.ms": "2000"}, "broker.heartbeat.interval.ms"),
        ({"log.dirs": "/a,/a"}, "log.dirs"),
        ({"raftlog.cluster.secret": ""}, "raftlog.cluster.secret"),
        ({"raftlog.cluster.secret": "fifteen bytes!!"}, "raftlog.cluster.secret"),
    ],
)
def test_a_law_between_settings_is_a_fault_of_the_setting_that_broke_it(file, name):
    """Each is a config that could start and then not work."""
    assert set(faults_of(file)) == {name}


def test_a_broken_text_draws_no_faults_from_what_depends_on_it():
    """One typing mistake in listeners is one fault, not five."""
    assert set(faults_of({**KAFKA_4_SERVER_PROPERTIES, "listeners": "PLAINTEXT:9092"})) == {"listeners"}


def test_a_derived_secret_is_the_same_on_every_node_and_warned_about():
    """Nodes find each other without ceremony, and the operator hears that anybody else could too."""
    one = load_config({"node.id": "1", "controller.quorum.voters": "1@a:1,2@b:2,3@c:3"})
    two = load_config({"node.id": "2", "controller.quorum.voters": "3@c:3, 2@b:2,1@a:1"})
    other = load_config({"node.id": "1", "controller.quorum.voters": "1@a:1,2@b:2,3@c:4"})
    assert one.cluster_secret == two.cluster_secret != other.cluster_secret
    assert len(one.cluster_secret) == 32
    assert "cluster_secret_missing" in warnings_of(one)


def test_a_given_secret_is_used_and_never_shown():
    """A secret in a log or an error message is no secret."""
    config = load_config({"raftlog.cluster.secret": "hush, hush, do not tell"})
    assert config.cluster_secret == b"hush, hush, do not tell"
    assert "cluster_secret_missing" not in warnings_of(config)
    assert "hush" not in repr(config)


def test_an_authorizer_that_is_not_there_keeps_a_node_from_starting():
    """An operator that relies on ACLs must learn that they are not enforced before any client can connect."""
    (rule,) = faults_of({"authorizer.class.name": "org.example.Authorizer"}).values()
    assert rule.startswith("must be org.apache.kafka")


def test_a_selector_of_replicas_is_one_of_kafkas_two():
    """An operator who names a class of their own must hear that it is not asked."""
    package = "org.apache.kafka.common.replica"
    (rule,) = faults_of({"replica.selector.class": "org.example.Nearest"}).values()
    assert rule.startswith(f"must be one of {package}.RackAwareReplicaSelector, {package}.LeaderSelector")
    config = load_config({"replica.selector.class": f"{package}.RackAwareReplicaSelector"})
    described = describe_broker(config, cluster_dynamic={}, broker_dynamic={})
    (shown,) = [each for each in described if each.name == "replica.selector.class"]
    assert (shown.value, shown.read_only) == (f"{package}.RackAwareReplicaSelector", True)
    assert load_config({}).replica_selector_class is None


def test_every_setting_reads_what_it_shows():
    """The output of DescribeConfigs can be put into a file again."""
    for attribute, row in settings_of(NodeConfig).values():
        if row.default is None or row.name in ("raftlog.cluster.secret", "metadata.log.dir"):
            continue
        if row.default:
            assert row.parse(row.format(row.default)) == row.default, attribute


def test_every_setting_has_a_sentence_and_no_setting_is_also_ignored():
    """The table is the documentation; a name stands in one list only."""
    from raftlog.base.config.kafka import is_kafkas

    for row in (row for _, row in settings_of(NodeConfig).values()):
        assert row.doc and not row.doc.endswith("."), row.name
        assert not is_kafkas(row.name), row.name


@pytest.mark.parametrize("folder", ["/srv/node", "/srv//node/./", "/", ".", "here"])
@pytest.mark.parametrize("path", ["/var/log", "data", "./data//one/", "../up", ".", "/", "a/./b"])
def test_folders_are_resolved_as_pathlib_does(folder: str, path: str) -> None:
    """A folder has one name, whichever way its setting is written; what follows `..` is left to the system."""
    config = load_config({"log.dirs": path}, working_dir=folder)
    assert config.log_dirs == (str(PurePosixPath(folder) / path),)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.8.9.10",
        "127.0.0.256",
        "127.example",
        "::1",
        "0:0:0:0:0:0:0:1",
        "::2",
        "10.0.0.1",
        "x",
    ],
)
def test_a_loopback_address_is_one_in_any_spelling(host: str) -> None:
    """As the library of addresses says, which most nodes do not load."""
    try:
        expected = ipaddress.ip_address(host).is_loopback
    except ValueError:
        expected = False
    assert is_loopback(host) == expected


def test_two_numbers_of_one_node_are_a_fault() -> None:
    """broker.id is the former name of node.id; Kafka refuses two values (KAFKA-13192)."""
    with pytest.raises(ConfigFaults) as found:
        load_config({"broker.id": "1", "node.id": "2"})
    assert str(found.value) == "broker.id: is 1, but node.id, which means the same, is 2 (file)"
    assert load_config({"broker.id": "1", "node.id": "1"}).node_id == 1
    assert load_config({"broker.id": "1"}, flags={"node.id": "2"}).node_id == 2


@pytest.mark.parametrize("name", ["num.partitions", "log.cleaner.min.cleanable.ratio", "log.segment.bytes"])
def test_a_number_has_no_underscores(name: str) -> None:
    """Python would read 1_0 as 10, and Kafka does not read it at all."""
    with raises_faults(name):
        load_config({name: "1_0"})
