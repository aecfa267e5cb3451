"""A node's questions to another node's HTTP API: what is sent there, and what is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native import broker_facts, nodes, passing_on
from raftlog.admin.native.passing_on import ask_node
from raftlog.admin.route import FORWARDED, Call
from raftlog.metadata.image import BrokerState, Endpoint

LOGIN = "Basic YWxpY2U6cGFzc3dvcmQ="


class Said(msgspec.Struct):
    """An answer."""

    text: str


def broker_on(host: str, broker_id: int) -> BrokerState:
    """Return a broker."""
    return BrokerState(broker_id, 1, uuid4(), (Endpoint("PLAINTEXT", host, 9092),))


def ask(
    monkeypatch: pytest.MonkeyPatch,
    *,
    tls: object = None,
    with_login: bool = True,
    scheme: str = "http",
    login: str = LOGIN,
    host: str = "a",
    is_forwarded: bool = False,
    status_line: bytes = b"HTTP/1.0 200 OK",
) -> tuple[Any, bytes]:
    """Return the answer of node 2 on a host, or the error, and the request that it got; node 1 on host a asks it.

    Its API is bound to loopback. Its TLS, if it has some, is left out.
    """
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(status_line + b'\r\n\r\n{"text": "hello"}')
        writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def settings_of(*_: object) -> dict[str, str]:
            protocol = "SSL" if scheme == "https" else "PLAINTEXT"
            return {
                "raftlog.admin.listener": f"127.0.0.1:{port}",
                "raftlog.admin.security.protocol": protocol,
            }

        async def no_tls(*_: object) -> dict[str, Any]:
            return {}

        monkeypatch.setattr(nodes, "settings_of_broker", settings_of)
        monkeypatch.setattr(passing_on, "tls_to", no_tls)
        config = SimpleNamespace(node_id=1, admin_tls=tls, inter_broker_listener_name="PLAINTEXT")
        brokers = {1: broker_on("a", 1), 2: broker_on(host, 2)}
        node: Any = SimpleNamespace(config=config, image=lambda: SimpleNamespace(brokers=brokers))
        call: Any = object.__new__(Call)
        call.node = node
        call.raw = SimpleNamespace(headers={"Authorization": login, FORWARDED: str(not is_forwarded).lower()})
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


@pytest.mark.parametrize("status_line", [b"hello", b"HTTP/1.0 ", b"HTTP/1.0 OK", b""])
def test_answer_without_a_status_is_an_error(monkeypatch: pytest.MonkeyPatch, status_line: bytes) -> None:
    """Something else listens there: the node is unreachable, and this node is not at fault."""
    found, _ = ask(monkeypatch, status_line=status_line)
    assert isinstance(found, ApiError) and found.status == 503 and "node 2 is unreachable" in str(found)


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


def test_loopback_address_of_another_machine_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node has it by default: the answer would be that of the asking node, or a stranger's."""
    found, heard = ask(monkeypatch, host="b")
    assert isinstance(found, ApiError) and "no HTTP API that can be reached" in str(found) and heard == b""


def test_forwarded_question_is_not_forwarded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with an address that others have, too, asks itself once, not for ever."""
    _, heard = ask(monkeypatch)
    assert f"{FORWARDED}: false".encode() in heard
    found, heard = ask(monkeypatch, is_forwarded=True)
    assert isinstance(found, ApiError) and "leads to node 1, not to node 2" in str(found) and heard == b""


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
