"""One connection to a broker: frames out, frames in, without retries."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.base.readable import readable
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.testing.progress import patient

ANSWER_S: Final = 20.0
"""A broker that has not answered after that time has not answered; no history asks for a longer wait."""
CLIENT_ID: Final = "conformance"
_LENGTH: Final = struct.Struct(">i")
_WITHOUT_SIZE: Final = 4


Dial = Callable[[str, int, float], socket.socket]
"""Returns a connection to a host and port, ready for Kafka's requests. The third argument limits it and each answer."""


class Closed(Exception):
    """The broker has closed the connection."""

    text = "the connection is closed"


class Silent(Exception):
    """The broker has not answered in time."""

    text = "no answer"


class Undecodable(Exception):
    """The answer is not what Kafka's schema says."""

    text = "undecodable"


class Connection:
    """A connection; `send` and `receive` are apart, so that requests can be pipelined."""

    def __init__(self, host: str, port: int, *, dial: Dial | None = None, answer_s: float = ANSWER_S) -> None:
        limit_s = patient(answer_s)
        self._socket = dial(host, port, limit_s) if dial else socket.create_connection((host, port), limit_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = count(1)

    def send(self, key: int, version: int, message: Any, *, client_id: str | None = CLIENT_ID) -> None:
        """Send a request. Raises Closed."""
        self.send_bytes(encode_request(RequestHeader(key, version, next(self._numbers), client_id), message))

    def send_bytes(self, frame: bytes) -> None:
        """Send bytes as they are; a frame begins with its length. Raises Closed."""
        try:
            self._socket.sendall(frame)
        except OSError:
            raise Closed from None

    def receive(self, key: int, version: int) -> Any:
        """Return kio's message of the next answer. Raises Closed, Silent or Undecodable."""
        frame = self.receive_bytes()
        try:
            return decode_response(key, version, memoryview(frame))[1]
        except (KafkaError, ValueError, IndexError, struct.error) as error:
            raise Undecodable(str(error)) from None

    def has_answer(self, *, within_s: float = 0.0) -> bool:
        """Return whether bytes have come, or come in that time, or the connection is closed."""
        return bool(readable([self._socket], within_s))

    def receive_bytes(self) -> bytes:
        """Return the next frame without its length. Raises Closed or Silent."""
        (size,) = _LENGTH.unpack(self._take(_WITHOUT_SIZE))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            try:
                piece = self._socket.recv(size - len(taken))
            except TimeoutError:
                raise Silent from None
            except OSError:
                raise Closed from None
            if not piece:
                raise Closed
            taken += piece
        return bytes(taken)

    def close(self) -> None:
        """Close it."""
        self._socket.close()
