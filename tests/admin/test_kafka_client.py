"""raftlog.admin.kafka_client: how failures of a broker's connection reach its callers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from raftlog.admin.kafka_client import MAX_IDLE, Asker, BrokerUnreachable, _Wire
from raftlog.base.config import load_config
from raftlog.metadata.image import BrokerState, Endpoint, MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for


class Transport(asyncio.Transport):
    """Takes written bytes or, once it closed without notice, raises as uvloop's transport does."""

    def __init__(self, *, is_closed: bool = False) -> None:
        super().__init__()
        self.is_closed = is_closed
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")

    def is_closing(self) -> bool:
        return False

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
    """The event loop's handler, which ends the node, sees no exception; the caller gets an error."""
    wire, transport = _Wire(2), Transport()
    wire.connection_made(transport)
    waiting = wire.exchange(b"frame")
    wire.data_received((-1).to_bytes(4, "big", signed=True) + b"junk")
    assert transport.aborted
    wire.connection_lost(None)
    with pytest.raises(BrokerUnreachable):
        await waiting


async def test_a_burst_leaves_few_connections() -> None:
    """Each of them costs the node and the broker a file, until it is idle for too long."""
    burst = MAX_IDLE + 3
    connected = asyncio.Semaphore(0)
    ended = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        connected.release()
        if not all_asked.is_set():
            await all_asked.wait()
        answer = frame[4:8] + b"\0" + bytes(6) + b"\1\0"  # no error, no partition
        writer.write(len(answer).to_bytes(4, "big") + answer)
        assert await reader.read() == b""
        ended.release()
        writer.close()

    all_asked = asyncio.Event()
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint = Endpoint("PLAINTEXT", *listening.sockets[0].getsockname()[:2])
    image = MetadataImage(brokers={1: BrokerState(1, 1, UUID(int=1), (endpoint,))})
    asker = Asker(load_config({"inter.broker.listener.name": "PLAINTEXT"}), lambda: image)
    request = builders_for(ApiKey.ELECT_LEADERS).ElectLeadersRequest(
        election_type=0, topic_partitions=(), timeout=timedelta()
    )
    asked = [
        asyncio.ensure_future(asker.ask(ApiKey.ELECT_LEADERS, request, broker_id=1)) for _ in range(burst)
    ]
    for _ in range(burst):
        await connected.acquire()
    all_asked.set()
    await asyncio.gather(*asked)
    assert len(asker._idle[1]) == MAX_IDLE
    for _ in range(burst - MAX_IDLE):
        await ended.acquire()
    assert ended.locked()
    asker.close()
    for _ in range(MAX_IDLE):
        await ended.acquire()
    listening.close()
