"""Dynamic configs of topics, brokers, groups and client metrics: set, delete, append, subtract, replace.

Sources: KIP-226, KIP-339, KIP-714.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from raftlog.base.config import (
    GroupConfig,
    NodeConfig,
    Setting,
    TopicConfig,
    settings_of,
    topic_config,
    topic_config_without_effect,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
    without_effect,
)
from raftlog.base.config.client_metrics import ClientMetricsConfig, validate_client_metrics_configs
from raftlog.base.config.setting import words
from raftlog.base.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Decision
from raftlog.controller.decisions import UPDATE_ALL_PARTITIONS, LogEvent
from raftlog.controller.leader_and_isr import UNCLEAN_KEY
from raftlog.controller.metadata_limits import (
    MetadataLimits,
    check_group_name,
    check_topic_name,
    checked_value,
)
from raftlog.metadata.controller_api import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigs,
    ConfigAlteration,
    ConfigOp,
    ConfigResult,
    ConfigResults,
)
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import ConfigChanged

_TABLES: Final = {
    "topic": TopicConfig,
    "broker": NodeConfig,
    "group": GroupConfig,
    "client-metrics": ClientMetricsConfig,
}


def decide_alter_configs(image: MetadataImage, request: AlterConfigs, config: NodeConfig) -> Decision:
    """Alter configs, each resource wholly or not at all; with `validate_only`, return what would happen."""
    times = Counter((each.resource_type, each.resource_name) for each in request.alterations)
    bounds = MetadataLimits(image, config)
    records: list[ConfigChanged] = []
    results: dict[tuple[str, str], ConfigResult] = {}
    for alteration in request.alterations:
        resource = (alteration.resource_type, alteration.resource_name)
        try:
            if times[resource] > 1:
                raise InvalidRequest("the resource is named more than once in this request")
            _check_resource(image, alteration)
            changes = _altered(image, alteration, config, bounds=bounds, replace=request.replace)
        except KafkaError as error:
            results[resource] = ConfigResult(*resource, error.code, error.message)
            continue
        records += changes
        results[resource] = ConfigResult(*resource)
    reply = ConfigResults(tuple(results.values()))
    if request.validate_only:
        return Decision(reply=reply)
    return Decision(tuple(records), reply, _effects(records))


def _effects(records: list[ConfigChanged]) -> tuple[object, ...]:
    events = [
        LogEvent(
            "info",
            "config_changed",
            {"resource": f"{each.resource_type}:{each.resource_name}", "key": each.key, "value": each.value},
        )
        for each in records
    ]
    events += warnings_of(records)
    # A change that allows unclean elections applies at once to partitions that are offline.
    allows = any(each.key == UNCLEAN_KEY for each in records)
    return (*events, UPDATE_ALL_PARTITIONS) if allows else tuple(events)


def warnings_of(records: Iterable[ConfigChanged]) -> list[LogEvent]:
    """Return a warning for each accepted value that has no effect."""
    events = []
    for each in records:
        reason = None
        if each.value is not None and each.resource_type == "broker":
            reason = without_effect(each.key)
        elif each.value is not None and each.resource_type == "topic":
            reason = topic_config_without_effect(each.key, each.value)
        if reason is not None:
            fields = {"key": each.key, "value": each.value, "reason": reason}
            if each.resource_type == "topic":
                fields["topic"] = each.resource_name
            events.append(LogEvent("warning", "config_without_effect", fields))
    return events


def _check_resource(image: MetadataImage, alteration: ConfigAlteration) -> None:
    name = alteration.resource_name
    if alteration.resource_type == "topic":
        if not name:
            raise InvalidRequest("topics have no default configs: name a topic")
        check_topic_name(name)
        if name not in image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
    elif alteration.resource_type == "group":
        check_group_name(name)  # a missing group may have configs
    elif alteration.resource_type == "client-metrics":
        return
    elif alteration.resource_type != "broker":
        raise InvalidRequest(
            f"{alteration.resource_type!r} has no configs; must be one of {', '.join(_TABLES)}"
        )
    elif name and not (name.isdecimal() and int(name) in image.brokers):
        raise BrokerIdNotRegistered(f"no broker is registered with id {name!r}")


def _altered(
    image: MetadataImage,
    alteration: ConfigAlteration,
    config: NodeConfig,
    *,
    bounds: MetadataLimits,
    replace: bool,
) -> list[ConfigChanged]:
    if any(count > 1 for count in Counter(op.key for op in alteration.ops).values()):
        raise InvalidRequest("a config is named more than once")
    before = image.configs.get((alteration.resource_type, alteration.resource_name), {})
    after = {} if replace else dict(before)
    for op in alteration.ops:
        value = _value_after(image, alteration, op, config)
        if value is None:
            after.pop(op.key, None)
        else:
            after[op.key] = value
    if alteration.resource_type == "topic":
        validate_topic_configs(after, topic=alteration.resource_name, stored=before)
    elif alteration.resource_type == "group":
        validate_group_configs(after, config, stored=before)
    elif alteration.resource_type == "client-metrics":
        validate_client_metrics_configs(alteration.resource_name, after, stored=before)
    else:
        validate_broker_configs(after, cluster_wide=not alteration.resource_name, stored=before)
    resource = (alteration.resource_type, alteration.resource_name)
    changes = [
        ConfigChanged(*resource, key, after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    bounds.batch_limit.check(others=len(changes))
    bounds.change_configs(resource, before, after)
    bounds.batch_limit.reserve(others=len(changes))
    return changes


def _value_after(
    image: MetadataImage, alteration: ConfigAlteration, op: ConfigOp, config: NodeConfig
) -> str | None:
    if op.op == DELETE:
        return None
    if op.op == SET:
        if op.value is None:
            raise InvalidConfig(f"{op.key}: SET needs a value")
        return checked_value(op.key, op.value)
    if op.op not in (APPEND, SUBTRACT):
        raise InvalidRequest(f"config operation {op.op} is unknown")
    items = _current_list(image, alteration, op.key, config)
    named = [item.strip() for item in checked_value(op.key, op.value or "").split(",")]
    if op.op == APPEND:
        present = set(items)
        return checked_value(
            op.key, ",".join([*items, *(item for item in dict.fromkeys(named) if item not in present)])
        )
    gone = set(named)
    return ",".join(item for item in items if item not in gone)


def _current_list(
    image: MetadataImage, alteration: ConfigAlteration, key: str, config: NodeConfig
) -> list[str]:
    """Return a list config as in force, set or by default."""
    table = settings_of(_TABLES[alteration.resource_type])
    attribute, row = table.get(key, (key, None))
    if row is None or row.kind != "list":
        raise InvalidConfig(f"{key}: only lists can be appended to or subtracted from")
    own = image.configs.get((alteration.resource_type, alteration.resource_name), {}).get(key)
    if own is not None:
        return list(words(own))  # an older version may have stored it: what comes of it is judged as a whole
    return list(_default_list(image, alteration, attribute, row, config))


def _default_list(
    image: MetadataImage, alteration: ConfigAlteration, attribute: str, row: Setting, config: NodeConfig
) -> tuple[str, ...]:
    cluster_wide = image.config("broker", "")
    if alteration.resource_type == "topic":
        items: tuple[str, ...] = getattr(topic_config(config, cluster_wide, {}), attribute)
    elif alteration.resource_type == "client-metrics":
        items = row.default
    elif row.name in cluster_wide:
        items = words(cluster_wide[row.name])
    else:
        items = words(row.format(getattr(config, attribute)) or "")  # some are no texts, such as listeners
    return items
