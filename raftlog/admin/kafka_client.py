"""Kafka requests to any broker of the cluster, answered as objects: over the wire, as every client's.

A connection carries one request at a time, so that no request waits for another's response. A broken connection fails
its request with BrokerUnreachable. The request may have been carried out, so it is not retried.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from struct import Struct
from typing import Any, Final, Protocol, cast

from raftlog.admin.view import Introduce
from raftlog.base.config import NodeConfig
from raftlog.base.errors import KafkaError
from raftlog.base.guard import Guard
from raftlog.base.log import get_logger
from raftlog.metadata.image import Endpoint, MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.security.acls import ADMIN_CLIENT

CONNECT_S: Final = 2.0
ANSWER_S: Final = 15.0
MOST_BYTES: Final = 64 << 20
"""An answer larger than this is refused, and its connection closed."""
MOST_AT_ONCE: Final = 32
"""Requests to one broker, each on a connection of its own; more wait."""
MOST_IDLE: Final = 4
"""Connections to one broker that are kept for the next request; after a burst the others are closed."""

VERSIONS: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_QUORUM: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
}
"""The version used of each API: flexible, and with topics by name."""

_LENGTH = Struct(">i")
_PREFIX: Final = _LENGTH.size

log = get_logger("admin")


class BrokerUnreachable(Exception):
    """No broker answered; the message says which and why."""


def shapes(api_key: int) -> Any:
    """Return builders of an API's request in the version used here."""
    return request_builders(api_key, VERSIONS[api_key])


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
        turns = nullcontext() if at_once else self._turns.setdefault(target, asyncio.Semaphore(MOST_AT_ONCE))
        try:
            async with asyncio.timeout(ANSWER_S), turns:
                return await self._ask_alone(target, api_key, message, by)
        except TimeoutError:
            raise BrokerUnreachable(f"broker {target} did not answer within {ANSWER_S:.0f} s") from None

    async def _ask_alone(self, broker_id: int, api_key: int, message: Any, by: str) -> Any:
        wire = await self._wire(broker_id)
        self._busy.add(wire)
        try:
            answer = await wire.ask(api_key, message, by)
        except BaseException:
            wire.close()  # an unawaited response would be taken for the next
            raise
        finally:
            self._busy.discard(wire)
        idle = self._idle[broker_id]
        if len(idle) < MOST_IDLE:
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
        raise BrokerUnreachable("no broker is alive, as far as this node knows")

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


class _Wire(asyncio.Protocol, Guard):
    """One connection. A failure over a broker's bytes costs this connection only."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.closed = False
        self._number = 0
        self._buffer = bytearray()
        self._waiting: deque[tuple[int | None, asyncio.Future[Any]]] = deque()
        """With the API of each response, None for a raw response."""
        self._transport: asyncio.Transport | None = None

    def ask(self, api_key: int, message: Any, by: str = "") -> asyncio.Future[Any]:
        """Send a request; the future is its response, or BrokerUnreachable."""
        self._number += 1
        header = RequestHeader(api_key, VERSIONS[api_key], self._number, f"{ADMIN_CLIENT} {by}".strip())
        return self._send(encode_request(header, message), api_key)

    def exchange(self, frame: bytes) -> asyncio.Future[bytes]:
        """Send a whole frame; the future is the response's frame without its length, or BrokerUnreachable."""
        return self._send(frame, None)

    def _send(self, frame: bytes, api_key: int | None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            answer.set_exception(self._lost())
            return answer
        try:
            self._transport.write(frame)
        except RuntimeError:  # uvloop closed it silently
            answer.set_exception(self._lost())
            self.connection_lost(None)
            return answer
        self._waiting.append((api_key, answer))
        return answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        self.close()

    def crash(self, what: str) -> None:
        self.close()
        log.exception("admin_wire_crashed", what=what, broker_id=self._broker_id)

    def _lost(self) -> BrokerUnreachable:
        return BrokerUnreachable(f"broker {self._broker_id} closed the connection")

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._buffer += data
            self._take_answers()
        except Exception:
            self.crash("data_received")

    def _take_answers(self) -> None:
        while len(self._buffer) >= _PREFIX:
            size = _LENGTH.unpack_from(self._buffer)[0]
            if not 0 < size <= MOST_BYTES or not self._waiting:
                self.close()
                return
            if len(self._buffer) < _PREFIX + size:
                return
            frame = memoryview(bytes(self._buffer[_PREFIX : _PREFIX + size]))
            del self._buffer[: _PREFIX + size]
            self._answer(frame)

    def _answer(self, frame: memoryview) -> None:
        api_key, answer = self._waiting.popleft()
        if answer.done():
            return
        if api_key is None:
            answer.set_result(bytes(frame))
            return
        try:
            answer.set_result(decode_response(api_key, VERSIONS[api_key], frame)[1])
        except Exception as error:
            answer.set_exception(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        self.run_guarded(self._fail_waiting)

    def _fail_waiting(self) -> None:
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(self._lost())
