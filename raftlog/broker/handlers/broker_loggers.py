"""The levels of this process's loggers, as Kafka's tools change them (BROKER_LOGGER, KIP-412).

They are not metadata: only the broker that gets the request changes, and a restart begins with the config's level
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.base.errors import InvalidConfig, InvalidRequest, KafkaError
from raftlog.base.log import KAFKA_LEVELS, LOGGERS, ROOT, get_logger
from raftlog.broker.context import BrokerContext
from raftlog.broker.handlers.config_resources import AlterationResult, check_own_broker
from raftlog.metadata.controller_api import DELETE, SET

log = get_logger(__name__)


def alter_loggers(
    broker: BrokerContext, name: str, configs: Sequence[Any], *, validate_only: bool
) -> AlterationResult:
    """Change the levels of loggers, all or none, and return the outcome."""
    try:
        check_own_broker(broker, name)
        changes = _changes(configs)
    except KafkaError as error:
        return AlterationResult(error.code, error.message)
    if not validate_only:
        for logger, level in changes.items():
            LOGGERS.change(logger, level)
            log.warning("log_level_changed", logger=logger, level=LOGGERS.levels()[logger])
    return AlterationResult()


def _changes(configs: Sequence[Any]) -> dict[str, str | None]:
    known = LOGGERS.levels()
    changes: dict[str, str | None] = {}
    for each in configs:
        if each.name in changes:
            raise InvalidRequest(f"{each.name[:100]} is named more than once")
        if each.config_operation not in (SET, DELETE):
            raise InvalidRequest("a logger's level can be set and deleted only")
        if each.name not in known:
            some = ", ".join(logger for logger in known if logger.count(".") < 2)
            raise InvalidConfig(
                f"there is no logger {each.name[:100]!r}; there are {some}, and parts of them"
            )
        if each.config_operation == SET and each.value not in KAFKA_LEVELS:
            raise InvalidConfig(f"{each.name}: the level must be one of {', '.join(KAFKA_LEVELS)}")
        if each.config_operation == DELETE and each.name == ROOT:
            raise InvalidRequest(f"{ROOT} is the topmost logger; it always has a level")
        changes[each.name] = each.value if each.config_operation == SET else None
    return changes
