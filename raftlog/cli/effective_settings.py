"""The settings of topics, brokers and groups as a cluster has them: read, set and unset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.target import Admin

Kind = Literal["topic", "broker", "group"]
_SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "GROUP_CONFIG": "group",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "file",
    "DEFAULT_CONFIG": "default",
}
"""The source of a value, in a word."""


def settings_of(admin: Admin, kind: Kind, name: str) -> list[dict[str, Any]]:
    """Return name, value and source of each setting, by name. Raises Failure."""
    (future,) = admin.ask(admin.client.describe_configs, [_resource(kind, name)]).values()
    found = admin.wait(future, f"{kind} {name}: ", needs="DESCRIBE_CONFIGS")
    sources = confluent_kafka().admin.ConfigSource
    return [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": _SOURCES.get(sources(entry.source).name, "unknown"),
            "read_only": bool(entry.is_read_only),
        }
        for entry in sorted(found.values(), key=lambda entry: str(entry.name))
    ]


def change_settings(admin: Admin, kind: Kind, name: str, changes: Mapping[str, str | None]) -> None:
    """Set each setting, or unset it (None), and say so; all of them or none. Raises Failure."""
    alter_settings(admin, kind, name, changes)
    for setting, value in changes.items():
        print(f"{setting} unset" if value is None else f"{setting}={value}")


def alter_settings(
    admin: Admin, kind: Kind, name: str, changes: Mapping[str, str | None], *, append: bool = False
) -> None:
    """Set each setting, or unset it (None), all of them or none; `append` to what lists have. Raises Failure."""
    library = confluent_kafka().admin
    operation = library.AlterConfigOpType
    put = operation.APPEND if append else operation.SET
    entries = [
        library.ConfigEntry(setting, value, incremental_operation=operation.DELETE if value is None else put)
        for setting, value in changes.items()
    ]
    resource = _resource(kind, name, incremental_configs=entries)
    (future,) = admin.ask(admin.client.incremental_alter_configs, [resource]).values()
    admin.wait(future, f"{kind} {name}: ", needs="ALTER_CONFIGS")


def _resource(kind: Kind, name: str, **entries: Any) -> Any:
    library = confluent_kafka().admin
    return library.ConfigResource(library.ResourceType[kind.upper()], name, **entries)
