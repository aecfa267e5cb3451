"""A client of a few lines that sends given bytes: requests that no library would send, and plain requests.

Old, not flexible versions only. Every wait is bounded.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
TIMEOUT_S = 15.0
NO_STRING = struct.pack(">h", -1)


class PartitionView(NamedTuple):
    """A partition as one node's metadata shows it."""

    leader: int
    replicas: frozenset[int]
    isr: frozenset[int]


class ConnectionClosed(Exception):
    """The node closed the connection."""


class RawClient:
    """One connection. A context manager."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; whether the node has closed meanwhile is seen when reading."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def finish(self) -> None:
        """Send no more bytes, as a client that died in the middle."""
        with suppress(OSError):  # closed by the node already
            self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes:
        """Return the next frame without its length. Raises Closed."""
        (length,) = struct.unpack(">i", self._take(4))
        return self._take(length)

    def is_closed(self) -> bool:
        """Wait for the node to close. An answer instead is an AssertionError, and so is silence (TimeoutError)."""
        try:
            answer = self._socket.recv(1)
        except ConnectionResetError:
            return True
        assert not answer, "the node answered"
        return True

    def ask(self, api_key: int, version: int, body: bytes = b"") -> Reader:
        """Send a request and return its response after the correlation id."""
        self.send(frame(api_key, version, body))
        reader = Reader(self.receive())
        assert reader.int32() == CORRELATION_ID
        return reader

    def _take(self, count: int) -> bytes:
        taken = bytearray()
        while len(taken) < count:
            try:
                chunk = self._socket.recv(count - len(taken))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise ConnectionClosed
            taken += chunk
        return bytes(taken)


CORRELATION_ID = 7


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    """Return a request with header v1, its length in front."""
    content = struct.pack(">hhi", api_key, version, CORRELATION_ID) + NO_STRING + body
    return struct.pack(">i", len(content)) + content


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def produce_body(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> bytes:
    """Return a Produce v3 to v8 with one partition's records."""
    size = -1 if records is None else len(records)
    head = NO_STRING + struct.pack(">hi", acks, timeout_ms)
    return (
        head
        + struct.pack(">i", 1)
        + string(topic)
        + struct.pack(">iii", 1, partition, size)
        + (records or b"")
    )


class Reader:
    """Reads a response from its beginning. Raises struct.error past the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def _take(self, format: str) -> int:
        (value,) = struct.unpack_from(format, self.data, self.position)
        self.position += struct.calcsize(format)
        return int(value)

    def int8(self) -> int:
        return self._take(">b")

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def string(self) -> str:
        length = max(0, self.int16())
        self.position += length
        return self.data[self.position - length : self.position].decode()

    def int32s(self) -> frozenset[int]:
        return frozenset(self.int32() for _ in range(self.int32()))


def produced(answer: Reader) -> tuple[int, int]:
    """Return (error code, base offset) of a Produce v3 response of one partition."""
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
    answer.int32()
    return answer.int16(), answer.int64()


def view_topic(address: str, topic: str) -> list[PartitionView] | None:
    """Return a topic's partitions as a node knows them, None if it does not. Raises OSError, Closed."""
    with RawClient(address) as wire:
        answer = wire.ask(METADATA, 4, struct.pack(">i", 1) + string(topic) + b"\0")
    answer.int32()
    for _ in range(answer.int32()):
        answer.int32(), answer.string(), answer.int32(), answer.string()
    answer.string(), answer.int32(), answer.int32()
    code, _, _ = answer.int16(), answer.string(), answer.int8()
    if code:
        return None
    partitions = {}
    for _ in range(answer.int32()):
        _, index, leader = answer.int16(), answer.int32(), answer.int32()
        partitions[index] = PartitionView(leader, answer.int32s(), answer.int32s())
    return [partitions[index] for index in sorted(partitions)]
