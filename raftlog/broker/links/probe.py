"""Checks whether a silent broker is gone.

It opens one connection, sends one ApiVersions request, and returns one word.

A dead process refuses at once. A host that is down stays silent, or the network reports it as unreachable. A suspended
or slow process still has a kernel that accepts connections, but sends no response. A live process responds. A peer
that responds in another protocol is a different program at the broker's former address.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Literal

ProbeResult = Literal["alive", "refused", "accepted", "silent", "unreachable"]

_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""A whole frame: length, api key 18, version 0, correlation id 0, null client id."""

_CORRELATION_ID = bytes(4)
"""The bytes after the length of a response."""

_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The beginnings of a TLS alert and of a handshake message: a broker may refuse this hello, and yet be alive."""


async def probe(host: str, port: int, *, patience_s: float = 0.3, tls: bool = False) -> ProbeResult:
    """Ask the broker at an address for its API versions and wait at most `patience_s` seconds.

    With `tls` ask to begin TLS. The response proves only that a broker is alive. No authentication takes place.
    """
    loop = asyncio.get_running_loop()
    accepted = False
    try:
        async with asyncio.timeout(patience_s):
            transport, protocol = await loop.create_connection(lambda: _FirstBytes(tls=tls), host, port)
            accepted = True
            try:
                transport.write(_client_hello() if tls else _API_VERSIONS_V0)
                return "alive" if await protocol.answered else "refused"
            finally:
                transport.abort()
    except TimeoutError:
        return "accepted" if accepted else "silent"
    except (ConnectionError, RuntimeError):  # RuntimeError: uvloop's, where the connection has ended
        return "refused"
    except (OSError, ValueError):  # ValueError: an invalid host name
        return "unreachable"


def _client_hello() -> bytes:
    """Return the first message of TLS."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    said = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="raftlog").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return said.read()


class _FirstBytes(asyncio.Protocol):
    """Resolves `answered`: True at the first bytes of a response, False for other bytes and for none."""

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.answered.done():
            is_response = (
                data.startswith(_TLS_RECORDS) if self._tls else _CORRELATION_ID.startswith(data[4:8])
            )
            self.answered.set_result(is_response)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_result(False)
