"""A node's questions to another node's HTTP API: what is sent there, and what is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native import broker_facts, passing_on
from raftlog.admin.native.passing_on import ask_node

LOGIN = "Basic YWxpY2U6cGFzc3dvcmQ="


class Said(msgspec.Struct):
    """An answer."""

    text: str


def ask(
    monkeypatch: pytest.MonkeyPatch,
    *,
    tls: object = None,
    with_login: bool = True,
    scheme: str = "http",
    login: str = LOGIN,
) -> tuple[Any, bytes]:
    """Return the answer of a node, or the error, and the request that it got. Its TLS, if it has some, is left out."""
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"text": "hello"}')
        writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def url_of(*_: object, nearby: bool) -> str:
            return f"{scheme}://127.0.0.1:{port}"

        async def no_tls(*_: object) -> dict[str, Any]:
            return {}

        monkeypatch.setattr(passing_on, "http_url_of", url_of)
        monkeypatch.setattr(passing_on, "tls_to", no_tls)
        node = SimpleNamespace(
            config=SimpleNamespace(admin_tls=tls), image=lambda: SimpleNamespace(brokers={2: object()})
        )
        call: Any = SimpleNamespace(node=node, raw=SimpleNamespace(headers={"Authorization": login}))
        async with server:
            try:
                return await ask_node(call, 2, "GET /v1/x", Said, with_login=with_login)
            except ApiError as error:
                return error

    return asyncio.run(run()), bytes(heard)


def test_another_node_answers_as_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of another node take the caller's rights there."""
    found, heard = ask(monkeypatch)
    assert found == Said("hello") and LOGIN.encode() in heard


def test_what_needs_no_login_is_asked_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console asks each node for its facts every few seconds: a password would go over the wire each time."""
    found, heard = ask(monkeypatch, tls=object(), with_login=False)
    assert found == Said("hello") and b"Authorization" not in heard


def test_login_that_came_over_tls_is_not_sent_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request fails before it is sent."""
    found, heard = ask(monkeypatch, tls=object())
    assert isinstance(found, ApiError) and found.status == 503 and heard == b""


@pytest.mark.parametrize("with_login", [True, False])
def test_login_is_sent_over_tls(monkeypatch: pytest.MonkeyPatch, with_login: bool) -> None:
    """Even for facts: no other host can read it on its way."""
    found, heard = ask(monkeypatch, tls=object(), scheme="https", with_login=with_login)
    assert found == Said("hello") and LOGIN.encode() in heard


def test_caller_with_a_certificate_does_nothing_on_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """That node would see the certificate of this one, which may do more."""
    found, heard = ask(monkeypatch, tls=object(), scheme="https", login="")
    assert isinstance(found, ApiError) and "a certificate is not passed on" in str(found) and heard == b""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(401, "node 2: no login"), "asks for a login, which this node passes on only over TLS"),
        (ApiError(503, "node 2 is unreachable: refused"), "node 2 is unreachable: refused"),
    ],
)
def test_unknown_process_says_why(monkeypatch: pytest.MonkeyPatch, error: ApiError, reason: str) -> None:
    """Beside the facts that the broker's Kafka API gave."""

    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(broker_facts, "ask_node", refuse)
    call: Any = SimpleNamespace(node=SimpleNamespace(config=SimpleNamespace(node_id=1)))
    process, why = asyncio.run(broker_facts._process(call, 2))
    assert process is None and reason in why
