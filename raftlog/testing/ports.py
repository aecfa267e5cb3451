"""Free ports on loopback that stay ours: held by bound sockets that do not listen, until the cluster is gone.

They are taken from below the ephemeral range. Otherwise a client that connects to a dead node's port could get that
port as its own end, and be connected to itself.
"""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path

from raftlog.base.forks import keep_from_children

LOWEST_PORT = 10_240
LOOPBACK = "127.0.0.1"
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1_000
_IS_HOLDABLE = sys.platform == "linux"
"""Whether a port can be listened on that another socket is bound to. Elsewhere ports are only looked for."""


class HeldPorts:
    """Ports that are not given to others that ask for free ports. A node with SO_REUSEADDR can listen on them."""

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        self.ports: list[int] = []
        chance = random.SystemRandom()
        for _ in range(_TRIES):
            if len(self.ports) == count:
                if not _IS_HOLDABLE:
                    self.release()
                return
            self._hold(chance.randrange(LOWEST_PORT, _first_ephemeral_port()))
        self.release()
        raise OSError(f"found fewer than {count} free ports on {LOOPBACK}")

    def _hold(self, port: int) -> None:
        if _is_listened_on(port):
            return
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((LOOPBACK, port))
        except OSError:
            holder.close()
            return
        keep_from_children(holder)
        self._sockets.append(holder)
        self.ports.append(port)

    def release(self) -> None:
        """Give the ports back."""
        for holder in self._sockets:
            holder.close()


def _is_listened_on(port: int) -> bool:
    """Return whether binding without SO_REUSEADDR fails, which also sees the ports that others hold like this."""
    with socket.socket() as attempt:
        try:
            attempt.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def _first_ephemeral_port() -> int:
    try:
        first = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return first if first > LOWEST_PORT + 1_000 else 32_768
