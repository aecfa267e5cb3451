"""The surroundings of request handlers: the parts of one broker, and the shape of one request. No behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from raftlog.base.env import Env
from raftlog.broker.client_telemetry import ClientTelemetry
from raftlog.metadata.controller_api import Reply, Request
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig
    from raftlog.broker.coordination.group_coordinators import GroupCoordinators
    from raftlog.broker.coordination.transaction_coordinators import TransactionCoordinators
    from raftlog.broker.coordination.transaction_verification import TransactionVerifier
    from raftlog.broker.handlers.metadata_view import MetadataViews
    from raftlog.broker.links.broker_links import BrokerLinks
    from raftlog.broker.network.connection import Connection
    from raftlog.broker.producer_ids import ProducerIds
    from raftlog.broker.replicas.replicas import Replicas
    from raftlog.broker.unreachable_brokers import UnreachableBrokers


class Submit(Protocol):
    """Ask the active controller, wherever it is. Raises KafkaError (retriable when no majority answers in time)."""

    def __call__(self, request: Request, *, timeout: float | None = None) -> Awaitable[Reply]: ...


@dataclass(slots=True)
class BrokerContext:
    """One broker, as its handlers see it. `image()` is the newest published metadata image."""

    env: Env
    config: NodeConfig
    image: Callable[[], MetadataImage]
    submit: Submit
    replicas: Replicas
    groups: GroupCoordinators = field(init=False)
    """Set by the broker, as the next ones; nodes that are no brokers have none, and serve no API that asks them."""
    transactions: TransactionCoordinators = field(init=False)
    links: BrokerLinks = field(init=False)
    """Asks other brokers on authenticated connections (and this one itself)."""
    confirmations: TransactionVerifier | None = None
    """The questions to transactions' coordinators that wait; made when there is something to ask."""
    broker_epoch: Callable[[], int] = lambda: -1
    in_touch: Callable[[int], bool] = lambda _controller_id: True
    """Whether the controller that the image names is still the active one, and within reach."""
    producer_ids: ProducerIds | None = None
    """Set by the broker server."""
    absences: UnreachableBrokers | None = None
    """The brokers that are gone as far as this one can tell; None: it cannot."""
    telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    """The metrics that clients push of themselves."""
    metadata_views: MetadataViews | None = None
    """The responses that handlers.metadata keeps encoded between requests."""
    image_waiters: dict[asyncio.Future[None], Callable[[MetadataImage], bool]] = field(default_factory=dict)
    """Requests that wait for an image, each with its condition; see `controller_requests.wait_for_image`."""
    time_searches: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while logs are searched by time, in one thread of `env.offload`: the others are for syncs."""


@dataclass(slots=True, frozen=True)
class RequestContext:
    """The sender of a request, and its header. `peer_broker_id` is set only on connections that proved the cluster
    secret.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    peer_host: str
    peer_broker_id: int | None = None
    connection: Connection | None = None
    """The connection that it came on; None: this broker asks itself, and cancels what it gives up."""
    to_controller: bool = False
    """Whether it came to the controller's listener (KIP-919)."""

    @property
    def client(self) -> Connection:
        """The connection of a request that came on one."""
        assert self.connection is not None
        return self.connection

    @property
    def is_awaited(self) -> bool:
        """Whether whoever asked may still hear the answer. One that gave up may have asked again elsewhere."""
        return self.connection is None or self.connection.is_open


Handler = Callable[[BrokerContext, RequestContext, Any], Any | asyncio.Future[Any] | Awaitable[Any]]
"""(broker, request, decoded kio message) → kio response, or an awaitable of one, or None for no response at all."""
