"""One broker as its coordinators and links see it: settings, metadata, replicas, and links to other brokers.

It has no behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftlog.base.env import Env
from raftlog.metadata.controller_api import Submit
from raftlog.metadata.image import MetadataImage

if TYPE_CHECKING:
    from raftlog.base.config import NodeConfig
    from raftlog.broker.controller_session import ControllerSession
    from raftlog.broker.links.broker_links import BrokerLinks
    from raftlog.broker.producer_ids import ProducerIds
    from raftlog.broker.replicas.replicas import Replicas
    from raftlog.broker.unreachable_brokers import UnreachableBrokers
    from raftlog.security.authorizer import Authorizer


@dataclass(slots=True)
class LocalBroker:
    """The parts of one broker. `image()` is the newest published metadata image."""

    env: Env
    config: NodeConfig
    image: Callable[[], MetadataImage]
    submit: Submit
    replicas: Replicas
    links: BrokerLinks = field(init=False)
    """Sends requests to other brokers, and to this broker itself. A node that is not a broker has none, and serves no
    API that needs it."""
    broker_epoch: Callable[[], int] = lambda: -1
    in_touch: Callable[[int], bool] = lambda _controller_id: True
    """Returns whether the controller in the image is still the active controller, and reachable."""
    voters: Callable[[], Mapping[int, tuple[str, int]]] = dict
    """Returns the addresses of the present voters of the metadata; none: the config's."""
    authorizer: Authorizer | None = None
    """The ACLs in force; None allows everything."""
    producer_ids: ProducerIds | None = None
    """Set by the broker server."""
    absences: UnreachableBrokers | None = None
    """The brokers that seem unreachable from here, or None where that is unknown."""
    session: ControllerSession | None = None
    """Whether the controller receives this broker's heartbeats; None if that is not tracked."""
    silent_members: frozenset[int] = frozenset()
    """ISR members and eligible leaders that are silent: they may have become leaders of our partitions without our
    knowledge. Empty while our session with the controller lasts."""
    time_searches: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while logs are searched by time, in one thread of `env.offload`: the others are for syncs."""
    leaderships_made: asyncio.Event | None = None
    """Set while this broker has every replica that it leads; None for a node without replicas. See
    `wait_for_leaders`."""
    image_waiters: dict[asyncio.Future[None], Callable[[MetadataImage], bool]] = field(default_factory=dict)
    """Requests that wait for an image, each with its condition; see `controller_requests.wait_for_image`."""
    check_by_schemas: Callable[..., Awaitable[None]] | None = None
    """Checks a batch by the schema registry (`SchemaCheck.check`). Set by the broker's context."""
