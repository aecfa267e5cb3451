"""The configs of client metrics subscriptions (KIP-714): which clients push which metrics, and how often.

The names and defaults are Kafka's. A subscription has no effect until it has some of these configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from raftlog.base.config.setting import setting, settings_of, words
from raftlog.base.errors import InvalidConfig, InvalidRegularExpression
from raftlog.base.regex import check_regex

ALL_METRICS: Final = "*"

MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The labels that a `match` may use."""

MAX_INSTRUCTIONS: Final = 100
"""Instructions of a compiled expression: each client is matched against every subscription."""

MOST_SUBSCRIPTIONS: Final = 100
NAME_CHARACTERS: Final = 249


def _read_match(text: str) -> tuple[str, ...]:
    items = words(text)
    for item in items:
        name, equals, regex = item.partition("=")
        if not equals or name.strip() not in MATCHED or not regex.strip():
            raise ValueError(f"must be name=expression, with a name of {', '.join(MATCHED)}")
        try:
            check_regex(regex.strip(), most_instructions=MAX_INSTRUCTIONS)
        except InvalidRegularExpression as error:
            raise ValueError(error.message) from error
    return items


@dataclass(frozen=True)
class ClientMetricsConfig:
    """The configs of one subscription."""

    metrics: tuple[str, ...] = setting(
        "metrics",
        "list",
        (),
        f"Beginnings of the names of the metrics that clients push; {ALL_METRICS} for all",
        scope="client-metrics",
        update="cluster-wide",
        nullable=False,
    )
    interval_ms: int = setting(
        "interval.ms",
        "int",
        300_000,
        "How often a client pushes",
        scope="client-metrics",
        update="cluster-wide",
        at_least=100,
        at_most=3_600_000,
    )
    match: tuple[str, ...] = setting(
        "match",
        "list",
        (),
        "Which clients push: name=expression, all of them must match as a whole; empty for every client",
        scope="client-metrics",
        update="cluster-wide",
        nullable=False,
        read=_read_match,
        show=",".join,
    )


def client_metrics_config(configs: Mapping[str, str]) -> ClientMetricsConfig:
    """Return a subscription's configs over their defaults. An invalid value is ignored."""
    found = {}
    for name, (attribute, row) in settings_of(ClientMetricsConfig).items():
        if name in configs:
            try:
                found[attribute] = row.parse(configs[name])
            except ValueError:
                continue
    return ClientMetricsConfig(**found)


def validate_client_metrics_configs(
    name: str, configs: Mapping[str, str], *, stored: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Check a subscription's configs, except for values equal to `stored`.

    Raise InvalidConfig that names every faulty config and its rule.
    """
    table = settings_of(ClientMetricsConfig)
    faults = []
    if not 0 < len(name) <= NAME_CHARACTERS:
        faults.append(f"a subscription's name has 1 to {NAME_CHARACTERS} characters")
    for key, text in configs.items():
        if stored.get(key) == text:
            continue
        if key not in table:
            faults.append(f"{key}: there is no such client metrics config, only {', '.join(table)}")
            continue
        try:
            table[key][1].parse_new(text)
        except ValueError as error:
            faults.append(f"{key}: {error}, but is {text!r}")
    if faults:
        raise InvalidConfig("; ".join(faults))
