"""Takes a frame to the handler of its API, and the handler's result or error to a response.

Each request takes the same steps, as the row of its API (`broker.api`) describes them:

header → row → memory for its objects → decoding → rights → handler → parts → audit log → throttle time → encoding

Produce and Fetch leave after the header, and have steps of their own. No request holds the event loop for long: it has
at most `max_parts` parts (elements of all its arrays). A large one waits for memory (`object_memory`) and is decoded
in turns. Parts of a response that a handler does not return at once are drawn (iterated over by `turns.completed`) and
encoded in turns.

This is the only place where a request as a whole may fail: an error that its API can express is a response. Malformed
bytes, an unknown API and unexpected errors end the connection, with one line in the log.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import (
    BrokerNotAvailable,
    InvalidRequest,
    KafkaError,
    UnknownServerError,
    UnsupportedVersion,
)
from raftlog.base.log import get_logger
from raftlog.broker.api import Api, error_code_response
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ASKED_BY
from raftlog.broker.handlers import api_versions, fetch, find_api, produce
from raftlog.broker.links import peer_auth
from raftlog.broker.links.broker_links import CLIENT_ID
from raftlog.broker.long_work.long_turns import LONG_TURN_S
from raftlog.broker.long_work.object_memory import expected_bytes
from raftlog.broker.long_work.turns import completed, decoded, encoded, is_incomplete
from raftlog.broker.network import peer_handshake
from raftlog.broker.network.responses import Slot
from raftlog.broker.rights import demand_needed
from raftlog.protocol.apis import APIS, PRODUCE_ADVERTISED_FROM, ApiKey
from raftlog.protocol.codec import (
    RequestHeader,
    decode_header,
    decode_request,
    decode_request_incrementally,
    encode_response,
    error_response,
)
from raftlog.protocol.reader import NO_LIMIT, TooManyElements

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
_NO_ROOM_NEEDED: Final = nullcontext()
_NEWEST_PRODUCE: Final = APIS[PRODUCE].max_version
_OLDEST_FETCH: Final = APIS[FETCH].min_version
_NEWEST_FETCH: Final = APIS[FETCH].max_version

DECODED_AT_ONCE_BYTES: Final = 4 * 1024
"""A request of at most this size is decoded in the turn in which it arrives: its parts are four thousand at most."""

REQUEST_MAX_BYTES: Final = 16 << 20
"""The maximum size of a request of any API but Produce and Fetch. Even a request with the most parts that any API
allows is smaller."""

log = get_logger(__name__)


class _Held:
    """The bytes of a request's frame, counted while something may refer to them."""

    __slots__ = ("_requests", "_size")

    def __init__(self, connection: Connection, size: int) -> None:
        self._requests = connection.server.requests
        self._size = size

    def count(self) -> None:
        """Start to count them."""
        self._requests.acquire(self._size)

    def stop_counting(self) -> None:
        """Stop counting them; a second call has no effect."""
        size, self._size = self._size, 0
        self._requests.release(size)


def dispatch(connection: Connection, frame: memoryview) -> None:
    """Handle one request. `frame` is without its length and only valid during this call. Never raises."""
    server = connection.server
    began_at = server.stopwatch()
    try:
        header, position = decode_header(frame)
        api_key, version, _, client_id = header
        connection.api_key = api_key
        server.counters.requests[api_key] += 1
        quotas = server.quotas
        connection.limits = quotas.limits_of(connection, client_id) if quotas.limit_clients else None
        if connection.to_controller:
            _dispatch_rare(connection, header, frame, position)
        elif api_key == PRODUCE and PRODUCE_ADVERTISED_FROM <= version <= _NEWEST_PRODUCE:
            produce.handle(connection, header, frame, position)
        elif api_key == FETCH and _OLDEST_FETCH <= version <= _NEWEST_FETCH:
            fetch.handle(connection, header, frame, position)
        elif api_key == peer_auth.API_KEY:
            peer_handshake.answer(connection, header, frame, position)
        else:
            _dispatch_rare(connection, header, frame, position)
    except InvalidRequest as error:
        connection.close("request_malformed", reason=error.message)
    except Exception:
        connection.crash("request")
    took_s = server.stopwatch() - began_at
    if took_s > LONG_TURN_S:
        server.long_turns.note(connection.api_key, took_s)
    if connection.limits is not None:
        connection.limits.record_turn(took_s)


def _dispatch_rare(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    api_key, version, correlation_id, client_id = header
    known = APIS.get(api_key)
    if known is None:
        del connection.server.counters.requests[api_key]  # clients can make up 65,000 of them
        connection.close("unknown_api_requested", api_key=api_key, api_version=version, client_id=client_id)
        return
    api = find_api(api_key, of_controllers=connection.to_controller)
    if api_key == ApiKey.API_VERSIONS and not known.handles(version):
        refusal = api_versions.refuse_version(correlation_id)
        connection.responses.add((refusal,))
        return
    request = RequestContext(
        api_key,
        min(max(version, known.min_version), known.max_version),
        correlation_id,
        client_id,
        connection.listener,
        connection.peer_host,
        connection.broker_id,
        connection,
        connection.to_controller,
        connection.principal,
    )
    if api is None or not known.handles(version):
        held = _Held(connection, len(frame))
        _answer_later(Slot(connection), request, _refuse_version(connection, request, version), held)
        return
    if len(frame) > REQUEST_MAX_BYTES:
        refusal = _refusal(request, f"a request of {api.name} has at most {REQUEST_MAX_BYTES} bytes")
        connection.responses.add((_encode(request, refusal),))
        return
    size, kept = len(frame), connection.keep_bytes(frame)
    if size > DECODED_AT_ONCE_BYTES:
        slot, held = Slot(connection), _Held(connection, size)
        work = _decode_then_handle(slot, api, request, (kept, position), held)
        _answer_later(slot, request, work, held, room=_room_for_objects(connection, api, request, size))
        return
    if (api_key, version) not in connection.server.schemas_loaded and request.peer_broker_id is None:
        slot, held = Slot(connection), _Held(connection, size)
        _answer_later(slot, request, _load_then_handle(slot, api, request, (kept, position), held), held)
        return
    try:
        message = decode_request(api_key, version, kept, position, parts_max=_parts_max(api, request))
    except TooManyElements as error:
        connection.responses.add((_encode(request, _refusal(request, error.message)),))
        return
    _respond(connection, api, request, message, size=size)


async def serve_own(broker: BrokerContext, api_key: int, version: int, message: Any) -> Any:
    """Return the response to a request of this broker to itself.

    Raises BrokerNotAvailable if the API is not served, and the KafkaErrors of its handler.
    """
    api = find_api(api_key)
    if api is None or api.handle is None:
        raise BrokerNotAvailable(f"API {api_key} is not served")
    listener = broker.config.inter_broker_listener_name or ""
    request = RequestContext(api_key, version, 0, CLIENT_ID, listener, "", broker.config.node_id)
    try:
        return await completed(broker.env, api.handle(broker, request, message))
    except KafkaError as error:
        if api.error_response is error_code_response:
            raise
        return await completed(broker.env, api.error_response(request, message, error))
    except Exception as error:
        broker.env.on_bug()
        log.exception("local_request_crashed", api_key=api_key)
        raise UnknownServerError("a request to this broker itself failed") from error


def _parts_max(api: Api, request: RequestContext) -> int:
    """Return the maximum number of parts of a request. Other brokers limit their own requests."""
    return api.max_parts if request.peer_broker_id is None else NO_LIMIT


def _refusal(request: RequestContext, why: str | None) -> Any:
    """Return the response to a request that is too large. Raises InvalidRequest if the API cannot express it."""
    response = error_response(request.api_key, request.api_version, InvalidRequest.code, why)
    if response is None:
        raise InvalidRequest(why)
    return response


async def _load_then_handle(
    slot: Slot, api: Api, request: RequestContext, frame: tuple[memoryview, int], held: _Held
) -> Any:
    """Handle the first requests of a version of an API in turns: loading its decoder takes milliseconds."""
    server = slot.connection.server
    await server.broker.env.turns.next()
    server.schemas_loaded.add((request.api_key, request.api_version))
    work = _decode_then_handle(slot, api, request, frame, held)
    del frame
    return await work


async def _decode_then_handle(
    slot: Slot, api: Api, request: RequestContext, frame: tuple[memoryview, int], held: _Held
) -> Any:
    """Handle a large request in turns; `frame` comes with the position behind its header.

    Later requests on the connection wait until it is decoded, and mostly until it is answered.
    """
    connection = slot.connection
    if not connection.is_open:
        return None
    pieces = decode_request_incrementally(
        request.api_key, request.api_version, *frame, parts_max=_parts_max(api, request)
    )
    try:
        message = await decoded(connection.server.broker.env, pieces)
    except TooManyElements as error:
        return _refusal(request, error.message)
    except InvalidRequest as error:
        connection.close("request_malformed", reason=error.message)
        return None
    if not request.is_awaited:
        return None
    result = _begin(connection.server.broker, api, request, message)
    del message, pieces, frame
    if api.waits_for_members:
        held.stop_counting()
    if not inspect.iscoroutine(result):
        return result
    if _overlaps(api, request):
        connection.responses.overlap(slot)
    return await result


def _room_for_objects(
    connection: Connection, api: Api, request: RequestContext, size: int
) -> AbstractAsyncContextManager[None]:
    """Return a context that waits for and holds memory for the objects of a large request, if it needs any."""
    if request.peer_broker_id is not None or api.waits_for_members:
        return _NO_ROOM_NEEDED
    return connection.server.objects.room(expected_bytes(size, _parts_max(api, request)))


async def _refuse_version(connection: Connection, request: RequestContext, version: int) -> Any:
    """Return the response to an unsupported version, in a turn of its own, as `_load_then_handle`."""
    api = APIS[request.api_key]
    await connection.server.broker.env.turns.next()
    response = error_response(api.key, version, UnsupportedVersion.code)
    if response is None:
        connection.close(
            "unsupported_version_requested", api=api.name, api_version=version, client_id=request.client_id
        )
    return response


def _overlaps(api: Api, request: RequestContext) -> bool:
    """Return whether later requests are handled while this one waits. Responses of clients' requests would pile up."""
    return api.overlaps and request.peer_broker_id is not None


def _respond(connection: Connection, api: Api, request: RequestContext, message: Any, *, size: int) -> None:
    """Respond now or later; `size` is the size of the request's frame. `message` may refer to the frame's bytes."""
    result = _begin(connection.server.broker, api, request, message)
    if inspect.iscoroutine(result):
        held = _Held(connection, 0 if api.waits_for_members else size)
        slot = Slot(connection)
        slot.overlaps = _overlaps(api, request)
        _answer_later(slot, request, result, held)
    elif result is not None:
        connection.responses.add((_throttled(connection, request, _encode(request, result)),))


def _begin(
    broker: BrokerContext, api: Api, request: RequestContext, message: Any
) -> Any | Coroutine[Any, Any, Any]:
    """Return the response, or a coroutine of it, which holds `message` only if `api.keeps_message`."""
    assert api.handle is not None, "Produce and Fetch are handled with their connection"
    ASKED_BY.set(request.asked_by)
    try:
        demand_needed(broker, api.needs, request, message)
        result = api.handle(broker, request, message)
    except KafkaError as error:
        result = _failure(api, request, message, error)
    if is_incomplete(result):
        result = _completed(broker, api, request, message if api.keeps_message else None, result)
    if request.has_all_rights:
        return result
    from raftlog.broker.audited_changes import audited

    return audited(broker, api, request, message, result)


async def _completed(
    broker: BrokerContext, api: Api, request: RequestContext, message: Any, result: Any
) -> Any:
    try:
        return await completed(broker.env, result)
    except KafkaError as error:
        return await completed(broker.env, _failure(api, request, message, error))


def _answer_later(
    slot: Slot,
    request: RequestContext,
    work: Coroutine[Any, Any, Any],
    held: _Held,
    *,
    room: AbstractAsyncContextManager[None] = _NO_ROOM_NEEDED,
) -> None:
    """Keep the request's place, run the work while holding `room`, and respond with its result."""
    slot.connection.responses.hold(slot)
    slot.connection.spawn(_conclude(slot, request, work, held, room))


async def _conclude(
    slot: Slot,
    request: RequestContext,
    work: Coroutine[Any, Any, Any],
    held: _Held,
    room: AbstractAsyncContextManager[None],
) -> None:
    connection = slot.connection
    # The connection counted these bytes until the end of the loop iteration in which they arrived.
    held.count()
    try:
        async with room:
            await connection.server.long_turns.timed(
                request.api_key, _answer(slot, request, work), connection.record_turn
            )
    except InvalidRequest as error:
        connection.close("request_failed", api_key=request.api_key, reason=error.message)
    finally:
        work.close()  # the broker may have stopped before there was room
        held.stop_counting()


async def _answer(slot: Slot, request: RequestContext, work: Coroutine[Any, Any, Any]) -> None:
    response = await work
    if not slot.connection.is_open:
        return
    if response is None:
        slot.answer(())
        return
    server = slot.connection.server
    header = RequestHeader(request.api_key, request.api_version, request.correlation_id, request.client_id)
    frame = await encoded(server.broker.env, header, response, account=server.memory.answers)
    if slot.connection.is_open:  # encoding may have taken several turns
        slot.answer((_throttled(slot.connection, request, frame),))
    login = slot.connection.login
    if login is not None and login.failed:
        slot.connection.finish()  # the handler has reported the reason


def _encode(request: RequestContext, response: Any) -> bytes:
    return encode_response(request.api_key, request.api_version, request.correlation_id, response)


def _throttled(
    connection: Connection, request: RequestContext, frame: bytes | bytearray
) -> bytes | bytearray:
    """Mute a client that has exceeded its quotas, and return the response with the throttle time."""
    limits = connection.limits
    throttle_ms = 0 if limits is None else limits.throttle_other(connection)
    if not throttle_ms:
        return frame
    from raftlog.protocol.throttle_time import with_throttle_time

    return with_throttle_time(frame, request.api_key, request.api_version, throttle_ms)


def _failure(api: Api, request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error response, or an awaitable of it.

    Raises InvalidRequest if the API cannot express it. The error loses its traceback: its frames hold the request, and
    often the error itself. Otherwise a refused megabyte would stay until the next garbage collection.
    """
    error.__traceback__ = None
    return api.error_response(request, message, error)
