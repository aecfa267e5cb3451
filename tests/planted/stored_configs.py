"""Bugs about configs that an older release stored and this one refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftlog.base import config
from raftlog.base.config import describe as config_describe
from raftlog.base.config.setting import Setting
from raftlog.controller import configs
from raftlog_chaos.scenarios.stored_configs import stored_configs
from tests.planted.plant import Plant

Patch = Callable[[pytest.MonkeyPatch], None]


def judged_again(rule: str) -> Patch:
    """A change of one config is refused for another, which is as it was stored."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        validate = getattr(configs, rule)

        def validate_all(*given: Any, stored: Any = None, **named: Any) -> None:
            validate(*given, **named)

        patch.setattr(configs, rule, validate_all)

    return plant


def described_as_read(patch: pytest.MonkeyPatch) -> None:
    """The configs of all brokers are shown as they are read: an unreadable config hides all."""
    patch.setattr(config_describe, "_stored", lambda row, text: row.parse(text))


def read_as_it_stands(patch: pytest.MonkeyPatch) -> None:
    """A value that cannot be read fails each request and task that asks what is in force."""

    def parse(row: Setting, text: str) -> Any:
        return row.parse(text)

    patch.setattr(config, "_parse_or_none", parse)


HAZARD = "an upgrade that locks up"

PLANTS = [
    Plant("stored-topic-configs-judged", HAZARD, stored_configs, judged_again("validate_topic_configs"), 2.0),
    Plant(
        "stored-broker-configs-judged", HAZARD, stored_configs, judged_again("validate_broker_configs"), 2.0
    ),
    Plant("stored-group-configs-judged", HAZARD, stored_configs, judged_again("validate_group_configs"), 2.0),
    Plant(
        "stored-subscriptions-judged",
        HAZARD,
        stored_configs,
        judged_again("validate_client_metrics_configs"),
        2.0,
    ),
    Plant("stored-configs-not-shown", HAZARD, stored_configs, described_as_read, 2.0),
    Plant("stored-configs-not-passed-over", HAZARD, stored_configs, read_as_it_stands, 2.0),
]
