"""The client's side of one connection, without a socket: requests become bytes, and bytes become responses.

A broker answers the requests of a connection in the order in which they were sent. Responses are matched with pending
requests in that order, and each correlation id is checked. An error here means that the position in the stream is lost:
the connection must close.

A socket writes what it receives to `Conversation.get_buffer()` and calls `received`, or passes bytes to `receive`. A
connection with a `FrameBuffer` of its own passes each frame to `InFlightRequests.response_in`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from raftlog.base.errors import InvalidRequest
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.frames import FrameBuffer, FramingLost

MAX_RESPONSE_BYTES: Final = 64 << 20
"""A longer response is refused."""
NO_RESPONSE: Final = "the answer is none of Kafka's protocol"

Encode = Callable[[int], bytes]
"""Returns the frame of a request with this correlation id."""
Decode = Callable[[memoryview], Any]
"""Returns the response in a frame without its length. The frame is valid only during the call."""

_CORRELATION_ID: Final = Struct(">i")
_LAST_CORRELATION_ID: Final = 0x7FFF_FFFF


class ConversationLost(ConnectionError):
    """The other end does not speak Kafka's protocol, or answers what was not asked."""


class _Pending(NamedTuple):
    """A request without a response yet; `correlation_id` None: its response is no message of Kafka's."""

    decode: Decode
    correlation_id: int | None


class InFlightRequests:
    """The requests of one connection that have no response yet, as NetworkClient's class of this name."""

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0

    def request(
        self, api_key: int, version: int, message: Any, *, client_id: str | None, is_answered: bool = True
    ) -> bytes:
        """Return the frame of a request. `is_answered`: False for a Produce with acks=0, which has no response."""
        return self.request_by(
            lambda number: encode_request(RequestHeader(api_key, version, number, client_id), message),
            partial(_decode_message, api_key, version) if is_answered else None,
        )

    def request_by(self, encode: Encode, decode: Decode | None) -> bytes:
        """Return the frame that `encode` makes; its response is what `decode` returns. None: there is no response."""
        self._correlation_id = number = (self._correlation_id + 1) & _LAST_CORRELATION_ID
        frame = encode(number)
        if decode is not None:
            self._pending.append(_Pending(decode, number))
        return frame

    def expect_frame(self) -> None:
        """Expect a response that is no message of Kafka's: its frame's bytes, correlation id included."""
        self._pending.append(_Pending(bytes, None))

    def response_in(self, frame: memoryview) -> Any:
        """Return the response in a frame without its length. Raise ConversationLost."""
        if not self._pending:
            raise ConversationLost(NO_RESPONSE)
        pending = self._pending.popleft()
        if pending.correlation_id is not None:
            if len(frame) < _CORRELATION_ID.size:
                raise ConversationLost(NO_RESPONSE)
            if _CORRELATION_ID.unpack_from(frame)[0] != pending.correlation_id:
                raise ConversationLost("the response belongs to another request")
        try:
            return pending.decode(frame)
        except (InvalidRequest, IndexError, struct_error):
            raise ConversationLost(NO_RESPONSE) from None


class Conversation(InFlightRequests, FrameBuffer):
    """The requests in flight of one connection, and the bytes of a response that is not complete yet."""

    def __init__(self, *, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        InFlightRequests.__init__(self)
        FrameBuffer.__init__(self, max_response_bytes)
        self._responses: deque[Any] = deque()

    def receive(self, data: bytes) -> Iterator[Any]:
        """Yield the responses that are complete with these bytes, in order. Raise ConversationLost."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            rest = rest[taken:]
            yield from self.received(taken)

    def received(self, nbytes: int) -> Iterator[Any]:
        """Yield the responses that are complete with `nbytes` more in the buffer, in order. Raise ConversationLost."""
        lost = None
        try:
            self.take_frames(nbytes, self._add_response)
        except FramingLost:
            lost = ConversationLost(NO_RESPONSE)
        except ConversationLost as error:
            lost = error
        while self._responses:
            yield self._responses.popleft()
        if lost is not None:
            raise lost

    def _add_response(self, frame: memoryview) -> None:
        self._responses.append(self.response_in(frame))


def _decode_message(api_key: int, version: int, frame: memoryview) -> Any:
    return decode_response(api_key, version, frame)[1]
