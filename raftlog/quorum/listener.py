"""The controller listener: accepts channels, and gives each authenticated one to whom its kind concerns."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Final

from raftlog.base.log import get_logger
from raftlog.quorum.channel import Accepted, Hello, Identity, Kind

log = get_logger("quorum")

MAX_CHANNELS: Final = 2_000
MAX_COMPLAINTS: Final = 1_000
"""Distinct (host, reason) pairs that are logged; then the memory of them starts anew."""

Admit = Callable[[Hello], str | None]


class Listener:
    """One TCP listener. `takers[kind](channel)` gets every open channel; `admit` may refuse an authenticated peer."""

    def __init__(
        self, identity: Identity, *, admit: Admit, takers: Mapping[Kind, Callable[[Accepted], None]]
    ) -> None:
        self._identity = identity
        self._admit = admit
        self._takers = dict(takers)
        self._channels: dict[Accepted, None] = {}
        """In the order in which they came: a set's order would depend on addresses in memory."""
        self._complaints: set[tuple[str, str]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def start(self, where: socket.socket | tuple[str, int]) -> None:
        """Listen on an address or on a socket that is bound already. Raises OSError."""
        loop = asyncio.get_running_loop()
        if isinstance(where, tuple):
            self._server = await loop.create_server(self._protocol, where[0], where[1])
        else:
            self._server = await loop.create_server(self._protocol, sock=where)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for channel in list(self._channels):
            channel.close("this node stops")

    def _protocol(self) -> Accepted:
        channel = Accepted(
            self._identity,
            admit=self._admit,
            on_open=self._opened,
            on_failed=self._failed,
            on_ended=self._forget,
        )
        self._channels[channel] = None
        if len(self._channels) > MAX_CHANNELS:
            asyncio.get_running_loop().call_soon(channel.close, "too many connections")
        return channel

    def _forget(self, channel: Accepted) -> None:
        self._channels.pop(channel, None)

    def _opened(self, channel: Accepted) -> None:
        self._takers[channel.kind](channel)

    def _failed(self, channel: Accepted, reason: str) -> None:
        complaint = (channel.address.rpartition(":")[0], reason)
        if complaint in self._complaints or reason == "closed by the peer":
            return  # a port scan, a probe, or somebody who keeps trying
        if len(self._complaints) >= MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add(complaint)
        log.warning(
            "controller_connection_refused",
            node_id=self._identity.node_id,
            peer=channel.address,
            reason=reason,
        )
