"""Kafka requests to any broker of the cluster, answered as objects: over the wire, as every client's.

A connection carries one request at a time, so that no request waits for another's response. A broken connection fails
its request with BrokerUnreachable. The request may have been carried out, so it is not retried.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final, Protocol

from raftlog.admin.view import Introduce
from raftlog.base.config import NodeConfig
from raftlog.base.errors import KafkaError
from raftlog.base.log import get_logger
from raftlog.metadata.image import Endpoint, MetadataImage
from raftlog.protocol.asyncio_connection import AsyncioConnection
from raftlog.protocol.client_versions import VERSIONS
from raftlog.security.acls import ADMIN_CLIENT

CONNECT_S: Final = 2.0
ANSWER_S: Final = 15.0
MAX_CONCURRENT: Final = 32
"""Requests to one broker, each on a connection of its own; more wait."""
MAX_IDLE: Final = 4
"""Connections to one broker that are kept for the next request; after a burst the others are closed."""

log = get_logger("admin")


class BrokerUnreachable(Exception):
    """No broker answered; the message says which and why."""


class Asker:
    """Sends requests to brokers by their ids. Connections are opened when needed, and kept for the next request."""

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        introduce: Introduce | None = None,
        tls_options: Callable[[Endpoint], Awaitable[dict[str, Any]]] | None = None,
    ) -> None:
        self._config = config
        self._image = image
        self._introduce = introduce
        self._tls_options = tls_options
        self._closed = False
        self._idle: defaultdict[int, list[_Wire]] = defaultdict(list)
        self._busy: set[_Wire] = set()
        self._turns: dict[int, asyncio.Semaphore] = {}

    async def ask(
        self,
        api_key: int,
        message: Any,
        *,
        broker_id: int | None = None,
        at_once: bool = False,
        by: str = "",
    ) -> Any:
        """Return a broker's response; by default this node's, else any other broker's. Raise BrokerUnreachable.

        `at_once`: skip the queue, to check whether the broker answers. `by`: the represented client.
        """
        target = self._anyone() if broker_id is None else broker_id
        turns = (
            nullcontext() if at_once else self._turns.setdefault(target, asyncio.Semaphore(MAX_CONCURRENT))
        )
        try:
            async with asyncio.timeout(ANSWER_S), turns:
                return await self._ask_alone(target, api_key, message, by)
        except TimeoutError:
            raise BrokerUnreachable(f"broker {target} did not answer within {ANSWER_S:.0f} s") from None

    async def _ask_alone(self, broker_id: int, api_key: int, message: Any, by: str) -> Any:
        wire = await self._wire(broker_id)
        self._busy.add(wire)
        try:
            answer = await wire.ask(
                api_key, VERSIONS[api_key], message, client_id=f"{ADMIN_CLIENT} {by}".strip()
            )
        except BaseException:
            wire.close()  # an unawaited response would be taken for the next
            raise
        finally:
            self._busy.discard(wire)
        idle = self._idle[broker_id]
        if len(idle) < MAX_IDLE:
            idle.append(wire)
        else:
            wire.close()
        return answer

    def close(self) -> None:
        """Fail all pending and further requests."""
        self._closed = True
        for wire in (*self._busy, *(each for idle in self._idle.values() for each in idle)):
            wire.close()

    def _anyone(self) -> int:
        brokers = self._image().brokers
        own = brokers.get(self._config.node_id)
        if own is not None and not own.fenced:
            return own.broker_id
        live = [broker_id for broker_id, each in brokers.items() if not each.fenced]
        if live:
            return min(live)
        if own is not None:
            return own.broker_id
        raise BrokerUnreachable("this node's metadata has no available broker")

    async def _wire(self, broker_id: int) -> _Wire:
        idle = self._idle[broker_id]
        while idle:
            wire = idle.pop()
            if not wire.closed:
                return wire
        wire = await self._connect(broker_id)
        if self._closed:
            wire.close()
            raise BrokerUnreachable("this node is stopping")
        return wire

    async def _connect(self, broker_id: int) -> _Wire:
        state = self._image().brokers.get(broker_id)
        endpoint = None if state is None else state.endpoint(self._config.inter_broker_listener_name)
        if endpoint is None:
            raise BrokerUnreachable(f"broker {broker_id} is not registered")
        wire = _Wire(broker_id)
        try:
            async with asyncio.timeout(CONNECT_S):
                options = {} if self._tls_options is None else await self._tls_options(endpoint)
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: wire, endpoint.host, endpoint.port, **options
                )
                session = transport.get_extra_info("ssl_object")
                certificate = None if session is None else session.getpeercert(binary_form=True)
                if self._introduce is not None:
                    await self._introduce(wire.exchange, broker_id=broker_id, certificate=certificate)
        except (OSError, TimeoutError, ValueError, KafkaError, BrokerUnreachable) as error:
            wire.close()
            where = f"broker {broker_id} at {endpoint.host}:{endpoint.port}"
            raise BrokerUnreachable(f"{where}: {error or 'no answer'}") from None
        return wire


class Asks(Protocol):
    """Asks brokers; see Asker."""

    async def ask(
        self, api_key: int, message: Any, *, broker_id: int | None = None, at_once: bool = False
    ) -> Any: ...


class AskerFor:
    """An Asker on behalf of a client, which the history of the metadata records for changes."""

    def __init__(self, asker: Asker, by: str) -> None:
        self._asker = asker
        self._by = by

    async def ask(
        self, api_key: int, message: Any, *, broker_id: int | None = None, at_once: bool = False
    ) -> Any:
        """Return a broker's response, as `Asker.ask` does."""
        return await self._asker.ask(api_key, message, broker_id=broker_id, at_once=at_once, by=self._by)


class _Wire(AsyncioConnection):
    """One connection. A failure over a broker's bytes costs this connection only."""

    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def crash(self, what: str) -> None:
        self.close()
        log.exception("admin_wire_crashed", what=what, broker_id=self._broker_id)

    def lost(self) -> BrokerUnreachable:
        return BrokerUnreachable(f"broker {self._broker_id} closed the connection")
