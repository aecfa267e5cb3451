"""The workloads' own client: one connection to each broker, however many ask it at once."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.proof.workloads.wire import AWAY, Client


async def test_many_who_ask_at_once_share_the_connection_that_is_being_made() -> None:
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


async def test_all_who_wait_for_a_connection_hear_that_there_is_none() -> None:
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
