"""The controller listener: accepts channels, and passes each authenticated channel to the taker of its kind.

Kafka clients (KIP-919) leave with their first bytes: `on_kafka` serves them, and limits them.

Unauthenticated connections share a few places for the time of a handshake at most, and the newest is always accepted. A
node that knows the secret leaves these places with the handshake, so strangers keep no node out.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from raftlog.base.listening import check_listening
from raftlog.base.log import get_logger
from raftlog.base.places import NodeMachines, Places
from raftlog.quorum.channel import HUNG_UP, Identity, InboundChannel, OnKafkaClient
from raftlog.quorum.handshake_messages import ChannelKind, Hello, why_too_old

log = get_logger("quorum")

MAX_UNAUTHENTICATED: Final = 256
"""Connections before the end of their handshake. One more closes the oldest of the address with the most
connections.
"""

MAX_CONNECTIONS_PER_NODE: Final = 8
"""Connections of one node for one purpose. One more closes the oldest: a node needs a single connection, and a few
while it redials.
"""

MAX_LOGGED_REFUSALS: Final = 1_000
"""Distinct (host, reason) pairs that are logged; then the set is cleared."""

Admit = Callable[[Hello], str | None]

Secure = Callable[[Callable[[], asyncio.BaseProtocol]], Callable[[], asyncio.BaseProtocol]]
"""Return a protocol factory that puts TLS before the protocols of another factory."""


def without_tls(accept: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.BaseProtocol]:
    """Return a protocol factory as it is."""
    return accept


class Listener:
    """One TCP listener. `takers[kind](channel)` gets every open channel; `admit` may refuse an authenticated peer."""

    def __init__(
        self,
        identity: Identity,
        *,
        admit: Admit,
        takers: Mapping[ChannelKind, Callable[[InboundChannel], None]],
        on_kafka: OnKafkaClient | None = None,
        nodes: NodeMachines | None = None,
    ) -> None:
        """`nodes`: the addresses of authenticated nodes, which have places of their own."""
        self._identity = identity
        self._admit = admit
        self._on_kafka = on_kafka
        self._takers = dict(takers)
        self._nodes = NodeMachines() if nodes is None else nodes
        self._unproven: Places[InboundChannel] = Places(MAX_UNAUTHENTICATED, _displace, nodes=self._nodes)
        self._proven: dict[tuple[int, ChannelKind], dict[InboundChannel, None]] = {}
        self._complaints: set[tuple[str, str]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def start(self, where: socket.socket | tuple[str, int], secure: Secure = without_tls) -> None:
        """Listen on an address or on a socket that is bound already. Raises OSError."""
        loop, accept = asyncio.get_running_loop(), secure(self._protocol)
        if isinstance(where, tuple):
            self._server = await loop.create_server(accept, where[0], where[1])
        else:
            self._server = await loop.create_server(accept, sock=where)
        check_listening(self._server)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for channel in [*self._unproven, *chain.from_iterable(self._proven.values())]:
            channel.close("this node stops")

    def close_too_old(self) -> None:
        """Close the connections of nodes that do not support the cluster's present level."""
        for channel in [*chain.from_iterable(self._proven.values())]:
            reason = why_too_old(self._identity.levels, channel.peer_id, channel.peer_levels)
            if reason is not None:
                channel.close(reason)

    def close_nodes(self, reason: str) -> None:
        """Close the connections of all other nodes."""
        for channel in [*chain.from_iterable(self._proven.values())]:
            channel.close(reason)

    def _protocol(self) -> InboundChannel:
        channel = InboundChannel(
            self._identity,
            admit=self._admit,
            on_made=self._made,
            on_open=self._opened,
            on_failed=self._failed,
            on_ended=self._forget,
        )
        channel.on_kafka = self._on_kafka
        return channel

    def _made(self, channel: InboundChannel) -> None:
        self._unproven.enter(channel, _host(channel))

    def _opened(self, channel: InboundChannel) -> None:
        self._unproven.leave(channel)
        self._nodes.add(_host(channel))
        alike = self._proven.setdefault((channel.peer_id, channel.kind), {})
        alike[channel] = None
        if len(alike) > MAX_CONNECTIONS_PER_NODE:
            oldest = next(iter(alike))
            del alike[oldest]
            oldest.close(
                f"node {channel.peer_id} has {MAX_CONNECTIONS_PER_NODE} newer connections of its kind"
            )
        self._takers[channel.kind](channel)

    def _forget(self, channel: InboundChannel) -> None:
        self._unproven.leave(channel)
        alike = self._proven.get((channel.peer_id, channel.kind), {})
        alike.pop(channel, None)
        if not alike:
            self._proven.pop((channel.peer_id, channel.kind), None)

    def _failed(self, channel: InboundChannel, reason: str) -> None:
        complaint = (_host(channel), reason)
        if complaint in self._complaints or reason == HUNG_UP:
            return  # a port scan, a probe, or a repeated attempt
        if len(self._complaints) >= MAX_LOGGED_REFUSALS:
            self._complaints.clear()
        self._complaints.add(complaint)
        log.warning(
            "controller_connection_refused",
            node_id=self._identity.node_id,
            address=channel.address,
            reason=reason,
        )


def _displace(channel: InboundChannel) -> None:
    channel.close("its place was needed for a newer connection")


def _host(channel: InboundChannel) -> str:
    return channel.address.rpartition(":")[0]
