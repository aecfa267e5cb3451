"""The settings of topics, brokers and groups as a cluster has them: read, set and unset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from raftlog.base.errors import from_code
from raftlog.cli.target import Target, refusal
from raftlog.protocol.apis import ApiKey

Kind = Literal["topic", "broker", "group"]
_RESOURCES: Final[dict[Kind, int]] = {"topic": 2, "broker": 4, "group": 32}
"""Kafka's numbers for resources with settings."""
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    8: "group",
}
"""Kafka's numbers for the source of a value, in a word."""
SET, DELETE, APPEND = 0, 1, 2


def settings_of(target: Target, kind: Kind, name: str) -> list[dict[str, Any]]:
    """Return name, value and source of each setting, by name. Raise Failure."""

    def build(make: Any) -> Any:
        resource = make.DescribeConfigsResource(
            resource_type=_RESOURCES[kind], resource_name=name, configuration_keys=None
        )
        return make.DescribeConfigsRequest(
            resources=(resource,), include_synonyms=False, include_documentation=False
        )

    about = f"{kind} {name}: "
    answer = target.ask(ApiKey.DESCRIBE_CONFIGS, build, broker=_broker_of(kind, name), about=about)
    (found,) = answer.results
    if found.error_code:
        raise refusal(from_code(found.error_code, found.error_message), about, needs="DESCRIBE_CONFIGS")
    return [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": _SOURCES.get(entry.config_source, "unknown"),
            "read_only": bool(entry.read_only),
        }
        for entry in sorted(found.configs, key=lambda entry: str(entry.name))
    ]


def setting_of(target: Target, kind: Kind, name: str, setting: str) -> str | None:
    """Return the value of one setting; None if it is unset or not known. Raise Failure."""
    return next((each["value"] for each in settings_of(target, kind, name) if each["name"] == setting), None)


def change_settings(target: Target, kind: Kind, name: str, changes: Mapping[str, str | None]) -> None:
    """Set each setting, or unset it (None), and say so; all of them or none. Raise Failure."""
    alter_settings(target, kind, name, changes)
    for setting, value in changes.items():
        print(f"{setting} unset" if value is None else f"{setting}={value}")


def alter_settings(
    target: Target, kind: Kind, name: str, changes: Mapping[str, str | None], *, append: bool = False
) -> None:
    """Set each setting, or unset it (None), all of them or none; `append` to what lists have. Raise Failure."""

    def build(make: Any) -> Any:
        configs = tuple(
            make.AlterableConfig(
                name=setting,
                config_operation=DELETE if value is None else APPEND if append else SET,
                value=value,
            )
            for setting, value in changes.items()
        )
        resource = make.AlterConfigsResource(
            resource_type=_RESOURCES[kind], resource_name=name, configs=configs
        )
        return make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    about = f"{kind} {name}: "
    answer = target.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, build, broker=_broker_of(kind, name), about=about)
    (done,) = answer.responses
    if done.error_code:
        raise refusal(from_code(done.error_code, done.error_message), about, needs="ALTER_CONFIGS")


def _broker_of(kind: Kind, name: str) -> int | None:
    """Return the broker that alone knows its own settings, or None: any broker may be asked."""
    return int(name) if kind == "broker" and name.isdecimal() else None
