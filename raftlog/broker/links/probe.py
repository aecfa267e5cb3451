"""Is a broker that went quiet gone? One connection, one ApiVersions request, one word.

A dead process refuses at once. A machine that is gone stays silent. For a process that stands still, or is only slow,
its kernel accepts, but no answer comes. A live one answers.
A peer that answers in another protocol is somebody else at what is no longer the broker's address.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Literal

ProbeResult = Literal["alive", "refused", "accepted", "silent"]

_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""A whole frame: length, api key 18, version 0, correlation id 0, null client id."""

_CORRELATION_ID = bytes(4)
"""The bytes after the length of a response."""


async def probe(host: str, port: int, *, patience_s: float = 0.3) -> ProbeResult:
    """Ask the broker at an address for its API versions and wait at most `patience_s` seconds."""
    loop = asyncio.get_running_loop()
    accepted = False
    try:
        async with asyncio.timeout(patience_s):
            transport, protocol = await loop.create_connection(_FirstBytes, host, port)
            accepted = True
            try:
                transport.write(_API_VERSIONS_V0)
                return "alive" if await protocol.answered else "refused"
            finally:
                transport.abort()
    except TimeoutError:
        return "accepted" if accepted else "silent"
    except (OSError, RuntimeError, ValueError):
        # RuntimeError: uvloop's, where the connection has ended; ValueError: a host that is none
        return "refused"


class _FirstBytes(asyncio.Protocol):
    """Resolves `answered`: True at the first bytes of a response, False for other bytes and for none."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.answered.done():
            self.answered.set_result(_CORRELATION_ID.startswith(data[4:8]))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_result(False)
