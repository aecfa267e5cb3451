"""Claims about what a client can take from a node: connections, and answers that break off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from raftlog.admin import server
from raftlog.admin.route import Call, Route
from raftlog.admin.server import AdminServer
from raftlog.admin.view import NodeView
from raftlog.base.config import load_config
from raftlog.metadata.image import EMPTY_IMAGE

MOST = 8


def served(story: Callable[[AdminServer], Awaitable[Any]]) -> Any:
    """Tell a story of a server without a node behind it."""

    async def told() -> Any:
        config = load_config(flags={"raftlog.admin.listener": "127.0.0.1:0"})
        api = AdminServer(NodeView(config, lambda: EMPTY_IMAGE, list, lambda: 0.0))
        await api.start()
        try:
            async with asyncio.timeout(10):
                return await story(api)
        finally:
            await api.stop()

    return asyncio.run(told())


async def answered(api: AdminServer, path: bytes) -> bytes:
    """Return everything that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection(*api.address)
    writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
    try:
        return await reader.read()
    finally:
        writer.close()


def test_crowd_of_idle_connections_is_bounded_and_shuts_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a file that a log may need; the sweep comes too late for a flood."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", MOST)
    monkeypatch.setattr(server, "SWEEP_S", 3600.0)

    async def story(api: AdminServer) -> None:
        crowd = [await asyncio.open_connection(*api.address) for _ in range(5 * MOST)]
        assert b'"alive"' in await answered(api, b"/v1/live")
        cut = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
        while sum(each.done() for each in cut) < 4 * MOST:
            await asyncio.wait([each for each in cut if not each.done()], return_when=asyncio.FIRST_COMPLETED)
        for each in cut:
            each.cancel()
        for _, writer in crowd:
            writer.close()

    served(story)


def test_answer_that_breaks_off_has_no_end_and_no_second_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads it must see that it is not whole, not find another answer in the middle of it."""

    async def break_off(call: Call) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(call.raw)
        await answer.write(b"half")
        raise RuntimeError("broken")

    monkeypatch.setattr(server, "ROUTES", (Route("GET", "/v1/half", break_off, "Break off"),))
    text = served(lambda api: answered(api, b"/v1/half"))
    assert text.count(b"HTTP/1.1") == 1
    assert text.endswith(b"half\r\n")
