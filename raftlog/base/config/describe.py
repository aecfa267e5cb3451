"""The content of DescribeConfigs: each setting with its value, where the value comes from, and its fallbacks.

Reads the tables only; the shapes of the wire's versions are the protocol's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from raftlog.base.config import broker_config, group_config, topic_config
from raftlog.base.config.broker import NodeConfig
from raftlog.base.config.client_metrics import ClientMetricsConfig, client_metrics_config
from raftlog.base.config.group import GroupConfig
from raftlog.base.config.kafka import KAFKA_SETTINGS
from raftlog.base.config.setting import Setting, settings_of
from raftlog.base.config.topic import TopicConfig
from raftlog.base.log import KAFKA_LEVELS


class ConfigSource(IntEnum):
    """The sources of a value (KIP-226), nearest first."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigSynonym(NamedTuple):
    """One place where a value is, or could have been, set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One row of an answer. `value` is None for sensitive settings; the first synonym is in force."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    wire_type: int
    doc: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


def describe_topic(
    node: NodeConfig,
    overrides: Mapping[str, str],
    *,
    cluster_dynamic: Mapping[str, str],
    broker_dynamic: Mapping[str, str],
) -> list[ConfigEntry]:
    """Describe all configs of a topic.

    `cluster_dynamic`: configs set for all brokers; `broker_dynamic`: configs set for this broker.
    """
    in_force = topic_config(node, {**cluster_dynamic, **broker_dynamic}, overrides)
    own = _Own(settings_of(TopicConfig), overrides, ConfigSource.DYNAMIC_TOPIC)
    return _describe(in_force, own, lambda row: _of_broker(row, node, cluster_dynamic, broker_dynamic))


def describe_group(node: NodeConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe all configs of a group. The broker settings that it falls back on cannot be changed at run time."""
    own = _Own(settings_of(GroupConfig), overrides, ConfigSource.DYNAMIC_GROUP)
    return _describe(group_config(node, overrides), own, lambda row: _of_broker(row, node, {}, {}))


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe all configs of a subscription to client metrics, whether or not it exists."""
    own = _Own(settings_of(ClientMetricsConfig), overrides, ConfigSource.CLIENT_METRICS)
    return _describe(client_metrics_config(overrides), own, lambda _row: ())


def describe_loggers(levels: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe the loggers of a process, by the level in force of each (KIP-412)."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    doc = f"Least severe event that this logger writes: {', '.join(KAFKA_LEVELS)}"
    row = Setting("", "string", None, doc, update="per-broker")
    return [
        _entry(dataclasses.replace(row, name=name), level, source, [], read_only=False)
        for name, level in levels.items()
    ]


class _Own(NamedTuple):
    """The configs of a resource itself: all that can be set, and all that are."""

    rows: Mapping[str, tuple[str, Setting]]
    overrides: Mapping[str, str]
    source: ConfigSource


def _describe(
    in_force: Any, own: _Own, of_broker: Callable[[Setting], Iterable[ConfigSynonym]]
) -> list[ConfigEntry]:
    entries = []
    for name, (attribute, row) in own.rows.items():
        synonyms = []
        if name in own.overrides:
            synonyms.append(ConfigSynonym(name, own.overrides[name], own.source))
        for broker_name, _ in row.synonyms:
            synonyms += of_broker(settings_of(NodeConfig)[broker_name][1])
        if not row.synonyms:
            synonyms.append(ConfigSynonym(name, row.format(row.default), ConfigSource.DEFAULT))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(_entry(row, getattr(in_force, attribute), source, synonyms, read_only=False))
    return entries


def describe_broker(
    node: NodeConfig, *, cluster_dynamic: Mapping[str, str], broker_dynamic: Mapping[str, str]
) -> list[ConfigEntry]:
    """Describe all settings of a broker: the start-up config under the dynamic changes.

    Of Kafka's settings that raftlog lacks, it includes those that are set.
    """
    in_force = broker_config(node, {**cluster_dynamic, **broker_dynamic})
    entries = []
    for attribute, row in settings_of(NodeConfig).values():
        synonyms = list(_of_broker(row, node, cluster_dynamic, broker_dynamic))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(_entry(row, getattr(in_force, attribute), source, synonyms, read_only=row.read_only))
    for name in sorted({*node.given, *cluster_dynamic, *broker_dynamic} & KAFKA_SETTINGS.keys()):
        kafkas = KAFKA_SETTINGS[name]
        synonyms = list(_of_broker(kafkas.row, node, cluster_dynamic, broker_dynamic))
        value, source = synonyms[0].value, synonyms[0].source
        entries.append(_entry(kafkas.row, value, source, synonyms, read_only=not kafkas.is_kept))
    return entries


def describe_cluster_default(cluster_dynamic: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe what is set for all brokers (the broker resource with the empty name)."""
    table = {name: row for name, (_, row) in settings_of(NodeConfig).items()}
    table |= {name: kafkas.row for name, kafkas in KAFKA_SETTINGS.items()}
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _entry(
            table[name],
            _stored(table[name], text),
            source,
            [ConfigSynonym(name, text, source)],
            read_only=False,
        )
        for name, text in cluster_dynamic.items()
        if name in table
    ]


def _stored(row: Setting, text: str) -> Any:
    """Return a stored value. An invalid text, which an older version accepted, is shown unchanged."""
    try:
        return row.parse(text)
    except ValueError:
        return text if row.show is None else None


def _entry(
    row: Setting, value: Any, source: ConfigSource, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    shown = None if row.sensitive else row.format(value)
    return ConfigEntry(
        row.name, shown, source, read_only, row.sensitive, row.wire_type, row.meaning, tuple(synonyms)
    )


def _of_broker(
    row: Setting, node: NodeConfig, cluster_dynamic: Mapping[str, str], broker_dynamic: Mapping[str, str]
) -> Iterator[ConfigSynonym]:
    name = row.name
    layers = (
        (broker_dynamic, ConfigSource.DYNAMIC_BROKER),
        (cluster_dynamic, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (node.given, ConfigSource.STATIC_BROKER),
    )
    for values, source in layers:
        if name in values:
            yield ConfigSynonym(name, None if row.sensitive else values[name], source)
    if row.default is not None:
        yield ConfigSynonym(name, None if row.sensitive else row.format(row.default), ConfigSource.DEFAULT)
