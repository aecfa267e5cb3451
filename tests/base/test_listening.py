"""raftlog.base.listening: a port that was taken between bind and listen is an error on every loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest
import uvloop

from raftlog.base.listening import check_listening
from tests.kit.errors import raises_errno


@pytest.mark.parametrize("is_bound_first", [False, True])
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_port_that_is_taken_between_bind_and_listen_is_an_error(
    make_loop: Callable[[], asyncio.AbstractEventLoop], is_bound_first: bool
) -> None:
    """uvloop reports no error: its server then has no socket, or a socket without a descriptor."""

    async def listen(free: socket.socket, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if not is_bound_first:
            other.listen()
            check_listening(await loop.create_server(asyncio.Protocol, sock=free))
            return
        server = await loop.create_server(asyncio.Protocol, sock=free, start_serving=False)
        other.listen()
        await server.start_serving()
        check_listening(server)

    async def main() -> None:
        with socket.socket() as free, socket.socket() as other:
            for each in (free, other):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", 0))
            other.bind(free.getsockname())
            with raises_errno(errno.EADDRINUSE):
                await listen(free, other)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


async def test_a_server_that_listens_is_fine() -> None:
    """With one socket or several."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, ["127.0.0.1", "127.0.0.2"], 0)
    check_listening(server)
    assert server.is_serving() and len(server.sockets) == 2
    server.close()
