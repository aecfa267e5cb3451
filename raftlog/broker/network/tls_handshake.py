"""A connection during its TLS handshake, of any listener: clients', the controllers' and the admin API's.

It holds a place (`base.places`) until the handshake has ended. Then the listener's own protocol goes on with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from raftlog.base.guard import Guard
from raftlog.base.log import LimitedLog
from raftlog.base.places import NodeMachines, Places, host_of
from raftlog.broker.links.tls import HANDSHAKE_S, SHUTDOWN_S

DISPLACED: Final = "tls_handshake_displaced"
"""The event of a handshake that lost its place to a newer connection."""

MAX_SETTING: Final = "raftlog.tls.handshakes.max"


Accept = Callable[[], asyncio.BaseProtocol]
"""Return the protocol of a new connection."""


class HandshakePlaces:
    """The places of the handshakes that are under way at some listeners together."""

    def __init__(
        self, most: int, log: LimitedLog, count: Callable[[str], None], nodes: NodeMachines | None = None
    ) -> None:
        self.log = log
        self._most = most
        self._count = count
        self.places: Places[TlsHandshake] = Places(most, self._displace, nodes=nodes)

    def _displace(self, handshake: TlsHandshake) -> None:
        handshake.abort()
        self._count(DISPLACED)
        self.log.warning(
            DISPLACED,
            listener=handshake.listener,
            address=handshake.address,
            limit=MAX_SETTING,
            under_way=self._most,
        )

    def crash(self, what: str, handshake: TlsHandshake) -> None:
        """Log the exception being handled, which is a bug of ours."""
        self.log.exception("tls_handshake_crashed", what=what, listener=handshake.listener)

    def close(self) -> None:
        """Close every connection in its handshake."""
        for each in self.places:
            each.abort()


class TlsHandshake(asyncio.Protocol, Guard):
    """One connection, from its beginning to the end of its TLS handshake.

    The listener accepts without TLS. Otherwise the connection's address is unknown, and it cannot be closed. The
    handshake happens on a duplicate of its socket, with the listener's protocol.
    """

    def __init__(
        self,
        listener: str,
        context: ssl.SSLContext,
        pending: HandshakePlaces,
        *,
        accept: Accept,
        failed: Callable[[ssl.SSLError, str], None],
    ) -> None:
        self.listener = listener
        self.address = ""
        self._context = context
        self._pending = pending
        self._accept = accept
        self._failed = failed
        self._socket: socket.socket | None = None
        """The accepted socket, which no transport owns yet."""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.run_guarded(self._begin, transport)

    def crash(self, what: str) -> None:
        self._pending.crash(what, self)
        self.abort()

    def abort(self) -> None:
        self._pending.places.leave(self)
        if self._socket is not None:
            self._socket.close()
        if self._task is not None:
            self._task.cancel()

    def _begin(self, transport: asyncio.Transport) -> None:
        self.address = host_of(transport.get_extra_info("peername"))
        try:
            self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError as error:
            self._pending.log.warning("accept_failed", listener=self.listener, reason=error.strerror)
            return
        finally:
            transport.abort()
        self._socket.setblocking(False)
        self._task = asyncio.get_running_loop().create_task(self.guarded_task(self._shake_hands()))
        self._pending.places.enter(self, self.address)

    async def _shake_hands(self) -> None:
        accepted, self._socket = self._socket, None
        assert accepted is not None, "it was not closed"
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._accept,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ssl.SSLError as error:
            self._failed(error, self.address)
        except OSError:
            pass  # the client hung up, or was too slow
        finally:
            self._pending.places.leave(self)
