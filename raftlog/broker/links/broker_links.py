"""Broker-to-broker requests: one Kafka request and its response, on connections authenticated by the cluster secret.

These connections carry no replication, so they neither end a follower's connection nor count as one. Each API has its
own connection to each broker, and a second one for slow requests. So a response that waits for a commit delays only
requests of its own kind. A new connection closes the previous connection of its kind, so a request sent on the old one
can no longer take effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import GeneratorType
from typing import Any, Final, NamedTuple, Protocol

from raftlog.base.env import Env
from raftlog.base.errors import BrokerNotAvailable, KafkaError, RequestTimedOut
from raftlog.base.log import get_logger
from raftlog.broker.links.peer_auth import FIRST_ASKING_HELLO, FIRST_SLOW_HELLO
from raftlog.broker.links.peer_channel import PeerChannel
from raftlog.broker.long_work.turns import decoded
from raftlog.protocol.codec import (
    RequestHeader,
    decode_response,
    decode_response_incrementally,
    encode_request,
)
from raftlog.protocol.conversation import InFlightRequests

ANSWER_S: Final = 10.0
"""Default timeout for a response, in seconds."""

PAUSE_S: Final = 0.1
"""After a failure to connect, requests fail immediately for this many seconds."""

LARGE_BYTES: Final = 64 * 1024
"""A larger response is decoded in turns: all transactional ids of a broker take a third of a second."""

CLIENT_ID: Final = "raftlog"

log = get_logger(__name__)


class Connect(Protocol):
    """Open an authenticated connection. Raises OSError, TimeoutError or KafkaError."""

    def __call__(
        self, leader: int, *, on_lost: Callable[[Exception | None], None], hello: int
    ) -> Awaitable[PeerChannel]: ...


ServeOwn = Callable[[int, int, Any], Awaitable[Any]]
"""(API key, version, decoded request) → decoded response."""


class LinkKey(NamedTuple):
    """One of the two links that an API can have to a broker. On the second, slow requests delay only each other."""

    broker_id: int
    is_slow: bool = False


class BrokerLinks:
    """Connects on the first request, and reconnects on the first request after a connection was lost."""

    def __init__(self, env: Env, node_id: int, connect: Connect, serve_own: ServeOwn) -> None:
        """`serve_own` handles this broker's requests to itself, see `dispatch.serve_own`."""
        self._env = env
        self._node_id = node_id
        self._connect = connect
        self._serve_own = serve_own
        self._links: dict[tuple[int, int, bool], _Link] = {}

    async def ask(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        message: Any,
        *,
        timeout_s: float = ANSWER_S,
        is_slow: bool = False,
    ) -> Any:
        """Return the decoded response.

        Raises BrokerNotAvailable, or RequestTimedOut, after which the request may have been carried out.

        A request to this broker itself needs no connection, and raises what its handler raises. An unanswered request
        on the `is_slow` connection may still take effect until another request is sent on that connection. Only a
        KafkaError is raised, whatever the other broker sends and wherever a local handler fails.
        """
        key = broker_id, api_key, is_slow
        try:
            async with asyncio.timeout(timeout_s):
                if broker_id == self._node_id:
                    return await self._serve_own(api_key, version, message)
                link = self._links.get(key)
                if link is None:
                    hello = (FIRST_SLOW_HELLO if is_slow else FIRST_ASKING_HELLO) + api_key
                    link = self._links[key] = _Link(broker_id, hello, self._connect, self._env)
                return await link.ask(api_key, version, message)
        except TimeoutError:
            link = self._links.get(key)
            if link is not None:
                link.hang_up()
            raise RequestTimedOut(f"broker {broker_id} did not answer within {timeout_s:g} s") from None

    def close(self) -> None:
        """Close all connections. Pending requests raise BrokerNotAvailable."""
        for link in self._links.values():
            link.hang_up()


class _Link:
    """One connection to one broker for one kind of request, as long as it lasts."""

    def __init__(self, broker_id: int, hello: int, connect: Connect, env: Env) -> None:
        self._broker_id = broker_id
        self._env = env
        self._hello = hello
        self._connect = connect
        self._channel: PeerChannel | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._paused_until = 0.0
        self._requests = InFlightRequests()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        """The futures of the responses that are due on this connection, in the order of their requests."""

    async def ask(self, api_key: int, version: int, message: Any) -> Any:
        channel = await self._connected()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        frame = self._requests.request_by(
            lambda number: encode_request(RequestHeader(api_key, version, number, CLIENT_ID), message),
            partial(_decode, api_key, version),
        )
        self._waiting.append(answer)
        channel.send(frame)
        found = await answer
        if type(found) is not GeneratorType:
            return found
        try:
            return await decoded(self._env, found)
        except Exception as error:
            self.hang_up()
            raise self._unreadable(error) from error

    def hang_up(self) -> None:
        """Close this connection, which may be silent for ever, and start again with a new one."""
        if self._channel is not None:
            self._channel.close()

    async def _connected(self) -> PeerChannel:
        loop = asyncio.get_running_loop()
        if self._channel is None:
            if loop.time() < self._paused_until:
                raise BrokerNotAvailable(f"broker {self._broker_id} was unreachable a moment ago")
            if self._connecting is None:
                self._connecting = loop.create_task(self._open())
            await asyncio.shield(self._connecting)
        if self._channel is None:
            raise BrokerNotAvailable(f"broker {self._broker_id} cannot be reached")
        return self._channel

    async def _open(self) -> None:
        try:
            channel = await self._connect(self._broker_id, on_lost=self._lost, hello=self._hello)
            channel.on_frame = self._answered
            self._requests = InFlightRequests()
            self._channel = channel
        except Exception as error:
            self._paused_until = asyncio.get_running_loop().time() + PAUSE_S
            if not isinstance(error, OSError | KafkaError | TimeoutError):
                log.exception("peer_not_connected", broker_id=self._broker_id)
        finally:
            self._connecting = None

    def _answered(self, frame: memoryview) -> None:
        try:
            found = self._requests.response_in(frame)
        except Exception as error:
            self._fail_waiting(self._unreadable(error))
            self.hang_up()
            return
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(found)

    def _unreadable(self, error: Exception) -> BrokerNotAvailable:
        return BrokerNotAvailable(f"broker {self._broker_id} answered what cannot be read: {error}")

    def _lost(self, error: Exception | None) -> None:
        self._channel = None
        self._fail_waiting(BrokerNotAvailable(f"the connection to broker {self._broker_id} was lost"))

    def _fail_waiting(self, error: BrokerNotAvailable) -> None:
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(BrokerNotAvailable(error.message))


def _decode(api_key: int, version: int, frame: memoryview) -> Any:
    """Return the response in a frame. A large response is returned as a generator that decodes it."""
    if len(frame) > LARGE_BYTES:
        return decode_response_incrementally(api_key, version, memoryview(bytes(frame)))
    return decode_response(api_key, version, frame)[1]
