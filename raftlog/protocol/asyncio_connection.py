"""A client's connection on the running loop: each request has a future for its response.

Responses arrive in the order of the requests. A broken connection fails every pending request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from raftlog.base.guard import Guard
from raftlog.protocol.conversation import Conversation, ConversationLost, Decode, Encode

LOST: Final = "the broker closed the connection"


class AsyncioConnection(asyncio.Protocol, Guard):
    """A connection to a broker. `closed` is True once it is lost.

    Subclasses say how a lost connection fails a request (`lost`), and implement `crash`.
    """

    def __init__(self) -> None:
        self.closed = False
        self._conversation = Conversation()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None

    def ask(self, api_key: int, version: int, message: Any, *, client_id: str) -> asyncio.Future[Any]:
        """Send a request now; the future is its response, or what `lost` returns."""
        request = self._conversation.request
        return self._send(lambda: request(api_key, version, message, client_id=client_id))

    def ask_by(self, encode: Encode, decode: Decode) -> asyncio.Future[Any]:
        """Send the frame that `encode` makes of a correlation id; the future is what `decode` makes of the response."""
        return self._send(lambda: self._conversation.request_by(encode, decode))

    def exchange(self, frame: bytes) -> asyncio.Future[bytes]:
        """Send a whole frame; the future is the response's frame without its length."""

        def expect_frame() -> bytes:
            self._conversation.expect_frame()
            return frame

        return self._send(expect_frame)

    def close(self) -> None:
        """Close the connection at once. `connection_lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        self.close()

    def lost(self) -> Exception:
        """Return the exception of a request whose connection is lost."""
        return ConnectionResetError(LOST)

    def _send(self, encode: Callable[[], bytes]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._fail(answer)
            return answer
        frame = encode()
        self._waiting.append(answer)
        try:
            self._transport.write(frame)
        except RuntimeError:  # uvloop closed it without a notification
            self.connection_lost(None)
        return answer

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self.receive_bytes(data)
        except ConversationLost:
            self.close()
        except Exception:
            self.crash("data_received")

    def receive_bytes(self, data: bytes) -> None:
        """Set the futures of the responses that are complete with these bytes. Raise ConversationLost."""
        for response in self._conversation.receive(data):
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        self.run_guarded(self._fail_waiting)

    def _fail_waiting(self) -> None:
        while self._waiting:
            self._fail(self._waiting.popleft())

    def _fail(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_exception(self.lost())
            answer.exception()  # the caller may have given up
