"""The workloads' own client: one connection to each broker, however many ask it at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog_chaos.workloads.raw_client import AWAY, Client


async def test_concurrent_requests_share_the_connection_that_is_being_made() -> None:
    """Ten thousand members of a load that lost their coordinator would make ten thousand of them."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    client = Client("c", [address])
    wires = await asyncio.gather(*(client._wire(address) for _ in range(50)))
    assert len(set(map(id, wires))) == 1
    wires[0].close()
    assert wires[0].send(3, object()).done(), "a connection that is being closed takes no question"
    await asyncio.sleep(0)
    again = await asyncio.gather(*(client._wire(address) for _ in range(50)))
    assert len(set(map(id, again))) == 1 and again[0] is not wires[0]
    client.close()
    server.close()
    for each in accepted:
        each.close()
    assert len(accepted) <= 2


class Silent:
    """A connection without responses."""

    def send(self, *_: Any) -> str:
        return "sent"


async def test_any_broker_means_one_that_is_running() -> None:
    """With one node of three dead, a third of ten thousand members would ask in vain, some of them ten times."""
    client = Client("c", [("127.0.0.1", port) for port in range(3)])
    dialled: list[int] = []

    async def wire(address: tuple[str, int]) -> Any:
        dialled.append(address[1])
        if address[1] != 1:
            raise ConnectionRefusedError
        return Silent()

    async def answer(_: Any, asked: Any) -> Any:
        return asked

    client._wire, client.answer = wire, answer  # type: ignore[method-assign, assignment]
    for _ in range(5):
        assert await client.ask_reachable(3, None) == "sent"
    assert dialled.count(1) == 5

    client._bootstrap = [("127.0.0.1", 0), ("127.0.0.1", 2)]
    with pytest.raises(ConnectionRefusedError):
        await client.ask_reachable(3, None)


async def test_all_waiters_for_a_connection_hear_that_there_is_none() -> None:
    """And the next one tries again."""
    server = await asyncio.start_server(lambda _, writer: None, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    client = Client("c", [address])
    found = await asyncio.gather(*(client._wire(address) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(each, AWAY) for each in found)
    with pytest.raises(AWAY):
        await client._wire(address)
    client.close()
