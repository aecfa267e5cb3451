"""The admin API's server: from bytes to a `Call`, from a handler's result or exception to a JSON response.

Everything that concerns all routes is here: limits, request ids, authentication, authorization, the audit log. A
handler sees none of it; few, such as streams, use aiohttp themselves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, get_origin

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from raftlog.admin import audit
from raftlog.admin.auth import UNKNOWN_RULES, Authenticator, authorize, by_script, check_browser
from raftlog.admin.caller import Caller
from raftlog.admin.connections import Connections
from raftlog.admin.console_files import answer_with_file
from raftlog.admin.errors import UNAUTHENTICATED, ApiError, Error, no_room_for_bodies, of_kafka
from raftlog.admin.json_text import read_json
from raftlog.admin.kafka_client import Asker, AskerFor, BrokerUnreachable
from raftlog.admin.limits import Limits
from raftlog.admin.listener import ADMIN_DOOR, AdminUnavailable, limited, listen
from raftlog.admin.loop_lag import LoopLag
from raftlog.admin.openapi import INFO, Document
from raftlog.admin.resources import ROUTES
from raftlog.admin.route import Call, Denied, NoQuery, Route
from raftlog.admin.streams import Streams
from raftlog.admin.tokens import parse_tokens
from raftlog.admin.view import Accept, NodeView
from raftlog.base.errors import KafkaError
from raftlog.base.principals import NoPrincipal
from raftlog.security.acls import ANONYMOUS, CLUSTER_NAME, Demanded

SHUTDOWN_S: Final = 1.0
PATIENCE_S: Final = 3.0
"""A query is retried for so long while a leader, a coordinator or a broker is unavailable."""
RETRY_S: Final = 0.1
REQUEST_ID: Final = "X-Request-Id"
GOOD_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
INT32: Final = 2**31
PROBES: Final = frozenset({"/v1/live", "/v1/ready"})
"""Orchestrators request these. Their connections are not closed to make room for others."""
CLIENT_LEFT: Final = 499
"""The status of a response to a client that has left, as in nginx; it is only counted."""
ID: Final = web.RequestKey("id", str)

aiohttp_log = logging.getLogger("raftlog.admin.aiohttp")
"""The log lines of aiohttp itself."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether a log line of aiohttp is about an error of this node.

    Bytes that are not HTTP are the client's error: TLS, Kafka's protocol, or a body that is not encoded as declared.
    """
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
        return True
    reason = error.message if isinstance(error, HttpProcessingError) else " ".join(str(error).split())
    limited.info("admin_request_unreadable", reason=reason.partition("\n")[0][:200])
    return False


aiohttp_log.addFilter(_is_ours)


class AdminServer:
    """The server of one node. `address` is the host and port at which it listens, once it is started."""

    door: ClassVar = ADMIN_DOOR
    info: ClassVar[Mapping[str, str]] = INFO
    """The title and the description of its document."""
    body_types: ClassVar[frozenset[str]] = frozenset({"application/json"})

    def __init__(
        self, node: NodeView, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node = node
        self._limits = limits or Limits()
        self._lag = node.lag = node.lag or LoopLag()
        self._streams = node.streams = Streams(self._limits.streams, "streams of events")
        node.record_streams = Streams(self._limits.streams, "streams of records")
        node.record_scans = Streams(self._limits.scans, "searches and downloads")
        self._asker = Asker(node.config, node.image, node.introduce, node.tls_options)
        self._listener = self.door.address(node.config)
        self._auth = Authenticator(node, None, clock, listener=self._listener)
        self._clock = clock
        self._document = Document(self.routes(), self.info)
        self._runner: web.AppRunner | None = None
        self._connections: Connections | None = None
        self._listening: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.address = ("", 0)

    async def start(self, listening: asyncio.Server | None = None) -> None:
        """Listen, or serve what listens already and calls `accept`. Raises AdminUnavailable, TokensUnusable."""
        config = self._node.config
        if config.admin_tokens_file:
            try:
                text = await asyncio.to_thread(Path(config.admin_tokens_file).read_text, "utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise AdminUnavailable(f"raftlog.admin.tokens.file: {error}") from error
            tokens = parse_tokens(text, name=config.admin_tokens_file)
            self._auth = Authenticator(self._node, tokens, self._clock, listener=self._listener)
        app = web.Application(client_max_size=self._limits.body_bytes, middlewares=[self._around])
        for route in self.routes():
            app.router.add_route(route.method, route.pattern, self._adapter(route))
        app.router.add_get("/openapi.json", self._openapi)
        self._add_files(app)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        try:
            self._listening = await self._listen(self._runner, listening)
        except AdminUnavailable:
            await self._runner.cleanup()
            raise
        self.address = self._listening.sockets[0].getsockname()[:2]
        self._start_watching()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    def routes(self) -> tuple[Route, ...]:
        """Return the table of routes; the first that fits a path is taken."""
        return ROUTES

    def _add_files(self, app: web.Application) -> None:
        """Add what is no row of the table: the console."""
        app.router.add_get("/console/{name}", self._console_file)

    def _start_watching(self) -> None:
        """Measure the loop, and follow the metadata for streams of events."""
        self._lag.start()
        self._node.subscribe(self._streams.on_metadata)

    async def stop(self) -> None:
        self._streams.close()
        self._asker.close()
        self._lag.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._listening is not None:
            self._listening.close()
        if self._node.tls is not None:
            self._node.tls.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _sweep(self) -> None:
        assert self._connections is not None
        while True:
            await asyncio.sleep(self._limits.sweep_s)
            self._connections.sweep()
            if self._node.tls is not None:
                await self._node.tls.reload_if_changed(self._node.offload)
            limited.flush()
            audit.limited.flush()

    async def _listen(self, runner: web.AppRunner, listening: asyncio.Server | None) -> asyncio.Server:
        assert isinstance(runner.server, web.Server)
        assert self._listener is not None, "a node without a listener starts no server"
        self._connections = Connections(runner.server, self._limits, logger=aiohttp_log)
        if listening is not None:
            return listening
        accept = await self._secure(self._connections.accept)
        return await listen(accept, self._listener, setting=self.door.setting)

    def accept(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection."""
        assert self._connections is not None, "the server is started"
        return self._connections.accept()

    async def _secure(self, accept: Accept) -> Accept:
        """Return a protocol factory that begins with TLS if it is configured. Raises AdminUnavailable."""
        if self._node.tls is None:
            assert self._node.config.admin_tls is None, (
                "the config asks for TLS, and the node has no context for it"
            )
            return accept
        try:
            await self._node.tls.open(self._node.offload)
        except ValueError as error:
            raise AdminUnavailable(str(error)) from error
        return self._node.tls.accepting(accept)

    # --- around every request

    @web.middleware
    async def _around(
        self, request: web.Request, handler: Callable[..., Awaitable[Any]]
    ) -> web.StreamResponse:
        """Set the headers of every response, such as its request id, and turn every failure into a JSON body."""
        given = request.headers.get(REQUEST_ID, "")
        request_id = given if GOOD_REQUEST_ID.match(given) else secrets.token_hex(8)
        request[ID] = request_id
        assert self._connections is not None
        self._connections.begin(request.protocol, is_probe=request.path in PROBES)
        try:
            answer: web.StreamResponse = await self._answered(request, handler)
        finally:
            self._connections.end(request.protocol)
        self._node.answers[answer.status] += 1
        if not answer.prepared and request.writer.output_size:
            request.protocol.force_close()  # half a response is sent: only its missing end can show that it failed
        elif not answer.prepared:
            answer.headers[REQUEST_ID] = request_id
            answer.headers["X-Content-Type-Options"] = "nosniff"
            answer.headers.setdefault("Cache-Control", "no-store")
            if answer.status == web.HTTPUnauthorized.status_code and by_script(request.headers):
                answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    async def _answered(
        self, request: web.Request, handler: Callable[..., Awaitable[Any]]
    ) -> web.StreamResponse:
        try:
            answer: web.StreamResponse = await handler(request)
            return answer
        except ApiError as error:
            return _failure(error.status, error.body, error.headers)
        except KafkaError as error:
            failure = of_kafka(error)
            return _failure(failure.status, failure.body)
        except BrokerUnreachable as error:
            return _failure(503, Error(503, str(error)))
        except web.HTTPException as error:
            kept = {name: error.headers[name] for name in ("Allow", "Location") if name in error.headers}
            return _failure(error.status, Error(error.status, self._message_of(error, request)), kept)
        except web.RequestPayloadError as error:
            return _failure(400, Error(400, f"the body is broken: {error}"))
        except Exception as error:
            if _has_left(request, error):
                limited.info(
                    "admin_client_disconnected",
                    method=request.method,
                    path=request.path,
                    request_id=request[ID],
                )
                return _failure(CLIENT_LEFT, Error(CLIENT_LEFT, "the client left"))
            limited.exception(
                "admin_request_failed",
                what=type(error).__name__,
                method=request.method,
                path=request.path,
                request_id=request[ID],
            )
            return _failure(500, Error(500, f"internal error; see the node's log for {request[ID]}"))

    def _adapter(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def adapt(request: web.Request) -> web.StreamResponse:
            caller = await self._caller(route, request)
            changes = route.method != "GET"
            call = None
            outcome = "failed"
            try:
                check_browser(request.method, request.headers, open_to_all=self._auth.open_to_all)
                call = self._call(route, request, authorize(caller, route.needs))
                self._demand(route, call)
                call.query = _query(route, request, most=self._limits.parameters)
                call.body = None if route.body is None or route.streams else await self._body(route, call)
                answer = await (route.handler(call) if changes else _with_retries(route, call))
                outcome = call.outcome
            except Denied as error:
                changes = False  # no change was made, and the denial has a line of its own
                raise self._denied(route, request, caller, error) from None
            except (ApiError, KafkaError, BrokerUnreachable) as error:
                outcome = str(error)
                raise
            except OSError as error:
                outcome = "the client left" if _has_left(request, error) else outcome
                raise
            finally:
                if changes:
                    audit.write(route, request, caller, request_id=request[ID], outcome=outcome, call=call)
            return _success(route, answer)

        return adapt

    async def _caller(self, route: Route, request: web.Request) -> Caller | None:
        """Return the caller. Raise ApiError 429 for an address with too many wrong tokens or passwords."""
        if route.needs == "anyone":
            return None
        address = (request.remote or "").partition("%")[0]
        return await self._auth.caller(request.headers, address, self._certificate_principal(request))

    def _certificate_principal(self, request: web.Request) -> str:
        """Return the principal of the client's certificate. Raise ApiError 401 for a certificate without a
        principal.
        """
        session = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        if session is None or self._node.tls is None:
            return ANONYMOUS
        try:
            return self._node.tls.principal_of(session)
        except NoPrincipal as error:
            self._auth.failed("certificate", "no_principal", request.remote or "")
            raise ApiError(401, f"your certificate: {error}", code=UNAUTHENTICATED) from None

    def _demand(self, route: Route, call: Call) -> None:
        """Raise Denied unless the caller has the rights of the route, and ApiError 503 while they are unknown."""
        if call.caller.principal and route.needs != "anyone" and not self._auth.knows_rules():
            raise ApiError(503, UNKNOWN_RULES)
        if not isinstance(route.rights, Demanded):
            return
        for right in route.rights.rights:
            name = call.path[right.field] if right.field else CLUSTER_NAME
            call.demand(right.operation, right.resource_type, name)

    def _denied(self, route: Route, request: web.Request, caller: Caller | None, error: Denied) -> ApiError:
        """Count a denial, write it to the audit log, and return the error for the caller."""
        assert caller is not None, "authorization is requested"
        self._node.denials[route.name] += 1
        audit.denied(route, request, caller, request_id=request[ID], outcome=str(error))
        if caller.principal != ANONYMOUS:
            return error
        return ApiError(401, f"{error}: log in", code=UNAUTHENTICATED)

    def _call(self, route: Route, request: web.Request, caller: Caller) -> Call:
        return Call(
            node=self._node,
            asker=AskerFor(self._asker, caller.asked_by),
            base_url=f"{request.scheme}://{request.host}",
            path=_path(route, request),
            query=None,
            body=None,
            raw=request,
            request_id=request[ID],
            limits=self._limits,
            caller=caller,
        )

    async def _body(self, route: Route, call: Call) -> Any:
        request = call.raw
        if request.content_type not in self.body_types:
            raise ApiError(415, f"the body must be application/json, but is {request.content_type}")
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise ApiError(415, "the body must not be compressed: send it without Content-Encoding")
        try:
            async with asyncio.timeout(self._limits.body_s):
                text = await self._read(request.content)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {self._limits.body_s:g} s") from None
        return await read_json(text, route.body, what="body", of=call)

    async def _read(self, stream: StreamReader) -> bytes:
        """Return a body. Until it is complete, its bytes count in the account of all bodies."""
        limits, bodies, text = self._limits, self._node.bodies, bytearray()
        try:
            async for piece in stream.iter_any():
                text += piece
                bodies.acquire(len(piece))
                if len(text) > limits.body_bytes:
                    raise web.HTTPRequestEntityTooLarge(max_size=limits.body_bytes, actual_size=len(text))
                if bodies.is_full:
                    raise no_room_for_bodies(bodies.limit)
            content = bytes(text)
        except RuntimeError as error:  # aiohttp raises it when the connection was closed meanwhile
            raise ConnectionResetError(str(error)) from error
        finally:
            bodies.release(len(text))
            text.clear()  # the traceback of an error keeps it alive until the next garbage collection
        return content

    def _message_of(self, error: web.HTTPException, request: web.Request) -> str:
        if error.status == web.HTTPNotFound.status_code:
            return f"there is nothing at {request.path[:200]}"
        if error.status == web.HTTPMethodNotAllowed.status_code:
            return f"{request.method} is not possible here"
        if error.status == web.HTTPRequestEntityTooLarge.status_code:
            return f"the body may have {self._limits.body_bytes} bytes at most"
        return error.reason

    async def _console_file(self, request: web.Request) -> web.Response:
        check_browser(request.method, request.headers, open_to_all=self._auth.open_to_all)
        return await answer_with_file(request, request.match_info["name"])

    async def _openapi(self, request: web.Request) -> web.Response:
        check_browser(request.method, request.headers, open_to_all=self._auth.open_to_all)
        return web.Response(body=await self._document.text(), content_type="application/json")


def make_api(node: NodeView, limits: Limits) -> AdminServer:
    """Return the admin API of a node."""
    return AdminServer(node, limits)


async def _with_retries(route: Route, call: Call) -> Any:
    """Answer a query, with retries while a leader or coordinator moves, which takes only moments."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE_S
    while True:
        try:
            return await route.handler(call)
        except (ApiError, BrokerUnreachable, KafkaError) as error:
            if not _is_temporary(error) or clock() > deadline:
                raise
        await asyncio.sleep(RETRY_S)


def _is_temporary(error: Exception) -> bool:
    if isinstance(error, ApiError):
        return error.status == web.HTTPServiceUnavailable.status_code
    return isinstance(error, BrokerUnreachable) or (isinstance(error, KafkaError) and error.retriable)


def _path(route: Route, request: web.Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in route.parameters.items():
        text = request.match_info[name]
        if kind is str:
            found[name] = text
            continue
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not -INT32 <= int(text) < INT32:
            raise ApiError(404, f"{name} must be an integer of 32 bits, but is {text[:40]!r}")
        found[name] = int(text)
    return found


@cache
def _list_names(kind: Any) -> frozenset[str]:
    """Return the parameters that may be given several times."""
    return frozenset(each.name for each in msgspec.structs.fields(kind) if get_origin(each.type) is list)


def _query(route: Route, request: web.Request, *, most: int) -> Any:
    given = request.query
    if len(given) > most:
        raise ApiError(400, f"a query has at most {most} parameters")
    kind = route.query or NoQuery
    lists = _list_names(kind)
    found = {name: given.getall(name) if name in lists else given[name] for name in given}
    times = Counter(name for name, _ in given.items() if name not in lists)
    if repeated := [name for name in times if times[name] > 1]:
        raise ApiError(400, f"{min(repeated)} is given more than once")
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"query: {error}") from None


def _success(route: Route, answer: Any) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    status = route.status
    if isinstance(answer, tuple):
        status, answer = answer
    if answer is None:
        return web.Response(status=status)
    return web.Response(status=status, body=msgspec.json.encode(answer), content_type=route.media_type)


def _failure(status: int, body: Error, headers: Mapping[str, str] | None = None) -> web.Response:
    more = dict(headers or {})
    if status == web.HTTPUnauthorized.status_code:
        more["WWW-Authenticate"] = 'Bearer, Basic realm="raftlog", charset="UTF-8"'
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json", headers=more
    )


def _has_left(request: web.Request, error: Exception) -> bool:
    """Return whether a request failed because its client has left."""
    return isinstance(error, OSError) and (request.transport is None or request.transport.is_closing())
