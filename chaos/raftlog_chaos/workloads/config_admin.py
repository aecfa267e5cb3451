"""An administrator that sets, deletes and describes configs, and a release with controllers that accept any value."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from raftlog.base.config import (
    GroupConfig,
    NodeConfig,
    TopicConfig,
    settings_of,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)
from raftlog.base.config.client_metrics import ClientMetricsConfig, validate_client_metrics_configs
from raftlog.base.config.setting import Setting
from raftlog.base.errors import InvalidConfig, NotController, RequestTimedOut
from raftlog.controller import configs
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    Client,
    shapes,
)

SET, DELETE = 0, 1
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Kinds of resources, as requests number them."""
TABLES: Final[Mapping[int, Any]] = {
    TOPIC: TopicConfig,
    BROKER: NodeConfig,
    CLIENT_METRICS: ClientMetricsConfig,
    GROUP: GroupConfig,
}
ODD_TEXTS: Final = ("no such value", "-3", "0", str(2**70), "a,,b", "1.5", "true,", "", "0:1,,1:2", "x=y=z")
AGAIN_S: Final = 0.1
UNCERTAIN: Final = frozenset({NotController.code, RequestTimedOut.code})
"""It may be done or not: a retry has the same outcome."""


def rows_of(kind: int) -> dict[str, Setting]:
    """Return the configs of a kind of resource by name; for brokers only the dynamic configs."""
    rows = {name: row for name, (_, row) in settings_of(TABLES[kind]).items()}
    return {name: row for name, row in rows.items() if kind != BROKER or row.update == "cluster-wide"}


def is_refused(kind: int, name: str, text: str) -> bool:
    """Say whether this release refuses a value."""
    try:
        if kind == TOPIC:
            validate_topic_configs({name: text})
        elif kind == BROKER:
            validate_broker_configs({name: text}, cluster_wide=True)
        elif kind == GROUP:
            validate_group_configs({name: text}, NodeConfig(node_id=1))
        else:
            validate_client_metrics_configs("m", {name: text})
    except InvalidConfig:
        return True
    return False


def refused_texts(kind: int) -> dict[str, list[str]]:
    """Return by config the odd texts that this release refuses, if any."""
    found = {name: [text for text in ODD_TEXTS if is_refused(kind, name, text)] for name in rows_of(kind)}
    return {name: texts for name, texts in found.items() if texts}


def sound_texts(kind: int) -> dict[str, str]:
    """Return each config's default, where that can be set."""
    texts = {name: row.format(row.default) for name, row in rows_of(kind).items()}
    return {
        name: text for name, text in texts.items() if text is not None and not is_refused(kind, name, text)
    }


@contextmanager
def any_value_accepted() -> Iterator[None]:
    """Make all controllers accept any value of any config, as a release with fewer rules."""
    rules = [each for each in vars(configs) if each.startswith("validate_")]
    with ExitStack() as stack:
        for each in (*rules, "topic_config_without_effect"):
            stack.enter_context(patch.object(configs, each, lambda *given, **named: None))
        yield


class ConfigAdmin:
    """Retries until there is a response."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def set(self, kind: int, name: str, texts: Mapping[str, str | None]) -> int:
        """Set configs of a resource, delete those without a text; returns the error code."""
        make = shapes(INCREMENTAL_ALTER_CONFIGS)
        altered = tuple(
            make.AlterableConfig(name=each, config_operation=DELETE if text is None else SET, value=text)
            for each, text in texts.items()
        )
        resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)
        request = make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        while True:
            answer = await self._ask(INCREMENTAL_ALTER_CONFIGS, request)
            code = int(answer.responses[0].error_code)
            if code not in UNCERTAIN:
                return code
            await asyncio.sleep(AGAIN_S)

    async def describe(self, kind: int, name: str) -> dict[str, str | None]:
        """Return what is set on a resource itself. Raises AssertionError if it cannot be described."""
        make = shapes(DESCRIBE_CONFIGS)
        resource = make.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = make.DescribeConfigsRequest(
            resources=(resource,), include_synonyms=True, include_documentation=False
        )
        answer = await self._ask(DESCRIBE_CONFIGS, request)
        result = answer.results[0]
        assert not int(result.error_code), f"{kind} {name!r} cannot be described: {result.error_message}"
        return {
            each.name: synonym.value
            for each in result.configs
            for synonym in each.synonyms[:1]
            if synonym.name == each.name
        }

    async def _ask(self, api_key: int, request: Any) -> Any:
        while True:
            try:
                return await self._client.ask_any(api_key, request)
            except AWAY:
                await asyncio.sleep(AGAIN_S)
