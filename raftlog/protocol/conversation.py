"""The client's side of one connection, without a socket: requests become bytes, and bytes become responses.

A broker answers the requests of a connection in the order in which they were sent. Responses are matched with pending
requests in that order, and each correlation id is checked. An error here means that the position in the stream is lost:
the connection must close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

from raftlog.base.errors import InvalidRequest
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.frames import PREFIX_BYTES

MAX_RESPONSE_BYTES: Final = 64 << 20
"""A longer response is refused."""
NO_RESPONSE: Final = "the answer is none of Kafka's protocol"

_LENGTH: Final = Struct(">i")


class ConversationLost(ConnectionError):
    """The other end does not speak Kafka's protocol, or answers what was not asked."""


class _Pending(NamedTuple):
    """A request without a response yet; `api_key` None: its response is returned as bytes."""

    api_key: int | None
    version: int
    correlation_id: int


class Conversation:
    """The pending requests of one connection, and the bytes of a response that is not complete yet."""

    def __init__(self, *, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self._max_response_bytes = max_response_bytes
        self._pending: deque[_Pending] = deque()
        self._buffer = bytearray()
        self._correlation_id = 0

    def request(
        self, api_key: int, version: int, message: Any, *, client_id: str | None, is_answered: bool = True
    ) -> bytes:
        """Return the frame of a request. `is_answered`: False for a Produce with acks=0, which has no response."""
        self._correlation_id += 1
        header = RequestHeader(api_key, version, self._correlation_id, client_id)
        frame = encode_request(header, message)
        if is_answered:
            self._pending.append(_Pending(api_key, version, self._correlation_id))
        return frame

    def expect_frame(self) -> None:
        """Expect a response that is no message of Kafka's; `receive` yields its bytes, correlation id included."""
        self._pending.append(_Pending(None, 0, 0))

    def receive(self, data: bytes) -> Iterator[Any]:
        """Yield the responses that are complete with these bytes, in order. Raise ConversationLost."""
        self._buffer += data
        while len(self._buffer) >= PREFIX_BYTES:
            size = _LENGTH.unpack_from(self._buffer)[0]
            if not PREFIX_BYTES <= size <= self._max_response_bytes or not self._pending:
                raise ConversationLost(NO_RESPONSE)
            end = PREFIX_BYTES + size
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as received:
                frame = memoryview(bytes(received[PREFIX_BYTES:end]))
            del self._buffer[:end]
            yield _decode(self._pending.popleft(), frame)


def _decode(pending: _Pending, frame: memoryview) -> Any:
    if pending.api_key is None:
        return bytes(frame)
    try:
        correlation_id, message = decode_response(pending.api_key, pending.version, frame)
    except (InvalidRequest, IndexError):
        raise ConversationLost(NO_RESPONSE) from None
    if correlation_id != pending.correlation_id:
        raise ConversationLost("the answer is to another request")
    return message
