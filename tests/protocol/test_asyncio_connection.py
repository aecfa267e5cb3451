"""raftlog.protocol.asyncio_connection: each request has its own response, or the reason why it has none."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.asyncio_connection import AsyncioConnection
from raftlog.protocol.codec import encode_response
from raftlog.protocol.message_builders import build_response, request_builders
from raftlog_chaos.workloads.raw_client import RawConnection

KEY, VERSION = ApiKey.LIST_GROUPS, 4


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


def connected(connection: AsyncioConnection) -> Transport:
    transport = Transport()
    connection.connection_made(transport)
    return transport


def asked(connection: AsyncioConnection) -> asyncio.Future[object]:
    message = request_builders(KEY, VERSION).ListGroupsRequest(states_filter=())
    return connection.ask(KEY, VERSION, message, client_id="test")


def response(correlation_id: int, error_code: int) -> bytes:
    return encode_response(KEY, VERSION, correlation_id, build_response(KEY, VERSION, error_code=error_code))


async def test_responses_go_to_their_requests_also_past_a_cancelled_request() -> None:
    """In the order of the requests, also after some were cancelled."""
    connection = AsyncioConnection()
    transport = connected(connection)
    first, second, third = asked(connection), asked(connection), asked(connection)
    assert len(transport.written) == 3
    second.cancel()
    connection.data_received(response(1, 7) + response(2, 8) + response(3, 9))
    assert [(await each).error_code for each in (first, third)] == [7, 9]  # type: ignore[attr-defined]


async def test_a_lost_connection_fails_every_pending_and_every_later_request() -> None:
    """A response of another request ends the connection, as an impossible length does."""
    for received in (response(2, 0), pack(">i", -1)):
        connection = AsyncioConnection()
        transport = connected(connection)
        pending = asked(connection)
        connection.data_received(received)
        assert transport.is_aborted and not pending.done()
        connection.connection_lost(None)
        for each in (pending, asked(connection)):
            with pytest.raises(ConnectionResetError):
                await each
        assert connection.closed


async def test_a_simulated_client_fails_the_run_over_a_response_that_is_none() -> None:
    """A broker's bug must not pass for a broken connection."""
    connection = RawConnection("client")
    connected(connection)
    asked(connection)
    with pytest.raises(AssertionError):
        connection.data_received(response(2, 0))
