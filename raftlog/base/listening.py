"""Checks that a server listens: uvloop closes the socket silently if a port was taken between bind and listen."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any, Protocol

CLOSED = -1


class _Server(Protocol):
    """An asyncio server."""

    @property
    def sockets(self) -> Iterable[Any]: ...

    def close(self) -> None: ...


def check_listening(server: _Server) -> None:
    """Raise OSError, as asyncio's own loop does, if a server that should listen does not."""
    sockets = tuple(server.sockets)
    if any(each is None or each.fileno() == CLOSED for each in sockets):
        server.close()
        raise OSError(errno.EADDRINUSE, "Address already in use")
