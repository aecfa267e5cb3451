"""raftlog.admin.schema_registry.forwarding: which address of the leader is asked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from yarl import URL

from raftlog.admin.route import Call
from raftlog.admin.schema_registry import forwarding
from raftlog.admin.schema_registry.forwarding import Forwarder
from raftlog.metadata.image import BrokerState, Endpoint

HERE = "127.0.0.1"


async def serve(stack: AsyncExitStack, name: str) -> str:
    """Start a server that answers with its name, and return its address."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text=name)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, HERE, 0).start()
    return f"{HERE}:{runner.addresses[0][1]}"


def test_a_leader_that_came_back_at_another_address_is_asked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start of a broker has another epoch. Its old port may be another process's by then."""
    settings: dict[str, str] = {}
    brokers: dict[int, BrokerState] = {}
    looked_up: list[int] = []

    async def settings_of(call: Call, broker_id: int, names: tuple[str, ...]) -> dict[str, str]:
        looked_up.append(brokers[broker_id].broker_epoch)
        return dict(settings)

    monkeypatch.setattr(forwarding, "settings_of_broker", settings_of)
    config = SimpleNamespace(node_id=1, admin_tls=None, inter_broker_listener_name="PLAINTEXT", tls={})
    node: Any = SimpleNamespace(config=config, image=lambda: SimpleNamespace(brokers=brokers))
    call: Any = object.__new__(Call)
    call.node, call.body, call.request_id = node, None, "r"
    call.caller = SimpleNamespace(principal="")
    url = URL("/subjects")
    call.raw = SimpleNamespace(headers={}, rel_url=url, url=url, query_string="", method="GET")

    async def scenario() -> list[Any]:
        answers = []
        async with AsyncExitStack() as stack:
            forwarder = Forwarder(node)
            stack.push_async_callback(forwarder.close)
            for epoch, name in enumerate(("before", "after"), start=1):
                settings["raftlog.schema.registry.listener"] = await serve(stack, name)
                brokers[2] = BrokerState(2, epoch, uuid4(), (Endpoint("PLAINTEXT", HERE, 9092),))
                answers += [(await forwarder.forward(call, 2)).body for _ in range(2)]
        return answers

    assert asyncio.run(scenario()) == [b"before", b"before", b"after", b"after"]
    assert looked_up == [1, 2]
