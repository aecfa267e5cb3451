"""raftlog.admin.ask: what a broker's connection does to whoever asks."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.admin.ask import BrokerUnreachable, _Wire


class Transport(asyncio.Transport):
    """Takes what is written, or, once it has closed without telling, raises as uvloop's does."""

    def __init__(self, *, is_closed: bool = False) -> None:
        super().__init__()
        self.is_closed = is_closed
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")

    def abort(self) -> None:
        self.aborted = True


async def test_a_connection_that_closed_without_telling_is_unreachable() -> None:
    """It was a 500 of the API, and the dead connection stayed for the next request."""
    wire = _Wire(2)
    wire.connection_made(Transport(is_closed=True))
    with pytest.raises(BrokerUnreachable):
        await wire.exchange(b"frame")
    assert wire.closed


async def test_bytes_that_answer_nothing_end_that_connection_only() -> None:
    """Nothing is raised into the event loop, whose handler ends the node; whoever waits is told."""
    wire, transport = _Wire(2), Transport()
    wire.connection_made(transport)
    waiting = wire.exchange(b"frame")
    wire.data_received((-1).to_bytes(4, "big", signed=True) + b"junk")
    assert transport.aborted
    wire.connection_lost(None)
    with pytest.raises(BrokerUnreachable):
        await waiting
