"""The other brokers that this broker follows: a fetcher for each leader of a partition replicated here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from raftlog.base.config.tls import TLS_PROTOCOLS
from raftlog.base.env import Env
from raftlog.base.errors import BrokerNotAvailable
from raftlog.base.types import NO_BROKER, NO_EPOCH
from raftlog.broker.links.peer_auth import ADMIN_HELLO, HELLO, peer_secret, prove_membership
from raftlog.broker.links.peer_channel import PeerChannel
from raftlog.broker.replicas.fetcher import LeaderFetcher
from raftlog.broker.replicas.replication_quota import ReplicationQuota
from raftlog.metadata.image import Endpoint, MetadataImage
from raftlog.replication.follower_progress import NEVER
from raftlog.replication.replica_host import ReplicaId

if TYPE_CHECKING:
    import ssl

    from raftlog.base.config import NodeConfig
    from raftlog.broker.links.tls import PeerTls
    from raftlog.replication.partition import Partition

CONNECT_TIMEOUT = 2.0
"""The timeout to connect to a leader and authenticate, in seconds."""
RESPONSE_OVERHEAD_BYTES = 1 << 20
"""The bytes that a fetch response may hold besides records."""


class LeaderFetchers:
    """Fetchers by leader, and the fetcher of each partition."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        flush: Callable[[Callable[[], None]], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._env = env
        self._config = config
        self._image = image
        self.broker_epoch = broker_epoch
        self.flush = flush
        self._loop = loop
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leaders: dict[Partition, int] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._tls: PeerTls | None = None
        # a first batch may be larger than the limit of the fetch, but it came to its leader in one request
        self._max_frame_bytes = (
            config.replica_fetch_response_max_bytes
            + config.socket_request_max_bytes
            + RESPONSE_OVERHEAD_BYTES
        )
        self.quota = ReplicationQuota(loop.time)
        """The rate at which replicas here may fetch as long as they catch up and are throttled."""
        self.nonce = env.unguessable.randbytes
        """Source of the handshake's nonces."""
        self.on_leader_lost: Callable[[int], None] = _ignore
        self.on_leader_found: Callable[[int], None] = _ignore
        """Called when there is a connection to a leader again, after the last one ended unexpectedly."""

    @property
    def fetchers(self) -> dict[int, LeaderFetcher]:
        """Keyed by leader; for metrics and tests."""
        return self._fetchers

    def follow(self, partition: Partition, leader: int | None) -> None:
        """Fetch this partition from `leader` from now on. With None or NO_BROKER, stop fetching it."""
        before = self._leaders.pop(partition, None)
        if before is not None and before != leader:
            fetcher = self._fetchers[before]
            fetcher.unfollow(partition)
            if not len(fetcher):
                self._drop(before)
        if leader is None or leader == NO_BROKER:
            return
        self._leaders[partition] = leader
        if leader not in self._fetchers:
            self._fetchers[leader] = LeaderFetcher(leader, peers=self, config=self._config, loop=self._loop)
        self._fetchers[leader].follow(partition)

    def heard_of_leader_at(self, partition: Partition) -> float:
        """Return when the leader last answered a fetch of this partition (loop seconds), or -inf."""
        fetcher = self._fetchers.get(self._leaders.get(partition, NO_BROKER))
        return NEVER if fetcher is None else fetcher.heard_at(partition)

    def fetch_soon(self, partition: Partition) -> None:
        """Fetch a partition once more, if it is followed and not paused."""
        fetcher = self._fetchers.get(self._leaders.get(partition, NO_BROKER))
        if fetcher is not None:
            fetcher.fetch_soon(partition)

    def broker_changed(self, broker_id: int) -> None:
        """Retry a broker that registered, moved or was unfenced, without a pause."""
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.leader_changed()

    def reconnect_all(self) -> None:
        """Reconnect, since our own broker epoch changed and leaders must get it on a new connection (KIP-903)."""
        for fetcher in self._fetchers.values():
            fetcher.reconnect()

    def leader_lost(self, leader: int) -> None:
        self.on_leader_lost(leader)

    async def close(self) -> None:
        self._leaders.clear()  # if the disk fails from now on, there are no fetchers to stop
        for leader in tuple(self._fetchers):
            self._drop(leader)
        await asyncio.gather(*self._closing)

    def _drop(self, leader: int) -> None:
        task = self._loop.create_task(self._fetchers.pop(leader).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def connect(
        self, leader: int, *, on_lost: Callable[[Exception | None], None], hello: int = HELLO
    ) -> PeerChannel:
        """Connect to another broker's inter-broker listener and authenticate both sides by the cluster secret."""
        state = self._image().brokers.get(leader)
        endpoint = None if state is None else state.endpoint(self._config.inter_broker_listener_name)
        epoch = self.broker_epoch()
        if endpoint is None or epoch == NO_EPOCH:
            raise BrokerNotAvailable(f"broker {leader} or this broker is not registered")
        channel = PeerChannel(max_frame_bytes=self._max_frame_bytes)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            options = await self.tls_options(endpoint)
            transport, _ = await self._loop.create_connection(
                lambda: channel, endpoint.host, endpoint.port, **options
            )
            try:
                await prove_membership(
                    channel.ask,
                    secret=peer_secret(
                        self._config.cluster_secret, self._image(), shown_certificate(transport)
                    ),
                    own=ReplicaId(self._config.node_id, epoch),
                    server_id=leader,
                    nonce=self.nonce,
                    hello=hello,
                )
                channel.adopt(on_lost)
            except BaseException:
                channel.close()
                raise
        self.on_leader_found(leader)
        return channel

    async def tls_options(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the options with which `create_connection` reaches a listener. Raises ConnectionError."""
        if endpoint.security_protocol not in TLS_PROTOCOLS:
            return {}
        if self._tls is None:
            tls = self._config.tls.get(endpoint.listener)
            if tls is None:
                raise ConnectionError(f"{endpoint.listener} uses TLS, which is not configured on this node")
            from raftlog.broker.links.tls import PeerTls

            self._tls = PeerTls(tls)
        return await self._tls.options(self._env.offload)


def shown_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """Return the certificate of the listener at the other end, in DER; None without TLS."""
    session: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return None if session is None else session.getpeercert(binary_form=True)


async def introduce(
    ask: Callable[[bytes], Awaitable[bytes]],
    config: NodeConfig,
    *,
    image: MetadataImage,
    broker_id: int,
    certificate: bytes | None = None,
) -> None:
    """Introduce a connection of this node's admin API to a broker as such. Raises KafkaError.

    `certificate` is the certificate that the broker presented.
    """
    own = ReplicaId(config.node_id, NO_EPOCH)
    secret = peer_secret(config.cluster_secret, image, certificate)
    await prove_membership(ask, secret=secret, own=own, server_id=broker_id, hello=ADMIN_HELLO)


def _ignore(leader: int) -> None:
    pass
