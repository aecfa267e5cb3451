"""Claims about what a client can take from a node: connections, time, and answers that break off. Limits are tiny."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from raftlog.admin import server
from raftlog.admin.errors import INVALID
from raftlog.admin.json_stream import rounds
from raftlog.admin.limits import Limits
from raftlog.admin.listener import limited
from raftlog.admin.response_pieces import send
from raftlog.admin.route import NO_RIGHTS, Call, Route
from raftlog.admin.server import AdminServer
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.base.memory import Account
from raftlog.broker.network.tls import ServerTls
from raftlog.broker.network.tls_handshake import HandshakePlaces
from raftlog.metadata.image import EMPTY_IMAGE
from tests.admin.certificate import Certificate, make_certificate, needs_openssl
from tests.kit.waits import PATIENCE_S

MOST = 8
NEVER_S = 3600.0
SOON_S = 0.05
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def served(
    scenario: Callable[[AdminServer], Awaitable[Any]],
    limits: Limits | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    seen: list[NodeView] | None = None,
    bodies: Account | None = None,
) -> Any:
    """Run a scenario against a server without a node, and collect its view in `seen`."""

    async def told() -> Any:
        config = load_config(flags={"raftlog.admin.listener": "127.0.0.1:0", **(settings or {})})
        view = NodeView(config, lambda: EMPTY_IMAGE, list, lambda: 0.0)
        view.bodies = bodies or view.bodies
        if config.admin_tls is not None:
            pending = HandshakePlaces(MOST, limited, lambda event: None)
            view.tls = ServerTls(config.admin_tls, limited, lambda event: None, pending)
        if seen is not None:
            seen.append(view)
        api = AdminServer(view, limits, clock=lambda: 0.0)
        await api.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await scenario(api)
        finally:
            await api.stop()

    return asyncio.run(told())


async def answered(api: AdminServer, path: bytes) -> bytes:
    """Return everything that comes back until the connection ends."""
    return await sent(api, b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)


async def sent(api: AdminServer, text: bytes) -> bytes:
    """Return the response to a request until the server ends the connection; b"" if it sends no bytes."""
    reader, writer = await asyncio.open_connection(*api.address)
    try:
        writer.write(text)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def take(call: Call) -> str:
    """A route that wants a body."""
    return str(call.body)


async def take_stream(call: Call) -> web.StreamResponse:
    """A route that wants a stream; it answers in a line for each round."""
    answer = web.StreamResponse()
    await answer.prepare(call.raw)
    async for found in rounds(call.raw.content, dict, call.limits, call.node.bodies, of=call):
        await answer.write(f"{[str(each) for each in found]}\n".encode())
    return answer


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more routes: /v1/take and /v1/stream."""
    more = (
        Route("POST", "/v1/take", take, "Take", body=dict, rights=NO_RIGHTS),
        Route(
            "POST",
            "/v1/stream",
            take_stream,
            "Take many",
            answer=str,
            body=dict,
            streams=True,
            rights=NO_RIGHTS,
        ),
    )
    monkeypatch.setattr(server, "ROUTES", (*server.ROUTES, *more))


def test_crowd_of_idle_connections_is_bounded_and_shuts_no_client_out() -> None:
    """Each takes a file that a log may need; the sweep comes too late for a flood."""

    async def scenario(api: AdminServer) -> None:
        crowd = [await asyncio.open_connection(*api.address) for _ in range(5 * MOST)]
        assert b'"alive"' in await answered(api, b"/v1/live")
        cut = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
        while sum(each.done() for each in cut) < 4 * MOST:
            await asyncio.wait([each for each in cut if not each.done()], return_when=asyncio.FIRST_COMPLETED)
        for each in cut:
            each.cancel()
        for _, writer in crowd:
            writer.close()

    served(scenario, Limits(connections=MOST, sweep_s=NEVER_S))


@pytest.mark.usefixtures("routes")
def test_busy_connections_keep_no_probe_out() -> None:
    """If streams hold every connection, each new connection, such as a probe, ends the oldest stream."""

    async def scenario(api: AdminServer) -> None:
        streams = []
        for _ in range(2 * MOST):
            reader, writer = await asyncio.open_connection(*api.address)
            writer.write(POST % (b"/v1/stream", 99) + b'{"a": 1}')
            assert b"200 OK" in await reader.readuntil(b"'a': 1")
            streams.append((reader, writer))
        assert b'"alive"' in await answered(api, b"/v1/live")
        ends = [asyncio.ensure_future(_all_of(reader)) for reader, _ in streams]
        await asyncio.gather(*ends[: MOST + 1])
        assert not any(each.done() for each in ends[MOST + 1 :])
        for each, (_, writer) in zip(ends, streams, strict=True):
            each.cancel()
            writer.close()

    served(scenario, Limits(connections=MOST, sweep_s=NEVER_S))


@pytest.mark.usefixtures("routes")
def test_a_connection_is_spared_until_its_request_can_have_come() -> None:
    """A probe connects first and asks then; meanwhile others may connect, beside streams that are busy."""

    async def scenario(api: AdminServer) -> None:
        opened = []
        for _ in range(MOST):
            reader, writer = await asyncio.open_connection(*api.address)
            writer.write(POST % (b"/v1/stream", 99) + b'{"a": 1}')
            await reader.readuntil(b"'a': 1")
            opened.append(writer)
        reader, probe = await asyncio.open_connection(*api.address)
        for _ in range(3):
            opened.append((await asyncio.open_connection(*api.address))[1])
        assert b'"alive"' in await answered(api, b"/v1/live")
        probe.write(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'"alive"' in await reader.read()
        for each in (probe, *opened):
            each.close()

    served(scenario, Limits(connections=MOST, sweep_s=NEVER_S))


def test_an_address_with_few_connections_loses_none_to_one_with_many() -> None:
    """Each address has a share: a flood costs its own oldest connections."""

    async def scenario(api: AdminServer) -> None:
        early = await asyncio.open_connection(*api.address, local_addr=("127.0.0.2", 0))
        early[1].write(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await early[0].readuntil(b"}")
        flood = [await asyncio.open_connection(*api.address) for _ in range(5 * MOST)]
        assert b'"alive"' in await answered(api, b"/v1/live")
        early[1].write(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'"alive"' in await early[0].read()
        for _, writer in (early, *flood):
            writer.close()

    served(scenario, Limits(connections=MOST, sweep_s=NEVER_S))


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /v1/live HTTP/1.1\r\nHost: loc", b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ids=("nothing", "half a head", "kept after its answer"),
)
def test_connection_on_which_nothing_is_handled_is_cut(begun: bytes) -> None:
    """Slow heads and idle connections alike; what was asked is answered first."""
    text = served(lambda api: sent(api, begun), Limits(idle_s=SOON_S, sweep_s=SOON_S))
    assert (b'"alive"' in text) == begun.endswith(b"\r\n\r\n")


def test_connection_that_is_busy_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that takes longer than an idle connection may stay comes all the same."""
    swept = asyncio.Event()

    async def wait_long(call: Call) -> str:
        await swept.wait()
        return "at last"

    async def scenario(api: AdminServer) -> bytes:
        slow = asyncio.ensure_future(answered(api, b"/v1/long"))
        for _ in range(2):  # the second idle connection comes, and goes, while the slow request is answered
            assert await sent(api, b"") == b""
        swept.set()
        return await slow

    monkeypatch.setattr(server, "ROUTES", (Route("GET", "/v1/long", wait_long, "Wait", rights=NO_RIGHTS),))
    assert served(scenario, Limits(idle_s=SOON_S, sweep_s=SOON_S / 5)).endswith(b'"at last"')


@pytest.mark.usefixtures("routes")
def test_body_that_does_not_arrive_is_408() -> None:
    """And says how long it was waited for."""
    text = served(
        lambda api: sent(api, POST % (b"/v1/take", 99) + b'{"half'),
        Limits(body_s=SOON_S, idle_s=SOON_S, sweep_s=SOON_S),
    )
    assert text.startswith(b"HTTP/1.1 408")
    assert b"the body did not arrive within 0.05 s" in text


@pytest.mark.usefixtures("routes")
def test_bodies_that_arrive_at_once_are_bounded_together() -> None:
    """Another body gets 503, and the bytes that it sent are dropped with it."""
    bodies = Account("bodies", 110)

    async def scenario(api: AdminServer) -> bytes:
        _, slow = await asyncio.open_connection(*api.address)
        slow.write(POST % (b"/v1/take", 99) + b'{"a": "' + b"x" * 50)
        while bodies.used < 50:
            await answered(api, b"/v1/live")
        reader, refused = await asyncio.open_connection(*api.address)
        refused.write(POST % (b"/v1/take", 99) + b"{" + b" " * 60)
        text = await reader.readuntil(b"have them")
        refused.close()
        assert bodies.used < 60
        slow.write(b"x" * 40 + b'"}')
        while bodies.used:
            await answered(api, b"/v1/live")
        slow.close()
        return text

    text = served(scenario, bodies=bodies)
    assert text.startswith(b"HTTP/1.1 503")
    assert b"may have 110 bytes together" in text


@pytest.mark.usefixtures("routes")
def test_stalled_stream_gets_the_reason_and_is_cut() -> None:
    """Requests before it are answered; then one line says that the rest did not arrive."""
    limits = Limits(chunk_s=SOON_S, idle_s=SOON_S, sweep_s=SOON_S)
    text = served(lambda api: sent(api, POST % (b"/v1/stream", 99) + b'{"a": 1} {"b"'), limits)
    assert b"{'a': 1}" in text
    assert b"no record arrived for 0.05 s" in text


def test_client_that_does_not_read_is_cut_and_no_failure_of_the_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A body that is sent to it takes memory until it is gone."""
    seen: list[NodeView] = []

    async def pour(call: Call) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(call.raw)
        while True:
            await send(answer, b"x" * (1 << 20), call.raw, within_s=call.limits.chunk_s)

    async def scenario(api: AdminServer) -> None:
        _, writer = await asyncio.open_connection(*api.address)
        writer.write(b"GET /v1/pour HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not seen[0].answers:
            await answered(api, b"/v1/none")
            del seen[0].answers[404]
        writer.close()

    monkeypatch.setattr(
        server, "ROUTES", (Route("GET", "/v1/pour", pour, "Pour", answer=str, rights=NO_RIGHTS),)
    )
    served(scenario, Limits(chunk_s=SOON_S), seen=seen)
    assert set(seen[0].answers) == {server.CLIENT_LEFT}
    assert "admin_request_failed" not in "".join(capsys.readouterr())


@pytest.mark.usefixtures("routes")
@pytest.mark.parametrize("path", [b"/v1/take", b"/v1/stream"])
def test_client_that_hangs_up_in_its_body_is_no_failure_of_the_node(
    path: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """No error in the log, no 500 in the numbers; the audit log says how it ended."""
    seen: list[NodeView] = []

    async def scenario(api: AdminServer) -> None:
        _, writer = await asyncio.open_connection(*api.address)
        writer.write(POST % (path, 99) + b'{"half')
        await writer.drain()
        assert b'"alive"' in await answered(api, b"/v1/live")
        writer.transport.abort()
        while not seen[0].answers[server.CLIENT_LEFT]:
            assert b'"alive"' in await answered(api, b"/v1/live")

    served(scenario, seen=seen)
    assert set(seen[0].answers) == {200, server.CLIENT_LEFT}
    written = "".join(capsys.readouterr())
    assert "admin_request_failed" not in written


@pytest.mark.usefixtures("routes")
def test_packed_bodies_are_refused_and_never_unpacked() -> None:
    """A few kB unfold to gigabytes: unpacking a piece of that held the loop for half a second."""
    head = (POST % (b"/v1/take", 9)).replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    seen: list[NodeView] = []
    text = served(
        lambda api: sent(api, head + b"no gzip!!"), Limits(idle_s=SOON_S, sweep_s=SOON_S), seen=seen
    )
    assert text.startswith(b"HTTP/1.1 415"), text
    assert set(seen[0].answers) == {415}


def test_a_first_line_that_is_too_long_is_refused_as_all_else_is() -> None:
    """The error is JSON, as documented, and does not repeat the line."""
    answer = served(lambda api: answered(api, b"/v1/whoami?topic=" + b"t" * Limits().line_bytes))
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error == {
        "error_code": INVALID,
        "message": "the first line or a header of the request is too long",
    }


def test_a_query_has_so_many_parameters_at_most() -> None:
    """Each name was compared with all others, on a path that wants no token: 8 kB held the loop for 0.3 s."""
    most = Limits().parameters
    names = [b"a%d=1" % number for number in range(most + 1)]
    assert b"a query has at most 50 parameters" in served(
        lambda api: answered(api, b"/v1/live?" + b"&".join(names))
    )
    within = served(lambda api: answered(api, b"/v1/live?" + b"&".join(names[:most])))
    assert b"Object contains unknown field" in within
    twice = served(lambda api: answered(api, b"/v1/live?b=1&a=1&a=2&b=2"))
    assert b"a is given more than once" in twice


@pytest.mark.parametrize(
    "lines",
    [
        [b"X-%d: 1" % number for number in range(Limits().headers + 1)],
        [b"X-Same: 1"] * (Limits().headers + 1),
        [b"X-Long: " + b"x" * (Limits().line_bytes + 1)],
        [b"X" * Limits().line_bytes + b": 1"],
    ],
    ids=["many", "one many times", "a long value", "a long name"],
)
def test_headers_are_bounded_in_number_and_length(lines: list[bytes]) -> None:
    """All of it is read before anybody can be asked for a token."""
    head = b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"%s\r\n" % each for each in lines)
    text = served(lambda api: sent(api, head + b"Connection: close\r\n\r\n"))
    assert b" 400 Bad Request" in text, text[:200]
    assert json.loads(text.partition(b"\r\n\r\n")[2])["error_code"] == INVALID
    fine = b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: 1\r\n" * (Limits().headers - 5)
    text = served(lambda api: sent(api, fine + b"Connection: close\r\n\r\n"))
    assert text.startswith(b"HTTP/1.1 200"), text[:200]


@pytest.mark.parametrize(
    "text", [b"\x16\x03\x01 \r\n\r\n", b"\0\0\0\x14\0\x12\0\4\r\n\r\n", b"GET / HTTP/9\r\n\r\n"]
)
def test_what_is_no_http_is_no_error_of_the_node(text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A client at the wrong port gets a 400, and an operator gets no traceback."""
    limits = Limits(idle_s=SOON_S, sweep_s=SOON_S)
    answer = served(lambda api: sent(api, text), limits)
    assert b" 400 Bad Request" in answer
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert error["error_code"] == INVALID
    assert error["message"].startswith("this is no valid HTTP request: ")
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_body_that_is_not_packed_as_it_says_is_no_error_of_the_node(caplog: pytest.LogCaptureFixture) -> None:
    """No handler reads it. aiohttp reads it after the response."""
    head = b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
    limits = Limits(idle_s=SOON_S, sweep_s=SOON_S)
    assert served(lambda api: sent(api, head + b"abcd"), limits).startswith(b"HTTP/1.1 ")
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_answer_that_breaks_off_has_no_end_and_no_second_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader must see that it is not whole, and must not find another response in the middle of it."""

    async def break_off(call: Call) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(call.raw)
        await answer.write(b"half")
        raise RuntimeError("broken")

    monkeypatch.setattr(
        server, "ROUTES", (Route("GET", "/v1/half", break_off, "Break off", rights=NO_RIGHTS),)
    )
    text = served(lambda api: answered(api, b"/v1/half"))
    assert text.count(b"HTTP/1.1") == 1
    assert text.endswith(b"half\r\n")


def test_address_with_wrong_tokens_is_not_listened_to(tmp_path: Path) -> None:
    """Twenty at once, then 429: for the right token too, or else guessing goes on. Probes are answered."""
    (tmp_path / "tokens").write_text("reader grafana right-token-0123456789\n")

    async def status(api: AdminServer, token: str, path: bytes = b"/v3/clusters") -> tuple[int, bytes]:
        head = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n"
        text = await sent(api, head % (path, token.encode()))
        return int(text.split(b" ", 2)[1]), text

    async def scenario(api: AdminServer) -> None:
        assert (await answered(api, b"/v3/clusters")).startswith(b"HTTP/1.1 401")
        assert (await status(api, "right-token-0123456789"))[0] == 200
        assert [(await status(api, "wrong"))[0] for _ in range(20)] == [401] * 20
        for token in ("wrong", "right-token-0123456789"):
            code, text = await status(api, token)
            assert code == 429
            assert b"Retry-After: 1\r\n" in text
            assert json.loads(text.rpartition(b"\r\n\r\n")[2])["error_code"] == 429
        assert (await status(api, "wrong", b"/v1/live"))[0] == 200
        assert (await answered(api, b"/v3/clusters")).startswith(b"HTTP/1.1 401")

    served(scenario, settings={"raftlog.admin.tokens.file": str(tmp_path / "tokens")})


@needs_openssl
def test_silent_connections_keep_no_client_from_https(tmp_path: Path) -> None:
    """A connection without a handshake keeps its place until a newer connection needs it."""
    certificate = make_certificate(tmp_path)

    async def scenario(api: AdminServer) -> None:
        silent = [await asyncio.open_connection(*api.address) for _ in range(3 * MOST)]
        assert b'"alive"' in await _secure(api, certificate)
        cut = [asyncio.ensure_future(_all_of(reader)) for reader, _ in silent]
        assert await asyncio.gather(*cut[: 2 * MOST]) == [b""] * 2 * MOST
        assert not any(each.done() for each in cut[2 * MOST + 1 :])
        for each, (_, writer) in zip(cut, silent, strict=True):
            each.cancel()
            writer.close()

    settings = {
        "raftlog.admin.ssl.certificate": str(certificate.path),
        "raftlog.admin.ssl.key": str(certificate.key),
    }
    served(scenario, settings=settings)


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def _secure(api: AdminServer, certificate: Certificate) -> bytes:
    """Ask over TLS."""
    context = ssl.create_default_context(cafile=str(certificate.path))
    reader, writer = await asyncio.open_connection(*api.address, ssl=context)
    writer.write(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return await reader.read()
