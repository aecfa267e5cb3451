"""The config of a node, of topics and of groups: default < file < environment < flag; all faults at once, by name.

Opens no file, resolves no host name: texts, host name and working folder are passed in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from raftlog.base import variables
from raftlog.base.config import kafka as config_kafka
from raftlog.base.config import resolve as config_resolve
from raftlog.base.config.broker import ConfigWarning, NodeConfig
from raftlog.base.config.connections import LIMITS_OF_LISTENERS, split_limit_override
from raftlog.base.config.files import environment_name, parse_environment, parse_file, parse_override
from raftlog.base.config.group import GroupConfig
from raftlog.base.config.kafka import KAFKA_SETTINGS
from raftlog.base.config.network import Listener
from raftlog.base.config.oauth import OAUTH_OF_LISTENERS, split_oauth_override
from raftlog.base.config.security import LISTENER_PREFIX, LOGINS_OF_LISTENERS, split_override
from raftlog.base.config.setting import LONG_MAX, Setting, settings_of
from raftlog.base.config.tls import TlsSettings, admin_tls_names, split_tls_override
from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import InvalidConfig
from raftlog.base.types import INTERNAL_TOPICS, SHARE_GROUP_STATE_TOPIC

__all__ = [
    "ConfigFaults",
    "ConfigWarning",
    "Fault",
    "GroupConfig",
    "Listener",
    "NodeConfig",
    "Setting",
    "TopicConfig",
    "broker_config",
    "environment_name",
    "group_config",
    "is_secret",
    "load_config",
    "parse_file",
    "parse_override",
    "parse_topic_configs",
    "settings_of",
    "topic_config",
    "topic_config_without_effect",
    "validate_broker_configs",
    "validate_group_configs",
    "validate_topic_configs",
    "without_effect",
]

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's older names; the newer name wins if both are set."""

SESSIONS_AND_HEARTBEATS = (
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
)
"""Configs of groups, by the kind of group: a session lasts longer than a heartbeat interval."""

_SPLIT_OVERRIDES = (split_override, split_oauth_override, split_tls_override, split_limit_override)
"""Each recognises the settings of one listener that its part implements."""
_OF_LISTENERS = frozenset(
    (*LOGINS_OF_LISTENERS, *OAUTH_OF_LISTENERS, *settings_of(TlsSettings), *LIMITS_OF_LISTENERS)
)
"""These settings, without the listener's name."""

_SECRETS: Final = frozenset(
    environment_name(name) for name, (_, setting) in settings_of(NodeConfig).items() if setting.sensitive
)
_SECRETS_OF_LISTENERS: Final = frozenset(
    name
    for name in _OF_LISTENERS
    if name.endswith("sasl.jaas.config")
    or (name in settings_of(TlsSettings) and settings_of(TlsSettings)[name][1].sensitive)
)


def is_secret(variable: str) -> bool:
    """Return whether an environment variable belongs to a secret setting, of the node or of one listener."""
    return variable in _SECRETS or bool(parse_environment({variable: ""}, (), _SECRETS_OF_LISTENERS)[0])


class Fault(NamedTuple):
    """One thing wrong with one setting. `source`: where it was set (file, environment, flag), "" for nowhere."""

    name: str
    source: str
    rule: str

    def __str__(self) -> str:
        return f"{self.name}: {self.rule}" + (f" ({self.source})" if self.source else "")


class ConfigFaults(ValueError):
    """All mistakes in a config, in one exception."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


def load_config(
    file: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    hostname: str = "localhost",
    working_dir: str = "/",
) -> NodeConfig:
    """Return the config of one node from its layers; raises ConfigFaults naming every fault.

    `hostname` is advertised for listeners bound to every interface; relative folders start at `working_dir`.
    """
    table = settings_of(NodeConfig)
    names = frozenset((*table, *ALIASES, *admin_tls_names(), *KAFKA_SETTINGS))
    from_environment, strangers = parse_environment(environment or {}, names, _OF_LISTENERS)
    given: dict[str, str] = {}
    sources: dict[str, str] = {}
    layers = (("file", file or {}), ("environment", from_environment), ("flag", flags or {}))
    for source, layer in layers:
        for name, text in _without_aliases(layer).items():
            given[name] = text
            sources[name] = source
    faults = [
        Fault(
            "broker.id", source, f"is {layer['broker.id']}, but node.id, which means the same, is {node_id}"
        )
        for source, layer in layers
        if (node_id := layer.get("node.id")) is not None and layer.get("broker.id", node_id) != node_id
    ]
    ignored: list[str] = []
    overrides: dict[str, str] = {}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name in table:
            attribute, row = table[name]
            _read(row, text, attribute=attribute, values=values, faults=faults, source=sources[name])
        elif any(split(name) is not None for split in _SPLIT_OVERRIDES):
            overrides[name] = text
        elif (missing := config_kafka.missing_security(name)) and text.strip():
            faults.append(Fault(name, sources[name], _insecure(missing)))
        elif config_kafka.is_kafkas(name):
            ignored.append(name)
        else:
            rule = _of_topics(name, table) or unknown_setting(name, table)
            faults.append(Fault(name, sources[name], rule))
    strangers = [each for each in strangers if each not in variables.NOT_SETTINGS]
    faults += _of_strangers(strangers)
    warnings = list(_warn_of_ignored(ignored, strangers))
    draft = config_resolve.Draft(
        values,
        given={row.name for attribute, row in table.values() if attribute in values},
        faulty={fault.name for fault in faults},
        overrides=overrides,
    )
    config_resolve.resolve(draft, hostname=hostname, working_dir=working_dir)
    faults += [Fault(name, sources.get(name, ""), rule) for name, rule in draft.faults]
    if faults:
        raise ConfigFaults(faults)
    kept = {name: "[hidden]" if row.sensitive else given[name] for name, row in _rows(given)}
    return NodeConfig(**values, given=kept, warnings=tuple(warnings + draft.warnings))


def _without_aliases(layer: Mapping[str, str]) -> dict[str, str]:
    named = {name: text for name, text in layer.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if alias in layer:
            named.setdefault(name, layer[alias])
    return named


def _read(
    row: Setting, text: str, *, attribute: str, values: dict[str, Any], faults: list[Fault], source: str
) -> None:
    try:
        values[attribute] = row.parse(text)
    except ValueError as error:
        faults.append(Fault(row.name, source, row.fault_of(error, text)))


def _rows(given: Iterable[str]) -> Iterable[tuple[str, Setting]]:
    """Yield the row of each known setting, raftlog's own or Apache Kafka's."""
    table = settings_of(NodeConfig)
    for name in given:
        if name in table:
            yield name, table[name][1]
        elif name in KAFKA_SETTINGS:
            yield name, KAFKA_SETTINGS[name].row


def _insecure(missing: str) -> str:
    return f"{missing}; a setting about security that would have no effect is refused, so leave it out"


def _of_strangers(variables: Iterable[str]) -> Iterable[Fault]:
    """Yield a fault for each variable that secures one listener. Their names contain the listener's, so no table has
    them.

    Other unknown variables may come from Kubernetes, which derives some from the names of services.
    """
    for variable in variables:
        name = variable.removeprefix("RAFTLOG_").lower().replace("_", ".")
        missing = config_kafka.missing_security(name)
        if missing and name.startswith(LISTENER_PREFIX):
            yield Fault(variable, "environment", _insecure(missing))


def _warn_of_ignored(ignored: list[str], strangers: list[str]) -> Iterable[ConfigWarning]:
    if ignored:
        yield ConfigWarning("kafka_settings_ignored", {"settings": sorted(ignored)})
    if strangers:
        yield ConfigWarning("environment_variables_unknown", {"variables": strangers})


def _of_topics(name: str, known: Container[str]) -> str:
    """Return the error for a topic's config among a node's settings, with the node's own name for it; "" for others."""
    if name not in (topics := settings_of(TopicConfig)):
        return ""
    own = [f"the node's setting is {each}" for each, _ in topics[name][1].synonyms if each in known]
    return "; ".join(["is a topic's config", *own[:1]])


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """Return the error for an unknown name, with the nearest known name.

    Only names with the same beginning are compared, some 0.1 ms of work: clients may send hundreds of unknown names.
    """
    import difflib

    alike = [each for each in (*known, *KAFKA_SETTINGS, *ALIASES) if each[:2] == name[:2]]
    near = difflib.get_close_matches(name, alike, n=1, cutoff=0.75)
    return "there is no such setting" + (f"; did you mean {near[0]}?" if near else "")


# --- topics


def topic_config(
    node: NodeConfig, broker_dynamic: Mapping[str, str], overrides: Mapping[str, str]
) -> TopicConfig:
    """Return the config of one topic: its overrides, else the brokers' dynamic configs, else the node's.

    Cached. Unknown or malformed overrides are ignored: they were checked before they were recorded.
    """
    return _topic_config(node, frozenset(broker_dynamic.items()), frozenset(overrides.items()))


@lru_cache(maxsize=1024)
def _topic_config(
    node: NodeConfig, broker_dynamic: frozenset[tuple[str, str]], overrides: frozenset[tuple[str, str]]
) -> TopicConfig:
    in_force, own = broker_config(node, dict(broker_dynamic)), dict(overrides)
    values = {}
    for name, (attribute, row) in settings_of(TopicConfig).items():
        value = _parse_or_none(row, own[name]) if name in own else None
        values[attribute] = value if value is not None else broker_default(row, in_force)
    return TopicConfig(**values)


def _parse_or_none(row: Setting, text: str) -> Any:
    try:
        return row.parse(text)
    except ValueError:
        return None


def broker_default(row: Setting, broker: NodeConfig) -> Any:
    """Return the value of a topic's or group's config by its broker's settings, without an override."""
    for name, factor in row.synonyms:
        value = getattr(broker, settings_of(NodeConfig)[name][0])
        if value is not None:
            return _scaled(value, factor) if factor != 1 else value
    return row.default


def _scaled(value: int, factor: int) -> int:
    return value * factor if value > 0 else value


def parse_topic_configs(
    configs: Mapping[str, str], *, topic: str = "", stored: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return {dotted name: value}. Raise InvalidConfig that names every faulty config and its rule.

    Configs equal to their `stored` values are not faults: an older version accepted them.
    """
    table = settings_of(TopicConfig)
    values: dict[str, Any] = {}
    faults = []
    for name, text in configs.items():
        is_stored = stored.get(name) == text
        if name not in table:
            if not is_stored:
                rule = unknown_setting(name, table).replace("setting", "topic config", 1)
                faults.append(Fault(name, "", rule))
            continue
        try:
            values[name] = table[name][1].parse_new(text)
        except ValueError as error:
            if not is_stored:
                faults.append(Fault(name, "", f"{error}, but is {text!r}"))
    laws = dict(_topic_laws(values, topic))
    if laws and stored:  # what held already is no fault of this change
        kept = {name: value for name, value in values.items() if stored.get(name) == configs[name]}
        held = dict(_topic_laws(kept, topic))
        laws = {name: rule for name, rule in laws.items() if name not in held}
    faults += [Fault(name, "", rule) for name, rule in laws.items()]
    if faults:
        raise InvalidConfig("; ".join(map(str, faults)))
    return values


def _topic_laws(values: Mapping[str, Any], topic: str) -> Iterable[tuple[str, str]]:
    policy = values.get("cleanup.policy", ("delete",))
    if topic == SHARE_GROUP_STATE_TOPIC:
        yield from _share_state_laws(values)
    elif topic in INTERNAL_TOPICS and "compact" not in policy and "cleanup.policy" in values:
        yield (
            "cleanup.policy",
            "internal topics must stay compacted: without that they grow for ever, or forget",
        )
    if values.get("min.compaction.lag.ms", 0) > values.get("max.compaction.lag.ms", LONG_MAX):
        yield "min.compaction.lag.ms", "must be at most max.compaction.lag.ms"
    if values.get("remote.storage.enable"):
        yield "remote.storage.enable", "raftlog has no tiered storage"


def _share_state_laws(values: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Each update counts, until the share coordinator deletes it: neither compaction nor age may."""
    if "compact" in values.get("cleanup.policy", ()):
        yield (
            "cleanup.policy",
            "must be delete: compaction would keep only the last update of a share partition",
        )
    for name in ("retention.ms", "retention.bytes"):
        if values.get(name, -1) != -1:
            yield name, "must be -1: the share coordinators delete the records that do not count"


def validate_topic_configs(
    configs: Mapping[str, str], *, topic: str = "", stored: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise InvalidConfig that names every faulty config and its rule, if any."""
    parse_topic_configs(configs, topic=topic, stored=stored)


# --- groups


def group_config(node: NodeConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """Return the config of one group: its own configs, else the node's. Cached.

    A value beyond the node's bounds was set while those were wider: the bound holds. A group's own timeouts have no
    effect if they would leave no session longer than a heartbeat interval (as in Kafka 4.3).
    """
    return _group_config(node, frozenset(overrides.items()))


@lru_cache(maxsize=1024)
def _group_config(node: NodeConfig, overrides: frozenset[tuple[str, str]]) -> GroupConfig:
    of_brokers = _of_brokers(node)
    values = of_brokers | {
        name: value for name, text in overrides for value in _stored_values(name, text, node)
    }
    for session, heartbeat in SESSIONS_AND_HEARTBEATS:
        if values[session] <= values[heartbeat]:
            values |= {session: of_brokers[session], heartbeat: of_brokers[heartbeat]}
    return GroupConfig(**{settings_of(GroupConfig)[name][0]: value for name, value in values.items()})


def _of_brokers(node: NodeConfig) -> dict[str, Any]:
    return {name: broker_default(row, node) for name, (_, row) in settings_of(GroupConfig).items()}


def _group_bounds(name: str, node: NodeConfig) -> tuple[int, int] | None:
    """Return the least and the greatest value of a group's config, or None if brokers set no bounds."""
    table = settings_of(NodeConfig)
    kind, _, rest = name.partition(".")
    low, high = (table.get(f"group.{kind}.{end}.{rest}") for end in ("min", "max"))
    return None if low is None or high is None else (getattr(node, low[0]), getattr(node, high[0]))


def _stored_values(name: str, text: str, node: NodeConfig) -> Iterable[Any]:
    """Return the value in force of a stored config of a group; nothing for one that this release cannot read."""
    table = settings_of(GroupConfig)
    value = _parse_or_none(table[name][1], text) if name in table else None
    if value is None:
        return ()
    bounds = _group_bounds(name, node)
    return (value if bounds is None else min(max(value, bounds[0]), bounds[1]),)


def validate_group_configs(
    configs: Mapping[str, str], node: NodeConfig, *, stored: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Check a group's own configs, except values equal to `stored`, since bounds were wider once.

    Raise InvalidConfig that names every faulty config and its rule.
    """
    values = _of_brokers(node)
    faults = []
    for name, text in configs.items():
        if stored.get(name) == text:
            values.update((name, value) for value in _stored_values(name, text, node))
            continue
        try:
            values[name] = _new_group_value(name, text, node)
        except ValueError as error:
            faults.append(Fault(name, "", str(error)))
    changes = any(stored.get(name) != text for name, text in configs.items())
    if changes and not faults:
        faults += [
            Fault(session, "", f"must be more than {heartbeat}")
            for session, heartbeat in SESSIONS_AND_HEARTBEATS
            if values[session] <= values[heartbeat]
        ]
    if faults:
        raise InvalidConfig("; ".join(map(str, faults)))


def _new_group_value(name: str, text: str, node: NodeConfig) -> Any:
    """Return a group's config that is being set. Raise ValueError with the rule that it breaks."""
    table = settings_of(GroupConfig)
    if name not in table:
        raise ValueError(f"there is no such group config, only {', '.join(table)}")
    try:
        value = table[name][1].parse(text)
    except ValueError as error:
        raise ValueError(f"{error}, but is {text!r}") from error
    bounds = _group_bounds(name, node)
    if bounds is not None and not bounds[0] <= value <= bounds[1]:
        kind = name.partition(".")[0]
        limits = f"{bounds[0]} (group.{kind}.min.*) to {bounds[1]} (group.{kind}.max.*)"
        raise ValueError(f"must be from {limits}, but is {text!r}")
    return value


# --- brokers


def broker_config(node: NodeConfig, dynamic: Mapping[str, str]) -> NodeConfig:
    """Return the config of one broker: its dynamic configs, else its start-up config. Cached.

    `dynamic`: the metadata's configs of this broker, over the cluster-wide configs (`MetadataImage.broker_configs`).
    Code that follows changes at run time reads it each time, by
    `raftlog.metadata.effective_config.effective_broker_config`.
    """
    return _broker_config(node, frozenset(dynamic.items())) if dynamic else node


@lru_cache(maxsize=64)
def _broker_config(node: NodeConfig, dynamic: frozenset[tuple[str, str]]) -> NodeConfig:
    table = settings_of(NodeConfig)
    changes = {}
    for name, text in dynamic:
        attribute, row = table.get(name, ("", None))
        value = _parse_or_none(row, text) if row is not None and row.dynamic else None
        if value is not None:
            changes[attribute] = value
    return dataclasses.replace(node, **changes)


def validate_broker_configs(
    configs: Mapping[str, str], *, cluster_wide: bool, stored: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Check dynamic broker configs (KIP-226). Raise InvalidConfig for unknown, read-only or malformed configs.

    `cluster_wide`: they are set for all brokers, so per-broker settings are refused. Configs equal to their `stored`
    values are not checked again: an older version accepted them.
    """
    faults = []
    for name, text in configs.items():
        if stored.get(name) == text:
            continue
        rule = _unchangeable(name, cluster_wide=cluster_wide)
        if rule is None:
            ((_, row),) = _rows([name])
            try:
                row.parse_new(text)
                continue
            except ValueError as error:
                rule = f"{error}, but is {text!r}"
        faults.append(Fault(name, "", rule))
    if faults:
        raise InvalidConfig("; ".join(map(str, faults)))


def _unchangeable(name: str, *, cluster_wide: bool) -> str | None:
    """Return the reason why a running broker does not accept a change of a setting, or None."""
    table = settings_of(NodeConfig)
    name = ALIASES.get(name, name)
    if name in table:
        update = table[name][1].update
        if update == "read-only":
            return "cannot be changed while brokers run"
        return "is per broker" if cluster_wide and update == "per-broker" else None
    if missing := config_kafka.missing_security(name):
        return _insecure(missing)
    kafkas = KAFKA_SETTINGS.get(name)
    if kafkas is not None:
        if kafkas.is_kept:
            return "is per broker" if cluster_wide and kafkas.row.update == "per-broker" else None
        unchangeable = "" if kafkas.row.dynamic else "cannot be changed while brokers run, and "
        return f"{unchangeable}has no meaning in raftlog: {kafkas.why}"
    if config_kafka.is_kafkas(name):
        return "has no meaning in raftlog, which has no such family of settings"
    return unknown_setting(name, table).replace("setting", "broker config", 1)


def without_effect(name: str) -> str | None:
    """Return the explanation for an accepted broker config without effect, None for any other name."""
    return next((row.meaning for _, row in _rows([name]) if not row.applied), None)


def topic_config_without_effect(name: str, text: str) -> str | None:
    """Return the explanation for an accepted topic config without effect; None for others, and for defaults."""
    row = settings_of(TopicConfig)[name][1]
    return None if row.applied or row.parse(text) == row.default else row.meaning
