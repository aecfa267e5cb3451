"""One connection shows whether the broker at its other end is gone."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.broker.links.probe import probe

RESPONSE = bytes.fromhex("0000000a 00000000 0000 00000000")
"""ApiVersions v0: length, correlation id, no error, no APIs."""


async def probed(answer: bytes | None) -> str:
    """Probe a server that answers every request with these bytes, closes (b"") or stays silent (None)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        return await probe(*server.sockets[0].getsockname(), patience_s=0.5 if answer is None else 10.0)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (RESPONSE, "alive"),
        (RESPONSE[:6], "alive"),
        (None, "accepted"),
        (b"", "refused"),
        (b"HTTP/1.1 400 Bad Request\r\n", "refused"),
    ],
)
async def test_only_a_broker_is_alive(answer, result):
    """A port that a web server or a proxy took over is not a broker that answers (Kafka's response header)."""
    assert await probed(answer) == result


async def test_a_port_without_a_listener_refuses():
    """A dead process is known at once."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    assert await probe(*address, patience_s=10.0) == "refused"


@pytest.mark.parametrize("host", ["a\0b", "x" * 70 + ".example"])
async def test_a_host_that_is_none_is_unreachable(host):
    """A broker registers what it likes, and a probe that fails ended the controller."""
    assert await probe(host, 9092, patience_s=10.0) == "unreachable"


async def test_a_connection_that_has_ended_before_it_is_written_to_refuses(monkeypatch):
    """uvloop raises RuntimeError for a transport that is closed."""

    class Closed:
        def write(self, _data):
            raise RuntimeError("the handler is closed")

        def abort(self):
            pass

    async def connect(factory, *_args):
        return Closed(), factory()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    assert await probe("127.0.0.1", 9092) == "refused"
