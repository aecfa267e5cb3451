"""The audit log's lines for requests that change what others rely on: what each was about, and the outcome."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from raftlog.broker.api import Api, Change
from raftlog.broker.audit import Outcome, Outcomes
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import each_part
from raftlog.security.acls import ADMIN_API


def named(rows: Iterable[Any], attribute: str) -> Iterator[Outcome]:
    """Yield the outcome of each row of a response, by the attribute that names it, or by its topic's id."""
    for each in rows:
        name = getattr(each, attribute)
        yield str(getattr(each, "topic_id", "?")) if name is None else str(name), each.error_code


def named_partitions(topics: Iterable[Any], name: str, partitions: str, number: str) -> Iterator[Outcome]:
    """Yield the outcome of each partition, by the attributes that hold its topic's name and its number."""
    for topic in topics:
        for each in getattr(topic, partitions):
            yield f"{getattr(topic, name)}-{getattr(each, number)}", each.error_code


def named_by_request(kind: str, attribute: str) -> Change:
    """Return the change of one resource, by the attribute of the request that names it."""

    def outcome(message: Any, response: Any) -> Iterator[Outcome]:
        yield f"{kind} {getattr(message, attribute)}", response.error_code

    return Change(outcome, keeps_message=True)


def audited(broker: BrokerContext, api: Api, request: RequestContext, message: Any, result: Any) -> Any:
    """Return the result of a client's request, or an awaitable of it, and log it if it is a change."""
    change = api.audit
    if not isinstance(change, Change) or request.principal == ADMIN_API:
        return result
    validate_only = bool(getattr(message, "validate_only", False))
    kept = message if change.keeps_message else None

    def outcomes_of(response: Any) -> Iterable[Outcome]:
        return () if response is None else change.outcomes(kept, response)

    def log(outcomes: Outcomes) -> None:
        broker.audit.changed(request.api_key, outcomes, validate_only=validate_only, **request.sender)

    async def logged_later() -> Any:
        response = await result
        if response is not None:
            outcomes = Outcomes()
            await each_part(broker.env, outcomes_of(response), lambda each: outcomes.note(*each))
            log(outcomes)
        return response

    if inspect.isawaitable(result):
        return logged_later()
    if result is not None:
        log(Outcomes(outcomes_of(result)))
    return result
