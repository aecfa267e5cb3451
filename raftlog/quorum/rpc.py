"""Requests and responses by number over one channel: bytes to the active controller, bytes or a wire error back."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from raftlog.base.errors import (
    InvalidRequest,
    KafkaError,
    NotController,
    RequestTimedOut,
    UnknownServerError,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.quorum.channel import MAX_FRAME_BYTES, Channel

log = get_logger("quorum")

OnRequest = Callable[[bytes, int], Awaitable[bytes]]
"""(payload, id of the requesting node) → payload of the response. A KafkaError travels as its code and message."""

MAX_IN_FLIGHT_REQUESTS: Final = 1_000
"""Requests of one connection being worked on."""

MAX_REQUEST_BYTES: Final = MAX_FRAME_BYTES - 1024
"""The maximum size of a request, and of a response."""

_REQUEST: Final = struct.Struct(">Q")
_RESPONSE: Final = struct.Struct(">Qhi")  # number, error code, leader's id
_OK: Final = 0
_UNKNOWN: Final = -1


class ConnectionLost(Exception):
    """The channel broke before the response: the request may or may not have been carried out."""


class NotActiveController(Exception):
    """The node is not the active controller; `leader_id` is the leader that it knows."""

    def __init__(self, leader_id: int | None) -> None:
        super().__init__(f"the active controller is node {leader_id}")
        self.leader_id = leader_id


class RpcClient:
    """The client end of a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._number = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        channel.attach(self._take, self._lost)

    @property
    def usable(self) -> bool:
        return self._channel.opened and self._channel.close_reason is None

    async def call(self, payload: bytes) -> bytes:
        """Raise NotActiveController, ConnectionLost, or the KafkaError of the response; cancel it to stop waiting."""
        if not self.usable:
            raise ConnectionLost(self._channel.close_reason)
        if len(payload) > MAX_REQUEST_BYTES:
            raise InvalidRequest(
                f"{len(payload)} bytes for the controller are over the limit of {MAX_REQUEST_BYTES}"
            )
        loop = asyncio.get_running_loop()
        self._number += 1
        number, future, asked_at = self._number, loop.create_future(), loop.time()
        self._waiting[number] = future
        self._channel.send(_REQUEST.pack(number) + payload)
        try:
            return await future  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if self._channel.last_received_at < asked_at:
                self._channel.close("no answer")  # the peer may be gone: dial again next time
            raise
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        self._channel.close("not needed any more")

    def _take(self, frame: bytes) -> None:
        if len(frame) < _RESPONSE.size:
            self._channel.close("a response that is none")
            return
        number, code, leader = _RESPONSE.unpack_from(frame)
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        rest = frame[_RESPONSE.size :]
        if code == _OK:
            future.set_result(rest)
        elif code == NotController.code:
            future.set_exception(NotActiveController(None if leader == _UNKNOWN else leader))
        else:
            future.set_exception(from_code(code, rest.decode(errors="replace") or None))

    def _lost(self, reason: str) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost(reason))
        self._waiting.clear()


class RpcServer:
    """The server end of a channel. `leader()` is (leads here, leader's id). Requests under way outlive the channel."""

    def __init__(
        self,
        channel: Channel,
        *,
        on_request: OnRequest,
        leader: Callable[[], tuple[bool, int | None]],
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel = channel
        self._on_request = on_request
        self._leader = leader
        self._tasks: set[asyncio.Task[None]] = set()
        channel.attach(self._take, lambda _reason: on_lost())

    def _take(self, frame: bytes) -> None:
        if len(frame) < _REQUEST.size:
            self._channel.close("a request that is none")
            return
        (number,) = _REQUEST.unpack_from(frame)
        leads, _ = self._leader()
        if not leads:
            self._answer_error(number, NotController())
        elif len(self._tasks) >= MAX_IN_FLIGHT_REQUESTS:
            self._answer_error(number, RequestTimedOut("too many requests wait on this connection"))
        else:
            work = self._work(number, frame[_REQUEST.size :])
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, number: int, payload: bytes) -> None:
        try:
            answer = await self._on_request(payload, self._channel.peer_id)
            if len(answer) > MAX_REQUEST_BYTES:
                raise UnknownServerError(
                    f"an answer of {len(answer)} bytes is over the limit of {MAX_REQUEST_BYTES}"
                )
        except KafkaError as error:
            self._answer_error(number, error)
        except Exception as error:
            self._answer_error(number, UnknownServerError())
            log.error("controller_request_failed", peer_id=self._channel.peer_id, exc_info=error)
        else:
            self._channel.send(_RESPONSE.pack(number, _OK, _UNKNOWN) + answer)

    def _answer_error(self, number: int, error: KafkaError) -> None:
        _, leader = self._leader()
        head = _RESPONSE.pack(number, error.code, _UNKNOWN if leader is None else leader)
        self._channel.send(head + (error.message or "").encode())
