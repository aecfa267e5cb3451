"""Describing and altering configs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from raftlog.base.config import load_config, settings_of
from raftlog.base.config.broker import NodeConfig
from raftlog.base.config.group import GroupConfig
from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import RequestTimedOut
from raftlog.base.log import LOGGERS, get_logger
from raftlog.broker.handlers import describe_configs
from raftlog.metadata.controller_api import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
    ConfigResult,
    ConfigResults,
)
from raftlog.protocol.message_builders import request_builders
from tests.broker.handlers.one_broker import HandlerSetup, cluster_image, versions

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def resource(version: int, kind: int, name: str, *keys: str) -> Any:
    return request_builders(DESCRIBE, version).DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )


async def describe(
    cluster: HandlerSetup, version: int, kind: int, name: str, *keys: str, **fields: Any
) -> Any:
    response = await cluster.call(
        DESCRIBE, version, resources=(resource(version, kind, name, *keys),), **fields
    )
    (result,) = response.results
    return result


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_all_topic_configs_are_described(version: int) -> None:
    """Every config of Kafka's, with Kafka's default on an untouched topic."""
    result = await describe(HandlerSetup(), version, TOPIC, "a")
    told = {each.name: each for each in result.configs}
    assert told.keys() == settings_of(TopicConfig).keys()
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("604800000", 5)
    assert told["min.insync.replicas"].value == "1"
    assert not any(each.read_only or each.is_sensitive for each in result.configs)
    if version >= 3:
        assert (told["retention.ms"].config_type, told["cleanup.policy"].config_type) == (5, 7)
        assert told["retention.ms"].documentation is None


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_all_broker_configs_are_described(version: int) -> None:
    """Every setting of this node; secrets have no value."""
    cluster = HandlerSetup()
    cluster.broker.config = load_config(
        {"node.id": "1", "num.partitions": "6", "raftlog.cluster.secret": "hush, hush, do not tell"}
    )
    result = await describe(cluster, version, BROKER, "1", include_synonyms=True)
    told = {each.name: each for each in result.configs}
    assert told.keys() == settings_of(NodeConfig).keys()
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("6", 4)
    secret = told["raftlog.cluster.secret"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert all(each.value is None for each in secret.synonyms)
    assert told["node.id"].read_only


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_all_group_configs_are_described_of_any_name(version: int) -> None:
    """A group need not exist; what it has not set is its broker's (KIP-848)."""
    configs = {("group", "g"): {"consumer.session.timeout.ms": "50000"}}
    cluster = HandlerSetup(cluster_image(configs=configs))
    result = await describe(cluster, version, GROUP, "g", include_synonyms=True)
    told = {each.name: each for each in result.configs}
    assert told.keys() == settings_of(GroupConfig).keys()
    session, heartbeat = told["consumer.session.timeout.ms"], told["consumer.heartbeat.interval.ms"]
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert [(each.value, each.source) for each in session.synonyms] == [("50000", 8), ("45000", 5)]
    assert (heartbeat.value, heartbeat.config_source) == ("5000", 5)
    other = await describe(cluster, version, GROUP, "another", "consumer.session.timeout.ms")
    assert [(each.value, each.config_source) for each in other.configs] == [("45000", 5)]
    if version >= 3:
        documented = await describe(cluster, version, GROUP, "g", include_documentation=True)
        types = {name: row.wire_type for name, (_, row) in settings_of(GroupConfig).items()}
        assert {each.name: each.config_type for each in documented.configs} == types
        assert all(each.documentation for each in documented.configs)


async def test_sources_and_synonyms_come_nearest_first() -> None:
    """topic > broker > cluster default > file > default (KIP-226)."""
    configs = {
        ("topic", "a"): {"retention.ms": "1"},
        ("broker", "1"): {"log.retention.ms": "2"},
        ("broker", ""): {"log.retention.ms": "3"},
    }
    cluster = HandlerSetup(cluster_image(configs=configs))
    result = await describe(cluster, 4, TOPIC, "a", "retention.ms", include_synonyms=True)
    (config,) = result.configs
    assert (config.value, config.config_source) == ("1", 1)
    assert [(each.name, each.value, each.source) for each in config.synonyms][:3] == [
        ("retention.ms", "1", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
    ]
    plain = await describe(cluster, 4, TOPIC, "a", "retention.ms")
    assert plain.configs[0].synonyms == ()


async def test_no_names_mean_all_configs() -> None:
    """An empty list of names is taken like null, as in Kafka's ConfigHelper."""
    make = request_builders(DESCRIBE, 4)
    asked = make.DescribeConfigsResource(resource_type=TOPIC, resource_name="a", configuration_keys=())
    response = await HandlerSetup().call(DESCRIBE, 4, resources=(asked,))
    assert len(response.results[0].configs) == len(settings_of(TopicConfig))


async def test_documentation_is_returned_on_request() -> None:
    """include_documentation from version 3 on (KIP-569)."""
    result = await describe(HandlerSetup(), 4, TOPIC, "a", include_documentation=True)
    assert all(each.documentation for each in result.configs)


async def test_the_clusters_default_is_the_broker_without_a_name() -> None:
    """Only what was set for all brokers."""
    cluster = HandlerSetup(cluster_image(configs={("broker", ""): {"log.retention.ms": "5"}}))
    result = await describe(cluster, 4, BROKER, "")
    assert [(each.name, each.value, each.config_source) for each in result.configs] == [
        ("log.retention.ms", "5", 3)
    ]


@pytest.mark.parametrize(
    "kind,name,code",
    [
        (TOPIC, "nope", 3),
        (TOPIC, "no/pe", 17),
        (BROKER, "2", 42),
        (BROKER, "x", 42),
        (GROUP, "", 42),
        (LOGGER, "2", 42),
        (LOGGER, "", 42),
        (CLIENT_METRICS, "", 42),
        (99, "1", 42),
    ],
)
async def test_what_cannot_be_described_says_why(kind: int, name: str, code: int) -> None:
    """Each resource has its own error and message."""
    result = await describe(HandlerSetup(), 4, kind, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.error_message


def altering(cluster: HandlerSetup, *refused: ConfigResult) -> None:
    def answer(request: AlterConfigs) -> ConfigResults:
        codes = {(each.resource_type, each.resource_name): each for each in refused}
        results = []
        for each in request.alterations:
            key = (each.resource_type, each.resource_name)
            results.append(codes.get(key) or ConfigResult(*key))
            if key not in codes and not request.validate_only:
                values = {op.key: op.value for op in each.ops if op.value is not None}
                cluster.image = msgspec.structs.replace(
                    cluster.image, configs={**cluster.image.configs, key: values}
                )
        return ConfigResults(tuple(results))

    cluster.answers[AlterConfigs] = answer


def change(api_key: int, version: int, kind: int, name: str, *configs: tuple[Any, ...]) -> Any:
    make = request_builders(api_key, version)
    fields = ("name", "value") if api_key == ALTER else ("name", "value", "config_operation")
    return make.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(make.AlterableConfig(**dict(zip(fields, each, strict=True))) for each in configs),
    )


@pytest.mark.parametrize("version", versions(INCREMENTAL))
async def test_configs_are_altered_by_operations(version: int) -> None:
    """SET, DELETE, APPEND and SUBTRACT reach the controller; each resource on its own (KIP-339)."""
    cluster = HandlerSetup()
    altering(cluster, ConfigResult("broker", "", 40, "no such config"))
    ops = (("a.set", "1", 0), ("a.delete", None, 1), ("a.append", "2", 2), ("a.subtract", "3", 3))
    response = await cluster.call(
        INCREMENTAL,
        version,
        resources=(
            change(INCREMENTAL, version, TOPIC, "a", *ops),
            change(INCREMENTAL, version, BROKER, "", ("x", "1", 0)),
            change(INCREMENTAL, version, GROUP, "g", ("y", "2", 0)),
        ),
    )
    assert [
        (each.resource_type, each.resource_name, each.error_code, each.error_message)
        for each in response.responses
    ] == [(TOPIC, "a", 0, None), (BROKER, "", 40, "no such config"), (GROUP, "g", 0, None)]
    (request,) = cluster.asked
    assert not request.replace
    assert request.alterations[0] == ConfigAlteration("topic", "a", tuple(ConfigOp(*op) for op in ops))


@pytest.mark.parametrize("version", versions(ALTER))
async def test_alter_configs_replaces_the_set(version: int) -> None:
    """The old API: what is not named goes back to its default (KIP-133)."""
    cluster = HandlerSetup()
    altering(cluster)
    response = await cluster.call(
        ALTER,
        version,
        resources=(change(ALTER, version, TOPIC, "a", ("retention.ms", "5")),),
        validate_only=True,
    )
    assert response.responses[0].error_code == 0
    assert cluster.asked == [
        AlterConfigs((ConfigAlteration("topic", "a", (ConfigOp("retention.ms", "5"),)),), True, True)
    ]


MALFORMED = {
    "no such type": (INCREMENTAL, [change(INCREMENTAL, 1, 15, "m", ("k", "v", 0))]),
    "old API, loggers": (ALTER, [change(ALTER, 2, LOGGER, "1", ("raftlog", "INFO"))]),
    "another broker's loggers": (INCREMENTAL, [change(INCREMENTAL, 1, LOGGER, "2", ("raftlog", "INFO", 0))]),
    "logger twice": (
        INCREMENTAL,
        [change(INCREMENTAL, 1, LOGGER, "1", ("raftlog", "INFO", 0), ("raftlog", "WARN", 0))],
    ),
    "appended to a level": (INCREMENTAL, [change(INCREMENTAL, 1, LOGGER, "1", ("raftlog", "INFO", 2))]),
    "topmost without a level": (INCREMENTAL, [change(INCREMENTAL, 1, LOGGER, "1", ("raftlog", None, 1))]),
    "no such operation": (INCREMENTAL, [change(INCREMENTAL, 1, TOPIC, "a", ("k", "v", 4))]),
    "set to null": (INCREMENTAL, [change(INCREMENTAL, 1, TOPIC, "a", ("k", None, 0))]),
    "key twice": (INCREMENTAL, [change(INCREMENTAL, 1, TOPIC, "a", ("k", "1", 0), ("k", "2", 0))]),
    "resource twice": (INCREMENTAL, [change(INCREMENTAL, 1, TOPIC, "a", ("k", "1", 0))] * 2),
    "old API, null": (ALTER, [change(ALTER, 2, TOPIC, "a", ("k", None))]),
    "old API, twice": (ALTER, [change(ALTER, 2, TOPIC, "a", ("k", "1"))] * 2),
    "old API, key twice": (ALTER, [change(ALTER, 2, TOPIC, "a", ("k", "1"), ("k", "2"))]),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_alterations_never_reach_the_controller(name: str) -> None:
    """INVALID_REQUEST with a message, one answer for each resource."""
    api_key, resources = MALFORMED[name]
    cluster = HandlerSetup()
    response = await cluster.call(api_key, 1 if api_key == INCREMENTAL else 2, resources=tuple(resources))
    (result,) = response.responses
    assert result.error_code == 42 and result.error_message
    assert cluster.asked == []


async def test_a_failed_request_fails_each_resource() -> None:
    """Without a majority every resource has the retriable error."""
    cluster = HandlerSetup()
    cluster.answers[AlterConfigs] = RequestTimedOut()
    resources = (change(ALTER, 2, TOPIC, "a", ("k", "1")), change(ALTER, 2, TOPIC, "b", ("k", "1")))
    response = await cluster.call(ALTER, 2, resources=resources)
    assert [each.error_code for each in response.responses] == [7, 7]


async def test_config_resources_are_listed() -> None:
    """All types when none is named; version 0 asks for client metrics only (KIP-714, KIP-1142)."""
    kinds = (("group", "h"), ("group", "g"), ("topic", "a"), ("client-metrics", "m"))
    cluster = HandlerSetup(cluster_image(configs={each: {"k": "v"} for each in kinds}))
    everything = await cluster.call(LIST, 1, resource_types=())
    assert [(each.resource_name, each.resource_type) for each in everything.config_resources] == [
        ("a", TOPIC),
        ("b", TOPIC),
        ("1", BROKER),
        ("2", BROKER),
        ("3", BROKER),
        ("1", LOGGER),
        ("2", LOGGER),
        ("3", LOGGER),
        ("m", CLIENT_METRICS),
        ("g", GROUP),
        ("h", GROUP),
    ]
    groups = await cluster.call(LIST, 1, resource_types=(GROUP,))
    assert [each.resource_name for each in groups.config_resources] == ["g", "h"]
    topics = await cluster.call(LIST, 1, resource_types=(TOPIC,))
    assert [each.resource_name for each in topics.config_resources] == ["a", "b"]
    oldest = await cluster.call(LIST, 0)
    assert [each.resource_name for each in oldest.config_resources] == ["m"]
    assert (await cluster.call(LIST, 1, resource_types=(77,))).error_code == 35


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_the_configs_of_client_metrics_are_described_of_any_name(version: int) -> None:
    """Kafka's three, each with where its value comes from (KIP-714)."""
    cluster = HandlerSetup(cluster_image(configs={("client-metrics", "m"): {"interval.ms": "1000"}}))
    result = await describe(cluster, version, CLIENT_METRICS, "m", include_synonyms=True)
    told = {each.name: (each.value, each.config_source) for each in result.configs}
    assert told == {"metrics": ("", 5), "interval.ms": ("1000", 7), "match": ("", 5)}
    other = await describe(cluster, version, CLIENT_METRICS, "another", "interval.ms")
    assert [(each.value, each.config_source) for each in other.configs] == [("300000", 5)]


@pytest.fixture
def loggers() -> Iterator[None]:
    """The process's loggers, as they were before."""
    get_logger("raftlog.broker.replicas.fetcher")
    LOGGERS.start("INFO")
    yield
    LOGGERS.start("INFO")


async def change_levels(cluster: HandlerSetup, *configs: tuple[Any, ...], validate_only: bool = False) -> Any:
    resources = (change(INCREMENTAL, 1, LOGGER, "1", *configs),)
    response = await cluster.call(INCREMENTAL, 1, resources=resources, validate_only=validate_only)
    (result,) = response.responses
    return result


async def levels(cluster: HandlerSetup) -> dict[str, str]:
    result = await describe(cluster, 4, LOGGER, "1")
    assert all(each.config_source == 6 and not each.read_only for each in result.configs)
    return {each.name: each.value for each in result.configs}


@pytest.mark.usefixtures("loggers")
async def test_the_levels_of_loggers_are_changed_while_the_broker_runs() -> None:
    """A logger takes the level of its nearest ancestor with a level of its own, and levels are not in the metadata."""
    cluster = HandlerSetup()
    assert (await levels(cluster))["raftlog.broker.replicas.fetcher"] == "INFO"
    assert (await change_levels(cluster, ("raftlog.broker", "DEBUG", 0))).error_code == 0
    found = await levels(cluster)
    assert (found["raftlog"], found["raftlog.broker"], found["raftlog.broker.replicas.fetcher"]) == (
        "INFO",
        "DEBUG",
        "DEBUG",
    )
    assert (await change_levels(cluster, ("raftlog.broker", None, 1))).error_code == 0
    assert (await levels(cluster))["raftlog.broker.replicas.fetcher"] == "INFO"
    assert cluster.asked == []


@pytest.mark.usefixtures("loggers")
@pytest.mark.parametrize(
    ("ops", "code", "says"),
    [
        ([("raftlog.broker", "LOUD", 0)], 40, "must be one of TRACE, DEBUG"),
        ([("kafka.server", "DEBUG", 0)], 40, "there is no logger 'kafka.server'; the loggers are raftlog, "),
        ([("raftlog.audit", "ERROR", 0)], 40, "there is no logger"),
        ([("raftlog.broker", "WARN", 0), ("nonsense", "WARN", 0)], 40, "there is no logger"),
    ],
)
async def test_levels_are_changed_wholly_or_not_at_all(ops: Any, code: int, says: str) -> None:
    """The error lists the loggers. No client can silence the audit log."""
    cluster = HandlerSetup()
    before = await levels(cluster)
    result = await change_levels(cluster, *ops)
    assert result.error_code == code and says in result.error_message
    assert (await change_levels(cluster, ("raftlog", "ERROR", 0), validate_only=True)).error_code == 0
    assert await levels(cluster) == before


async def test_a_resource_that_is_named_again_and_again_is_described_once() -> None:
    """With all names that are asked of it; five bytes of a request must not bring 16 KB each time."""
    asked = [resource(4, TOPIC, "a", "retention.ms"), resource(4, TOPIC, "a", "segment.bytes")] * 50
    response = await HandlerSetup().call(DESCRIBE, 4, resources=tuple(asked))
    (result,) = response.results
    assert {each.name for each in result.configs} == {"retention.ms", "segment.bytes"}
    response = await HandlerSetup().call(DESCRIBE, 4, resources=(*asked, resource(4, TOPIC, "a")))
    assert len(response.results[0].configs) == len(settings_of(TopicConfig))


async def test_a_description_that_is_full_refuses_the_other_resources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """POLICY_VIOLATION for what a client had better ask for on its own."""
    monkeypatch.setattr(describe_configs, "MAX_RESPONSE_BYTES", 1_000)
    asked = (resource(4, TOPIC, "a"), resource(4, TOPIC, "b"))
    response = await HandlerSetup().call(DESCRIBE, 4, resources=asked)
    assert [(each.error_code, bool(each.configs)) for each in response.results] == [(0, True), (44, False)]


async def test_cordoned_directories_are_log_directories_of_the_broker() -> None:
    """Only the broker itself knows them; Kafka's tools ask it about its own configs."""
    cluster = HandlerSetup(log_dirs=("/one", "/two"))
    cluster.answers[AlterConfigs] = ConfigResults((ConfigResult("broker", "1"),))
    make = request_builders(INCREMENTAL, 1)
    codes = {}
    for text in ("/three", "/one,/three", "/one,/two", "*", ""):
        config = make.AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=text)
        resource = make.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=(config,))
        response = await cluster.call(INCREMENTAL, 1, resources=(resource,), validate_only=True)
        codes[text] = response.responses[0].error_code
    assert codes == {"/three": 40, "/one,/three": 40, "/one,/two": 0, "*": 0, "": 0}
