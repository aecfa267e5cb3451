"""Every config of Kafka's topics, groups and client metrics, and the questions that alter and describe configs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from raftlog_chaos.conformance import kafka_configs
from raftlog_chaos.conformance.config_questions import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    Config,
    alter,
    different,
    entry,
    life,
    own_id,
    replaced,
    rows,
    shown,
    values,
)
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session

# --- topics


@history(rows(kafka_configs.TOPIC))
def topic_values(s: Session, config: Config) -> None:
    """A topic's config takes only values of its type and range."""
    name = s.topic()
    values(s, TOPIC, name, config)
    replaced(s, TOPIC, name, config)


@history(
    {name: config for name, config in rows(kafka_configs.TOPIC).items() if name != "remote.storage.enable"}
)
def topic_life(s: Session, config: Config) -> None:
    """A topic's config holds from when it is set until it is deleted, and is described by where it comes from."""
    life(s, TOPIC, s.topic(), config.name, different(config.kind, config.name))


# --- groups


@history(rows(kafka_configs.GROUP))
def group_values(s: Session, config: Config) -> None:
    """A group's config takes values of its type and range, whether or not there is such a group."""
    name = s.name("group")
    values(s, GROUP, name, config)
    replaced(s, GROUP, name, config)


@history(rows(kafka_configs.GROUP))
def group_life(s: Session, config: Config) -> None:
    """A group's config holds from when it is set until it is deleted."""
    life(s, GROUP, s.name("group"), config.name, different(config.kind, config.name))


# --- client metrics


@history(rows(kafka_configs.CLIENT_METRICS))
def metrics_values(s: Session, config: Config) -> None:
    """The configs of a subscription to client metrics."""
    name = s.name("metrics")
    values(s, CLIENT_METRICS, name, config)
    replaced(s, CLIENT_METRICS, name, config)


@history(rows(kafka_configs.CLIENT_METRICS))
def metrics_life(s: Session, config: Config) -> None:
    """The configs of a subscription hold from when they are set until they are deleted."""
    life(s, CLIENT_METRICS, s.name("metrics"), config.name, different(config.kind, config.name))


# --- questions


DESCRIBED: Final[Mapping[str, Callable[[Session], Iterable[tuple[int, str, Sequence[str] | None]]]]] = {
    "none": lambda s: [],
    "no config": lambda s: [(TOPIC, s.topic(), [])],
    "an unknown config": lambda s: [(TOPIC, s.topic(), ["no.such.config"])],
    "a config twice": lambda s: [(TOPIC, s.topic(), ["retention.ms", "retention.ms"])],
    "a topic twice": lambda s: [(TOPIC, s.topic(), ["retention.ms"])] * 2,
    "an unknown topic": lambda s: [(TOPIC, s.name("missing"), ["retention.ms"])],
    "a bad topic": lambda s: [(TOPIC, "a b", ["retention.ms"])],
    "a topic without a name": lambda s: [(TOPIC, "", ["retention.ms"])],
    "good and bad": lambda s: [(TOPIC, s.topic(), ["retention.ms"]), (TOPIC, s.name("missing"), None)],
    "an unknown broker": lambda s: [(BROKER, "70", ["log.retention.ms"])],
    "a broker of -1": lambda s: [(BROKER, "-1", ["log.retention.ms"])],
    "a broker that is no number": lambda s: [(BROKER, "x", ["log.retention.ms"])],
    "all brokers": lambda s: [(BROKER, "", ["log.retention.ms"])],
    "an unknown group": lambda s: [(GROUP, s.name("group"), ["consumer.session.timeout.ms"])],
    "a group without a name": lambda s: [(GROUP, "", ["consumer.session.timeout.ms"])],
    "unknown metrics": lambda s: [(CLIENT_METRICS, s.name("metrics"), ["interval.ms"])],
    "metrics without a name": lambda s: [(CLIENT_METRICS, "", ["interval.ms"])],
    "another broker's loggers": lambda s: [(LOGGER, "70", ["root"])],
    "loggers without a name": lambda s: [(LOGGER, "", ["root"])],
    "type 0": lambda s: [(0, "x", None)],
    "type 1": lambda s: [(1, "x", None)],
    "type 3": lambda s: [(3, "x", None)],
    "type 127": lambda s: [(127, "x", None)],
    "type -1": lambda s: [(-1, "x", None)],
}


@history(DESCRIBED)
def describe(
    s: Session, resources: Callable[[Session], Iterable[tuple[int, str, Sequence[str] | None]]]
) -> None:
    """Each resource is described or refused by itself; what a config is called does not matter."""
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in resources(s)
    ]
    if asked and asked[0]["configuration_keys"] == []:
        found = s.query("DescribeConfigs", 4, resources=asked)["results"][0]["configs"]
        s.observe("described", "all" if len(found) > 1 else "none")
    else:
        s.ask("DescribeConfigs", 4, resources=asked)


@history({f"v{version}": version for version in range(1, 5)})
def describe_in(s: Session, version: int) -> None:
    """Versions from 1 on say where a value comes from; version 3 adds types and documentation."""
    keys = ["segment.bytes", "max.message.bytes"]
    resource = {
        "resource_type": TOPIC,
        "resource_name": s.topic(configs={"segment.bytes": 2_000_000}),
        "configuration_keys": keys,
    }
    s.ask("DescribeConfigs", version, resources=[resource])
    s.ask("DescribeConfigs", version, resources=[resource], include_synonyms=True)


@history({"topic": TOPIC, "broker": BROKER, "group": GROUP, "metrics": CLIENT_METRICS})
def documentation(s: Session, kind: int) -> None:
    """Every config is documented if that is asked for, and only then."""
    name = own_id(s) if kind == BROKER else s.topic()
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    for wanted in (True, False):
        answer = s.query("DescribeConfigs", 4, resources=[resource], include_documentation=wanted)
        has = {bool(each["documentation"]) for each in answer["results"][0]["configs"]}
        s.observe("documented" if wanted else "undocumented", sorted(has))


@history()
def topic_names(s: Session) -> None:
    """All configs of a topic are described where none is named."""
    resource = {"resource_type": TOPIC, "resource_name": s.topic(), "configuration_keys": None}
    found = s.query("DescribeConfigs", 4, resources=[resource])["results"][0]["configs"]
    s.observe("the names", {each["name"]: "described" for each in found})


# --- changes


Change = tuple[int, str, Sequence[tuple[str, int, str | None]]]
RETAIN: Final = [("retention.ms", SET, "1000")]
ALTERED: Final[Mapping[str, Callable[[Session], Iterable[Change]]]] = {
    "none": lambda s: [],
    "no config": lambda s: [(TOPIC, s.topic(), [])],
    "an unknown config": lambda s: [(TOPIC, s.topic(), [("no.such.config", SET, "1")])],
    "an unknown config's end": lambda s: [(TOPIC, s.topic(), [("no.such.config", DELETE, None)])],
    "an empty name": lambda s: [(TOPIC, s.topic(), [("", SET, "1")])],
    "a broker's name": lambda s: [(TOPIC, s.topic(), [("log.retention.ms", SET, "1")])],
    "good and bad configs": lambda s: [(TOPIC, s.topic(), [*RETAIN, ("segment.ms", SET, "x")])],
    "a config twice": lambda s: [(TOPIC, s.topic(), [*RETAIN, ("retention.ms", DELETE, None)])],
    "a topic twice": lambda s: [(TOPIC, s.topic(), RETAIN)] * 2,
    "good and bad topics": lambda s: [(TOPIC, s.topic(), RETAIN), (TOPIC, s.name("missing"), RETAIN)],
    "an unknown topic": lambda s: [(TOPIC, s.name("missing"), RETAIN)],
    "a bad topic": lambda s: [(TOPIC, "a b", RETAIN)],
    "a topic without a name": lambda s: [(TOPIC, "", RETAIN)],
    "an unknown broker": lambda s: [(BROKER, "70", [("log.retention.ms", SET, "1000")])],
    "a broker of -1": lambda s: [(BROKER, "-1", [("log.retention.ms", SET, "1000")])],
    "a broker that is no number": lambda s: [(BROKER, "x", [("log.retention.ms", SET, "1000")])],
    "a group without a name": lambda s: [(GROUP, "", [("consumer.session.timeout.ms", SET, "50000")])],
    "an unknown config of a group": lambda s: [(GROUP, s.name("group"), [("no.such", SET, "1")])],
    "metrics without a name": lambda s: [(CLIENT_METRICS, "", [("interval.ms", SET, "1000")])],
    "an unknown config of metrics": lambda s: [(CLIENT_METRICS, s.name("m"), [("no.such", SET, "1")])],
    "an unknown config of a broker": lambda s: [(BROKER, own_id(s), [("no.such", SET, "1")])],
    "an unknown config of all brokers": lambda s: [(BROKER, "", [("no.such", SET, "1")])],
    "a prefixed config of a broker": lambda s: [
        (BROKER, own_id(s), [("listener.name.plaintext.max.connections", SET, "1000")])
    ],
    "another broker's loggers": lambda s: [(LOGGER, "70", [("root", SET, "INFO")])],
    "a logger's wrong level": lambda s: [(LOGGER, own_id(s), [("root", SET, "LOUD")])],
    "an unknown logger": lambda s: [(LOGGER, own_id(s), [("no.such.logger", SET, "INFO")])],
    "append to a logger": lambda s: [(LOGGER, own_id(s), [("root", APPEND, "INFO")])],
    "delete the root logger": lambda s: [(LOGGER, own_id(s), [("root", DELETE, None)])],
    "operation -1": lambda s: [(TOPIC, s.topic(), [("retention.ms", -1, "1")])],
    "operation 4": lambda s: [(TOPIC, s.topic(), [("retention.ms", 4, "1")])],
    "type 0": lambda s: [(0, "x", RETAIN)],
    "type 1": lambda s: [(1, "x", RETAIN)],
    "type 3": lambda s: [(3, "x", RETAIN)],
    "type 127": lambda s: [(127, "x", RETAIN)],
    "type -1": lambda s: [(-1, "x", RETAIN)],
}


@history({row: (row, 1) for row in ALTERED} | {"in v0": ("a topic twice", 0)})
def incremental(s: Session, row: tuple[str, int]) -> None:
    """Each resource is altered as a whole or refused."""
    name, version = row
    resources = [
        {
            "resource_type": kind,
            "resource_name": resource,
            "configs": [
                {"name": config, "config_operation": does, "value": value} for config, does, value in configs
            ],
        }
        for kind, resource, configs in ALTERED[name](s)
    ]
    is_brokers = any(each["resource_type"] == BROKER for each in resources)
    for validate_only in (True,) if is_brokers else (True, False):
        s.ask("IncrementalAlterConfigs", version, resources=resources, validate_only=validate_only)


REPLACED: Final = (
    *("none", "no config", "an unknown config", "good and bad configs", "a config twice", "a topic twice"),
    *(
        "good and bad topics",
        "an unknown topic",
        "a bad topic",
        "an unknown broker",
        "a group without a name",
    ),
    *("metrics without a name", "another broker's loggers", "an unknown config of all brokers", "type 1"),
)


@history({row: (row, 2) for row in REPLACED} | {"in v0": ("an unknown topic", 0)})
def replacing(s: Session, row: tuple[str, int]) -> None:
    """AlterConfigs gives a resource all of its configs at once; the others are deleted."""
    name, version = row
    resources = [
        {
            "resource_type": kind,
            "resource_name": resource,
            "configs": [{"name": config, "value": value} for config, _, value in configs],
        }
        for kind, resource, configs in ALTERED[name](s)
    ]
    is_brokers = any(each["resource_type"] == BROKER for each in resources)
    for validate_only in (True,) if is_brokers else (True, False):
        s.ask("AlterConfigs", version, resources=resources, validate_only=validate_only)


LISTS: Final[Mapping[str, Sequence[tuple[int, str]]]] = {
    "append one": [(APPEND, "compact")],
    "append what is there": [(APPEND, "delete")],
    "append one twice": [(APPEND, "compact"), (APPEND, "compact")],
    "append two": [(APPEND, "compact,delete")],
    "append one that is named twice": [(APPEND, "compact,compact")],
    "append a wrong one": [(APPEND, "shred")],
    "append with blanks": [(APPEND, " compact ")],
    "append no word": [(APPEND, "")],
    "subtract the only one": [(SUBTRACT, "delete")],
    "subtract another": [(SUBTRACT, "compact")],
    "subtract one of two": [(SET, "compact,delete"), (SUBTRACT, "delete")],
    "subtract both": [(SET, "compact,delete"), (SUBTRACT, "compact,delete")],
    "subtract a wrong one": [(SUBTRACT, "shred")],
    "subtract one that is named twice": [(SET, "compact,delete"), (SUBTRACT, "delete,delete")],
    "subtract, then append": [(SET, "compact,delete"), (SUBTRACT, "delete"), (APPEND, "delete")],
}


@history(LISTS)
def lists(s: Session, changes: Sequence[tuple[int, str]]) -> None:
    """A list grows at its end by what it lacks, and loses what is subtracted; its default counts as set."""
    topic = s.topic()
    for does, value in changes:
        error = alter(s, TOPIC, topic, ("cleanup.policy", does, value))
        s.observe(f"{('set', 'delete', 'append', 'subtract')[does]} {value!r}", error)
        mark = str(1000 + len(s.steps))
        s.observe("a later change", alter(s, TOPIC, topic, ("retention.ms", SET, mark)))
        s.wait("the later change holds", partial(_is, s, topic, mark))
        s.observe("then", shown(entry(s, TOPIC, topic, "cleanup.policy")))


def _is(s: Session, topic: str, retention_ms: str) -> bool:
    return bool(entry(s, TOPIC, topic, "retention.ms")["value"] == retention_ms)


PAIRS: Final[Mapping[str, Mapping[str, str]]] = {
    "compaction lags that cross": {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    "compaction lags that meet": {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "2"},
    "local retention above all": {"retention.ms": "1000", "local.retention.ms": "2000"},
    "local bytes above all": {"retention.bytes": "1000", "local.retention.bytes": "2000"},
    "index smaller than an entry": {"segment.index.bytes": "4", "segment.bytes": "1048576"},
    "tiered and compacted": {"remote.storage.enable": "true", "cleanup.policy": "compact"},
    "tiered": {"remote.storage.enable": "true"},
    "remote copies off, without them": {"remote.log.copy.disable": "true"},
    "jitter above its age": {"segment.jitter.ms": "10", "segment.ms": "5"},
}


@history(PAIRS)
def pairs(s: Session, configs: Mapping[str, str]) -> None:
    """Some configs bound each other."""
    changes = [(name, SET, value) for name, value in configs.items()]
    s.observe("altered", alter(s, TOPIC, s.topic(), *changes))


@history({"a hundred": 100, "a hundred and one": 101})
def many(s: Session, count: int) -> None:
    """Unknown configs are refused however many they are."""
    changes = [(f"no.such.config.{number}", SET, "1") for number in range(count)]
    s.observe("altered", alter(s, TOPIC, s.topic(), *changes))


@history()
def long_value(s: Session) -> None:
    """A value has 32,767 characters at most."""
    topic = s.topic()
    for size in (1000, 10_000, 32_767):
        value = ",".join(["1:1"] * (size // 4))
        change = ("leader.replication.throttled.replicas", SET, value)
        s.observe(f"{size} characters", alter(s, TOPIC, topic, change, validate_only=True))
