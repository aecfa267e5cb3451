"""One API of Kafka's protocol as this broker serves it: a row, `API`, at the end of the module of its handler.

`dispatch` walks every request through the steps that the row describes. Fields without a default are decisions: a row
must set each of them, or mypy and the import of its module fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.audit import Outcome
from raftlog.broker.context import Handler, RequestContext
from raftlog.broker.controller_requests import truncate_message
from raftlog.protocol.apis import APIS
from raftlog.protocol.codec import error_response
from raftlog.security.acls import Needs

AT_ONCE: Final = 1_000
"""Parts of a request that is handled in one turn of the event loop, some 20 µs each."""

IN_TURNS: Final = 100_000
"""Parts of a request that is handled in turns."""

NAMES: Final = 20_000
"""Groups or transactional ids that one request names, or parts of topics that it creates: the response has several
hundred bytes for each."""

ErrorResponse = Callable[[RequestContext, Any, KafkaError], Any]
"""(request, message, error) → the response to a request that failed as a whole, or an awaitable of it."""


def error_code_response(request: RequestContext, _message: Any, error: KafkaError) -> Any:
    """Return a response with only the error code and, if it has a field for that, the message.

    Raises InvalidRequest if the API has no error code for a whole request.
    """
    message = truncate_message(error.message)
    response = error_response(request.api_key, request.api_version, error.code, message)
    if response is None:
        raise InvalidRequest(f"{APIS[request.api_key].name} does not support this version's fields: {error}")
    return response


@dataclass(frozen=True, slots=True)
class NoChange:
    """Requests of this API change no state that others rely on, so they have no line in the audit log."""


@dataclass(frozen=True, slots=True)
class Change:
    """Requests of this API change what others rely on. The audit log has a line for each."""

    outcomes: Callable[[Any, Any], Iterable[Outcome]]
    """(message, response) → the outcome of each part. `message` is None unless `audits_message`."""
    audits_message: bool = False
    """Whether the request is kept until its response, because the response does not name what was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The row of one API: its handler, rights, limits and audit."""

    key: int
    handle: Handler | None
    """None if `dispatch` passes the connection to `handle` of the module. Only Produce and Fetch are served so."""
    needs: Needs
    max_parts: int
    """The maximum number of elements in all arrays of a request. A request with more is refused before it is decoded
    further.

    The limit does not apply to other brokers, which limit their own requests."""
    audit: NoChange | Change
    controllers: bool
    """Whether controllers serve it to clients too (KIP-919): "controller" is among the listeners of Kafka's schema."""
    error_response: ErrorResponse = error_code_response
    """The error response of this API, where a response has several error codes."""
    strict_quota_from: int | None = None
    """For an API that creates or deletes partitions (KIP-599): the first version with THROTTLING_QUOTA_EXCEEDED.
    Clients of older versions are only throttled."""
    prepared: tuple[int, ...] = ()
    """Versions with messages that are imported before the first request, for clients that produce and consume."""
    waits_for_members: bool = False
    """Whether requests wait for other members of their group. Such a request does not wait for memory, since others
    hold it. While it waits, only what the group counts is kept of it."""
    overlaps: bool = False
    """Whether another broker's requests on a connection are handled before earlier ones are answered. Otherwise one
    broker has one commit under way at a time at another, for all its groups."""

    @property
    def name(self) -> str:
        return APIS[self.key].name

    @property
    def newest(self) -> int:
        """The newest version."""
        return APIS[self.key].max_version

    @property
    def keeps_message(self) -> bool:
        """Return whether a request is kept until its response, for its error response."""
        return self.error_response is not error_code_response and not self.waits_for_members
