"""From a frame to the handler of its API, and from what that returns or raises to a response.

The one place where a request as a whole may fail: an error that its API can express is a response; malformed bytes, an
unknown API and anything unforeseen end the connection, with one line in the log.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError, UnsupportedVersion
from raftlog.broker import peer_auth
from raftlog.broker.context import RequestContext
from raftlog.broker.handlers import api_versions, fetch, find_handler, produce
from raftlog.broker.slots import Slot
from raftlog.broker.turns import encoded
from raftlog.protocol.apis import APIS, PRODUCE_ADVERTISED_FROM, ApiKey
from raftlog.protocol.codec import (
    RequestHeader,
    decode_header,
    decode_request,
    encode_response,
    error_response,
)

if TYPE_CHECKING:
    from raftlog.broker.connection import Connection

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
_NEWEST_PRODUCE: Final = APIS[PRODUCE].max_version
_OLDEST_FETCH: Final = APIS[FETCH].min_version
_NEWEST_FETCH: Final = APIS[FETCH].max_version


def dispatch(connection: Connection, frame: memoryview) -> None:
    """Handle one request. `frame` is without its length and only valid during this call. Never raises."""
    try:
        header, position = decode_header(frame)
        api_key, version, _, _ = header
        connection.api_key = api_key
        connection.server.counters.requests[api_key] += 1
        if connection.to_controller:
            _dispatch_rare(connection, header, frame, position)
        elif api_key == PRODUCE and PRODUCE_ADVERTISED_FROM <= version <= _NEWEST_PRODUCE:
            produce.handle(connection, header, frame, position)
        elif api_key == FETCH and _OLDEST_FETCH <= version <= _NEWEST_FETCH:
            fetch.handle(connection, header, frame, position)
        elif api_key == peer_auth.API_KEY:
            peer_auth.answer(connection, header, frame, position)
        else:
            _dispatch_rare(connection, header, frame, position)
    except InvalidRequest as error:
        connection.close("request_malformed", reason=error.message)
    except Exception:
        connection.crash("request")


def dispatch_in_hall(connection: Connection, frame: memoryview) -> None:
    """Handle a step of the brokers' handshake; anything else is refused. `frame` as above. Never raises."""
    try:
        header, position = decode_header(frame)
        if header.api_key == peer_auth.API_KEY and not connection.to_controller:
            connection.api_key = header.api_key
            peer_auth.answer(connection, header, frame, position)
        else:
            connection.server.admission.refuse(connection)
    except InvalidRequest as error:
        connection.close("request_malformed", reason=error.message)
    except Exception:
        connection.crash("handshake")


def _dispatch_rare(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    api_key, version, _, client_id = header
    api = APIS.get(api_key)
    if api is None:
        del connection.server.counters.requests[api_key]  # a client can make up 65,000 of them
        connection.close("unknown_api_requested", api_key=api_key, api_version=version, client_id=client_id)
        return
    handler = find_handler(api_key, of_controllers=connection.to_controller)
    if handler is None or not api.handles(version):
        _refuse_version(connection, header)
        return
    message = decode_request(api_key, version, connection.lasting(frame), position)
    request = RequestContext(
        *header,
        connection.listener,
        connection.peer_host,
        connection.broker_id,
        connection,
        connection.to_controller,
    )
    _respond(connection, handler, request, message, size=len(frame))


def _refuse_version(connection: Connection, header: RequestHeader) -> None:
    api_key, version, correlation_id, client_id = header
    if api_key == ApiKey.API_VERSIONS:
        refusal = api_versions.refuse_version(correlation_id, of_controllers=connection.to_controller)
        connection.respond((refusal,))
        return
    api = APIS[api_key]
    response = error_response(api_key, version, UnsupportedVersion.code)
    if response is None:
        connection.close(
            "unsupported_version_requested", api=api.name, api_version=version, client_id=client_id
        )
    else:
        version = min(max(version, api.min_version), api.max_version)
        connection.respond((encode_response(api_key, version, correlation_id, response),))


def _respond(
    connection: Connection, handler: ModuleType, request: RequestContext, message: Any, *, size: int
) -> None:
    """Answer now or later; `size` is that of the request's frame, whose bytes `message` may refer to."""
    try:
        result = handler.handle(connection.server.broker, request, message)
    except KafkaError as error:
        result = _failure(handler, request, message, error)
    if inspect.isawaitable(result):
        slot = Slot(connection)
        connection.hold(slot)
        connection.spawn(_answer_later(slot, handler, request, (message, size), result))
    elif result is not None:
        connection.respond((_encode(request, result),))


async def _answer_later(
    slot: Slot, handler: ModuleType, request: RequestContext, asked: tuple[Any, int], result: Awaitable[Any]
) -> None:
    connection, (message, size) = slot.connection, asked
    requests = connection.server.requests
    requests.take(size)
    try:
        try:
            response = await result
        except KafkaError as error:
            response = _failure(handler, request, message, error)
        if connection.is_open:
            await _answer(slot, request, response)
    except InvalidRequest as error:
        connection.close("request_failed", api_key=request.api_key, reason=error.message)
    finally:
        requests.give(size)


async def _answer(slot: Slot, request: RequestContext, response: Any) -> None:
    if response is None:
        slot.answer(())
        return
    frame = await encoded(
        request.api_key,
        request.api_version,
        request.correlation_id,
        response,
        account=slot.connection.server.memory.answers,
    )
    if slot.connection.is_open:  # encoding may have taken several turns
        slot.answer((frame,))


def _encode(request: RequestContext, response: Any) -> bytes:
    return encode_response(request.api_key, request.api_version, request.correlation_id, response)


def _failure(handler: ModuleType, request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the response that says what went wrong. Raises InvalidRequest if the API cannot express it."""
    express = getattr(handler, "error_response", None)
    if express is not None:
        return express(request, message, error)
    response = error_response(request.api_key, request.api_version, error.code, error.message)
    if response is None:
        raise InvalidRequest(f"{APIS[request.api_key].name} cannot express: {error}")
    return response
