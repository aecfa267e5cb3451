"""The audit log of Kafka's protocol: who did what, from where, and with which outcome, a line each; and its counts.

It tells logins that succeed or fail, what rules deny, and changes of topics, configs, rules, users and the like.
Records and reads are told of only when they are denied. Who causes many lines gets a few, and a count of the others.
What the HTTP API asks on behalf of its callers is in its own lines (`raftlog.admin.audit`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.log import AUDIT, LimitedLog, get_logger
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.security.acls import ADMIN_API, Acl, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from raftlog.broker.context import RequestContext

MOST_NAMED: Final = 20
"""Resources in a line; of more only the number is told."""

Outcome = tuple[str, int]
"""(resource, error code)."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class Audit:
    """The audit log of one broker. Counts only grow."""

    def __init__(self, clock: Callable[[], float] = _loop_time) -> None:
        self._log = LimitedLog(get_logger(AUDIT), clock)
        self.denials: defaultdict[int, int] = defaultdict(int)
        """By API key."""
        self.failed_logins: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By mechanism and reason."""

    def denied(
        self,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        names: Iterable[str],
        **who: object,
    ) -> None:
        """Tell that a right is missing; `who`: principal, address, client id."""
        self.denials[api_key] += 1
        self._log.warning(
            "authorization_denied",
            per=who.get("principal"),
            api=APIS[api_key].name if api_key in APIS else str(api_key),
            operation=operation.name,
            resource_type=resource_type.name,
            resources=_shortened(sorted(names)),
            outcome="denied",
            **who,
        )

    def login_failed(self, mechanism: str, reason: str, **who: object) -> None:
        """Tell that a client did not prove who it is; `reason` is one of a few words."""
        self.failed_logins[mechanism, reason] += 1
        self._log.warning(
            "authentication_failed",
            per=mechanism,
            mechanism=mechanism,
            reason=reason,
            outcome="failed",
            **who,
        )

    def login_succeeded(self, mechanism: str, **who: object) -> None:
        """Tell that a client proved who it is."""
        self._log.info(
            "authentication_succeeded",
            per=who.get("principal"),
            mechanism=mechanism,
            outcome="done",
            **who,
        )

    def changed(self, request: RequestContext, outcomes: Sequence[Outcome], *, validate_only: bool) -> None:
        """Tell what became of each part of a change."""
        done = [name for name, code in outcomes if not code]
        failed = [name for name, code in outcomes if code]
        self._log.info(
            "metadata_change",
            per=f"{request.principal} {request.api_key}",
            api=APIS[request.api_key].name,
            outcome="done" if not failed else "partly" if done else "failed",
            done=_shortened(done),
            **({"failed": _shortened(failed)} if failed else {}),
            **({"validate_only": True} if validate_only else {}),
            **who_sent(request),
        )

    def flush(self) -> None:
        """Tell what was left out of lines that nothing more is heard of."""
        self._log.flush()


def who_sent(request: RequestContext) -> dict[str, object]:
    """Return who sent a request, for a line."""
    return {
        "principal": request.principal,
        "client_id": (request.client_id or "")[:100],
        "address": request.peer_host,
        "listener": request.listener,
    }


def _shortened(names: Sequence[str]) -> list[str]:
    more = len(names) - MOST_NAMED
    return [each[:249] for each in names[:MOST_NAMED]] + ([f"and {more} more"] if more > 0 else [])


# --- what a change was about, by its request and its response


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


def audited(audit: Audit, request: RequestContext, message: Any, result: Any) -> Any:
    """Return a request's result, or an awaitable of it, of which the audit log is told if it is a client's change."""
    if request.api_key not in CHANGES or request.has_all_rights or request.principal == ADMIN_API:
        return result
    if inspect.isawaitable(result):
        return _told_later(audit, request, message, result)
    _tell(audit, request, message, result)
    return result


async def _told_later(audit: Audit, request: RequestContext, message: Any, result: Awaitable[Any]) -> Any:
    response = await result
    _tell(audit, request, message, response)
    return response


def _tell(audit: Audit, request: RequestContext, message: Any, response: Any) -> None:
    if response is not None:
        outcomes = list(CHANGES[request.api_key](message, response))
        audit.changed(request, outcomes, validate_only=getattr(message, "validate_only", False))
