"""The little of AMQP 0-9-1 that a queue needs: publish with confirms, consume, acknowledge; quorum queues of RabbitMQ.

A frame has a type, a channel, a size, a payload and a last byte. The payload of a method begins with two numbers, its
class and its own. A message is three frames: its method, a header with its size, and its body.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
END: Final = b"\xce"
CHANNEL: Final = 1
ANSWER_S: Final = 10.0
RECEIVED_AT_ONCE: Final = 1 << 18
PERSISTENT: Final = 2

START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = (10, 10), (10, 11), (10, 30), (10, 31), (10, 40), (10, 41)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
QOS, QOS_OK, CONSUME, CONSUME_OK = (60, 10), (60, 11), (60, 20), (60, 21)
PUBLISH, DELIVER, ACK, NACK = (60, 40), (60, 60), (60, 80), (60, 120)
SELECT, SELECT_OK = (85, 10), (85, 11)
CLOSES: Final = frozenset({(10, 50), (20, 40)})

_FRAME: Final = struct.Struct(">BHI")
_TWO: Final = struct.Struct(">HH")


class AmqpError(Exception):
    """The server closed the connection or the channel, or answered something else."""


class Delivery(NamedTuple):
    """A message for a consumer; its tag counts the messages of the channel."""

    tag: int
    body: bytes


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(**fields: str) -> bytes:
    """Return a table of strings; an underscore in a name stands for a hyphen."""
    return _long(
        b"".join(
            _short(name.replace("_", "-")) + b"S" + _long(value.encode()) for name, value in fields.items()
        )
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + END


def method(kind: tuple[int, int], arguments: bytes = b"", channel: int = CHANNEL) -> bytes:
    """Return the frame of a method."""
    return _frame(METHOD, channel, _TWO.pack(*kind) + arguments)


def publish(queue: str, bodies: Sequence[bytes]) -> bytes:
    """Return the frames of persistent messages for one queue, by the default exchange."""
    to = method(PUBLISH, b"\0\0" + _short("") + _short(queue) + b"\0")
    return b"".join(
        to
        + _frame(HEADER, CHANNEL, struct.pack(">HHQHB", PUBLISH[0], 0, len(body), 0x1000, PERSISTENT))
        + _frame(BODY, CHANNEL, body)
        for body in bodies
    )


def acknowledge(tag: int, *, multiple: bool) -> bytes:
    """Return the frame that acknowledges a message, or all up to it."""
    return method(ACK, struct.pack(">QB", tag, multiple))


class AmqpConnection:
    """One connection as RabbitMQ's user guest, with one channel."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard = b""
        self._came: list[Delivery] = []
        self._tag = 0
        self._answer: tuple[int, ...] = ()
        """The last method that was neither a delivery nor a confirm."""
        self.refused = 0
        """The messages that were not confirmed."""
        self._socket.sendall(b"AMQP\0\0\x09\x01")
        self._until(START)
        login = _table() + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        self._ask(START_OK, login, TUNE, channel=0)
        self.send(method(TUNE_OK, struct.pack(">HIH", CHANNEL, 131_072, 0), 0))
        self._ask(OPEN, _short("/") + b"\0\0", OPEN_OK, channel=0)
        self._ask(CHANNEL_OPEN, b"\0", CHANNEL_OPEN_OK)

    def declare(self, queue: str) -> None:
        """Create a quorum queue."""
        arguments = _table(x_queue_type="quorum")
        self._ask(DECLARE, b"\0\0" + _short(queue) + b"\x02" + arguments, DECLARE_OK)

    def confirm(self) -> None:
        """Have each message confirmed or refused."""
        self._ask(SELECT, b"\0", SELECT_OK)

    def consume(self, queue: str, *, prefetch: int) -> None:
        """Have messages delivered, of which at most `prefetch` are not acknowledged."""
        self._ask(QOS, struct.pack(">IHB", 0, prefetch, 0), QOS_OK)
        self._ask(CONSUME, b"\0\0" + _short(queue) + _short("") + b"\0" + _table(), CONSUME_OK)

    def close(self) -> None:
        self._socket.close()

    def send(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    def deliveries(self) -> list[Delivery]:
        """Block until messages come, and return them."""
        while not self._came:
            self._receive()
        found, self._came = self._came, []
        return found

    def hear(self) -> None:
        """Take the confirms that have come."""
        self._socket.setblocking(False)
        try:
            self._receive()
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(ANSWER_S)

    def _ask(
        self, kind: tuple[int, int], arguments: bytes, answer: tuple[int, int], *, channel: int = CHANNEL
    ) -> None:
        self._answer = ()
        self.send(method(kind, arguments, channel))
        self._until(answer)

    def _until(self, kind: tuple[int, int]) -> None:
        while self._answer != kind:
            self._receive()

    def _cut(self, at: int) -> tuple[int, bytes, int] | None:
        """Return a frame's type, payload and end, or None as long as it is not whole."""
        if len(self._heard) < at + _FRAME.size:
            return None
        kind, _, size = _FRAME.unpack_from(self._heard, at)
        begins = at + _FRAME.size
        if len(self._heard) < begins + size + 1:
            return None
        return kind, self._heard[begins : begins + size], begins + size + 1

    def _receive(self) -> None:
        """Wait for bytes, and take all frames that are whole."""
        came = self._socket.recv(RECEIVED_AT_ONCE)
        if not came:
            raise AmqpError("the server closed the connection")
        self._heard += came
        at = 0
        while (frame := self._cut(at)) is not None:
            kind, payload, at = frame
            if kind == BODY:
                self._came.append(Delivery(self._tag, payload))
            elif kind == METHOD:
                self._note(_TWO.unpack_from(payload), payload)
        self._heard = self._heard[at:]

    def _note(self, kind: tuple[int, ...], payload: bytes) -> None:
        if kind == DELIVER:
            (self._tag,) = struct.unpack_from(">Q", payload, 5 + payload[4])
        elif kind == NACK:
            self.refused += 1
        elif kind in CLOSES:
            code, size = struct.unpack_from(">HB", payload, 4)
            raise AmqpError(
                f"the server closed with {code}: {payload[7 : 7 + size].decode(errors='replace')}"
            )
        elif kind != ACK:
            self._answer = kind
