"""A node's questions to another node's HTTP API: what is sent there, and what is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native import passing_on
from raftlog.admin.native.passing_on import ask_node

LOGIN = "Basic YWxpY2U6cGFzc3dvcmQ="


class Said(msgspec.Struct):
    """An answer."""

    text: str


def ask(monkeypatch: pytest.MonkeyPatch, *, tls: object = None, with_login: bool = True) -> tuple[Any, bytes]:
    """Return the answer of a node, or the error, and the request that it got."""
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"text": "hello"}')
        writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def url_of(*_: object, nearby: bool) -> str:
            return f"http://127.0.0.1:{port}"

        monkeypatch.setattr(passing_on, "http_url_of", url_of)
        node = SimpleNamespace(
            config=SimpleNamespace(admin_tls=tls), image=lambda: SimpleNamespace(brokers={2: object()})
        )
        call: Any = SimpleNamespace(node=node, raw=SimpleNamespace(headers={"Authorization": LOGIN}))
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
