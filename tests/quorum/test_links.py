"""Claims about the links between voters: when a peer's process is taken for dead."""

from __future__ import annotations

import asyncio

from raftlog.quorum.raft_links import is_process_dead


class ClosingListener(asyncio.Protocol):
    """A listener that accepts so many connections before it closes as well, as a killed process's does."""

    def __init__(self) -> None:
        self.server: asyncio.Server | None = None
        self.left = 0

    async def listen(self, accepts: int) -> tuple[str, int]:
        self.left = accepts
        self.server = await asyncio.get_running_loop().create_server(lambda: self, "127.0.0.1", 0)
        address: tuple[str, int] = self.server.sockets[0].getsockname()
        return address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.left -= 1
        if self.left == 0 and self.server is not None:
            self.server.close()


async def test_a_dying_process_that_still_accepts_is_gone_in_moments() -> None:
    """kill -9 closes sockets in sequence: the links break while the listener still accepts."""
    address = await ClosingListener().listen(accepts=2)
    assert await is_process_dead(address, lambda: True)


async def test_a_peer_that_is_linked_again_is_not_gone() -> None:
    """Only a peer that is still missing may be declared dead."""
    address = await ClosingListener().listen(accepts=1)
    answers = iter([True, False])
    assert not await is_process_dead(address, lambda: next(answers))


async def test_a_peer_that_keeps_accepting_is_not_gone() -> None:
    """A lost link alone deposes no leader (Raft thesis §9.6)."""
    dying = ClosingListener()
    address = await dying.listen(accepts=10**6)
    assert not await is_process_dead(address, lambda: True)
    assert dying.server is not None
    dying.server.close()
