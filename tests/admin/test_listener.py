"""Claims about the admin API's port before the API is there: what comes early is served, and costs little."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from raftlog.admin import listener
from raftlog.admin.limits import Limits
from raftlog.admin.listener import AdminListener, AdminUnavailable
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.metadata.image import EMPTY_IMAGE
from tests.kit.waits import PATIENCE_S

REQUEST = b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
GOES_ON = b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
FLOOD_BYTES = 32 << 20
"""More than the sockets' buffers hold."""
SMALL_BYTES = 4096
MOST = 8
NEVER_S = 3600.0


def told(
    scenario: Callable[[AdminListener], Awaitable[Any]],
    limits: Limits | None = None,
    *,
    seen: list[NodeView] | None = None,
    **settings: str,
) -> Any:
    """Run a scenario against a listener without a node, and collect its view in `seen`."""

    async def run() -> Any:
        given = {"raftlog.admin.listener": "127.0.0.1:0"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        view = NodeView(load_config(flags=given), lambda: EMPTY_IMAGE, list, lambda: 0.0)
        if seen is not None:
            seen.append(view)
        door = AdminListener(view, limits or Limits(sweep_s=NEVER_S))
        await door.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await scenario(door)
        finally:
            await door.stop()

    return asyncio.run(run())


async def answer(door: AdminListener, *pieces: bytes) -> bytes:
    """Return all that comes back of a request."""
    reader, writer = await asyncio.open_connection(*door.address)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def early(door: AdminListener, count: int) -> None:
    """Wait until so many connections wait for the API."""
    while len(door.early) != count:
        await asyncio.sleep(0)


def test_the_first_request_is_answered_by_the_api_that_it_brings() -> None:
    """Also requests that arrive during the import, and later requests."""

    async def scenario(door: AdminListener) -> None:
        assert door.server is None
        answers = await asyncio.gather(*(answer(door, REQUEST) for _ in range(5)))
        assert all(b"200 OK" in each for each in answers)
        assert door.server is not None
        assert not door.early
        assert b"200 OK" in await answer(door, REQUEST)

    told(scenario)


def test_samples_begin_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without the API, which takes a quarter of a node's memory."""
    monkeypatch.setattr(listener, "SETTLED_S", 0.0)
    views: list[NodeView] = []

    async def scenario(door: AdminListener) -> None:
        (view,) = views
        while view.samples is None:
            await asyncio.sleep(0)
        assert door.server is None

    told(scenario, seen=views)


def test_a_request_in_pieces_is_put_together() -> None:
    """The API gets the piece that was read before it was there, then the rest."""

    async def scenario(door: AdminListener) -> None:
        reader, writer = await asyncio.open_connection(*door.address)
        writer.write(REQUEST[:20])
        await early(door, 1)
        while door.server is None:
            await asyncio.sleep(0)
        writer.write(REQUEST[20:])
        assert b"200 OK" in await reader.read()
        writer.close()

    told(scenario)


def test_a_flood_of_requests_is_read_no_faster_than_it_is_answered() -> None:
    """A client that reads no answer: the API pauses the connection over the very piece that was read before."""

    async def scenario(door: AdminListener) -> None:
        reader, writer = await asyncio.open_connection(*door.address)
        writer.transport.set_write_buffer_limits(0)
        writer.write(GOES_ON * (FLOOD_BYTES // len(GOES_ON)))
        await early(door, 1)
        (transport,) = (each.transport for each in door.early)
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        all_read = asyncio.ensure_future(writer.drain())
        while not all_read.done() and (door.early or transport.is_reading()):
            await asyncio.sleep(0)
        assert not all_read.done()
        all_read.cancel()
        assert (await reader.readline()).endswith(b"200 OK\r\n")
        writer.transport.abort()

    told(scenario)


def test_a_look_whether_the_port_is_open_brings_no_api() -> None:
    """A client that waits for a node to listen connects and closes."""

    async def scenario(door: AdminListener) -> None:
        _, writer = await asyncio.open_connection(*door.address)
        await early(door, 1)
        writer.close()
        await early(door, 0)
        assert door.server is None and door._importing is None

    told(scenario)


def test_silent_connections_are_left_to_the_api_in_time() -> None:
    """It has rules for them, which the port alone has not."""

    async def scenario(door: AdminListener) -> None:
        reader, writer = await asyncio.open_connection(*door.address)
        assert await reader.read() == b"", "the API cuts it for its silence"
        assert door.server is not None
        writer.close()

    told(scenario, Limits(sweep_s=0.01, idle_s=0.01))


def test_connections_before_the_api_are_bounded() -> None:
    """Each takes a file that a log may need. One more than that takes the place of the oldest, and is answered."""

    async def scenario(door: AdminListener) -> None:
        crowd = [await asyncio.open_connection(*door.address) for _ in range(MOST)]
        await early(door, MOST)
        assert door._importing is None
        assert b"200 OK" in await answer(door, REQUEST)
        assert await crowd[0][0].read() == b""
        for _, writer in crowd:
            writer.close()

    told(scenario, Limits(connections=MOST, sweep_s=NEVER_S))


def test_an_api_that_cannot_be_imported_costs_its_clients_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For example without file descriptors: the node goes on, each client is disconnected, and the next client may
    succeed.
    """

    def fail(name: str) -> Any:
        raise OSError(name)

    async def scenario(door: AdminListener) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(listener, "import_module", fail)
            for _ in range(3):
                assert await answer(door, REQUEST) == b""
                assert door.server is None
        assert b"200 OK" in await answer(door, REQUEST)

    with caplog.at_level(logging.CRITICAL):
        told(scenario)


def test_tokens_are_read_at_the_start(tmp_path: Path) -> None:
    """An unusable tokens file must be reported before the first client arrives."""

    async def scenario(door: AdminListener) -> None:
        assert door.server is not None
        assert b"200 OK" in await answer(door, REQUEST)

    with pytest.raises(AdminUnavailable, match=r"raftlog\.admin\.tokens\.file"):
        told(scenario, raftlog_admin_tokens_file=str(tmp_path / "none"))
    (tmp_path / "tokens").write_text("operator somebody 0123456789abcdef\n")
    told(scenario, raftlog_admin_tokens_file=str(tmp_path / "tokens"))


def test_a_port_that_is_taken_is_reported_at_the_start() -> None:
    """The message names the port and its setting."""

    async def scenario(door: AdminListener) -> None:
        host, port = door.address
        config = load_config(flags={"raftlog.admin.listener": f"{host}:{port}"})
        with pytest.raises(AdminUnavailable, match=f"{port} .raftlog.admin.listener"):
            await AdminListener(NodeView(config, lambda: EMPTY_IMAGE, list, lambda: 0.0)).start()

    told(scenario)
