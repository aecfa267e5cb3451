"""The requests that change what others rely on, as the audit log tells them: what each was about, and the outcome."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from raftlog.broker.audit import Outcome, Outcomes
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.protocol.apis import ApiKey
from raftlog.security.acls import ADMIN_API, Acl, Operation, PatternType, Permission, ResourceType


def _named(rows: Iterable[Any], attribute: str) -> Iterator[Outcome]:
    for each in rows:
        name = getattr(each, attribute)
        yield str(getattr(each, "topic_id", "?")) if name is None else str(name), each.error_code


def _partitions(topics: Iterable[Any], name: str, partitions: str, number: str) -> Iterator[Outcome]:
    for topic in topics:
        for each in getattr(topic, partitions):
            yield f"{getattr(topic, name)}-{getattr(each, number)}", each.error_code


def _created_acls(message: Any, response: Any) -> Iterator[Outcome]:
    for asked, result in zip(message.creations, response.results, strict=True):
        yield _acl(asked, asked.resource_pattern_type), result.error_code


def _deleted_acls(_message: Any, response: Any) -> Iterator[Outcome]:
    for number, result in enumerate(response.filter_results):
        if result.error_code:
            yield f"filter {number}", result.error_code
        for each in result.matching_acls:
            yield _acl(each, each.pattern_type), each.error_code


def _acl(told: Any, pattern_type: int) -> str:
    """Return a rule as the log writes it, of numbers that may mean nothing."""
    try:
        return str(
            Acl(
                ResourceType(told.resource_type),
                told.resource_name,
                PatternType(pattern_type),
                told.principal,
                told.host,
                Operation(told.operation),
                Permission(told.permission_type),
            )
        )
    except ValueError:
        return f"a rule about {told.resource_name}"


def _configs(_message: Any, response: Any) -> Iterator[Outcome]:
    for each in response.responses:
        yield (
            f"{_CONFIG_TYPES.get(each.resource_type, each.resource_type)} {each.resource_name}",
            each.error_code,
        )


_CONFIG_TYPES: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}


def _features(message: Any, response: Any) -> Iterator[Outcome]:
    for each in message.feature_updates:
        yield each.feature, response.error_code


def _quotas(_message: Any, response: Any) -> Iterator[Outcome]:
    for entry in response.entries:
        parts = (f"{each.entity_type}={each.entity_name or '<default>'}" for each in entry.entity)
        yield ",".join(parts), entry.error_code


def _token(_message: Any, response: Any) -> Iterator[Outcome]:
    """Tell the id of a new token. Requests to renew or end one name it by its secret, which is not told."""
    yield getattr(response, "token_id", "") or "delegation token", response.error_code


CHANGES: Final[dict[int, Callable[[Any, Any], Iterable[Outcome]]]] = {
    ApiKey.CREATE_TOPICS: lambda _, response: _named(response.topics, "name"),
    ApiKey.DELETE_TOPICS: lambda _, response: _named(response.responses, "name"),
    ApiKey.CREATE_PARTITIONS: lambda _, response: _named(response.results, "name"),
    ApiKey.DELETE_RECORDS: lambda _, response: _partitions(
        response.topics, "name", "partitions", "partition_index"
    ),
    ApiKey.DELETE_GROUPS: lambda _, response: _named(response.results, "group_id"),
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda _, response: _named(response.results, "user"),
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.CREATE_DELEGATION_TOKEN: _token,
    ApiKey.RENEW_DELEGATION_TOKEN: _token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _token,
    ApiKey.ELECT_LEADERS: lambda _, response: _partitions(
        response.replica_election_results, "topic", "partition_result", "partition_id"
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda _, response: _partitions(
        response.responses, "name", "partitions", "partition_index"
    ),
    ApiKey.UPDATE_FEATURES: _features,
    ApiKey.UNREGISTER_BROKER: lambda message, response: (
        (f"broker {message.broker_id}", response.error_code),
    ),
}
"""The APIs that change what others rely on, with what their requests and responses tell of each part."""


_TOLD_BY_REQUEST: Final = frozenset({ApiKey.CREATE_ACLS, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER})
"""Responses to these do not say what they were about, so the request is kept for as long; others are let go."""


def audited(broker: BrokerContext, request: RequestContext, message: Any, result: Any) -> Any:
    """Return the result of a client's request, or an awaitable of it. The audit log is told of it if it is a change."""
    if request.api_key not in CHANGES or request.principal == ADMIN_API:
        return result
    validate_only = bool(getattr(message, "validate_only", False))
    kept = message if request.api_key in _TOLD_BY_REQUEST else None

    def outcomes_of(response: Any) -> Iterable[Outcome]:
        return () if response is None else CHANGES[request.api_key](kept, response)

    def tell(outcomes: Outcomes) -> None:
        broker.audit.changed(request.api_key, outcomes, validate_only=validate_only, **request.sender)

    async def told_later() -> Any:
        response = await result
        if response is not None:
            outcomes = Outcomes()
            async for name, code in in_turns(broker.env, outcomes_of(response)):
                outcomes.note(name, code)
            tell(outcomes)
        return response

    if inspect.isawaitable(result):
        return told_later()
    if result is not None:
        tell(Outcomes(outcomes_of(result)))
    return result
