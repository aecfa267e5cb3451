"""The little of NATS's text protocol that a comparison needs: publish, subscribe, and JetStream's requests."""

from __future__ import annotations

import re
import socket
from typing import Any, Final

import msgspec

ANSWER_S: Final = 10.0
RECEIVED_AT_ONCE: Final = 1 << 20
_MESSAGE: Final = re.compile(rb"MSG \S+ \d+ (?:\S+ )?(\d+)\r\n")


class NatsError(Exception):
    """The server answered with an error, or not at all."""


class NatsConnection:
    """One connection. `request` waits for its answer; streams of messages are read from `socket` by the caller."""

    def __init__(self, address: str, timeout_s: float = ANSWER_S) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._asked = 0
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        self._until(re.compile(rb"PONG\r\n"))

    def subscribe(self, subject: str) -> None:
        """Have messages of a subject sent here."""
        self.socket.sendall(f"SUB {subject} 1\r\n".encode())

    def request(self, subject: str, **body: Any) -> dict[str, Any]:
        """Return JetStream's answer. Raises NatsError, or OSError."""
        self._asked += 1
        inbox = f"_INBOX.request.{id(self)}.{self._asked}"
        payload = msgspec.json.encode(body) if body else b""
        self.socket.sendall(f"SUB {inbox} {self._asked}\r\nPUB {subject} {inbox} {len(payload)}\r\n".encode())
        self.socket.sendall(payload + b"\r\n")
        size = int(self._until(_MESSAGE)[1])
        while len(self._rest) < size + 2:
            self._receive()
        text, self._rest = self._rest[:size], self._rest[size + 2 :]
        self.socket.sendall(f"UNSUB {self._asked}\r\n".encode())
        answer: dict[str, Any] = msgspec.json.decode(text)
        if "error" in answer:
            raise NatsError(str(answer["error"].get("description", answer["error"])))
        return answer

    def ping(self) -> None:
        """Wait until the server has taken all that was sent before."""
        self.socket.sendall(b"PING\r\n")
        self._until(re.compile(rb"PONG\r\n"))

    def close(self) -> None:
        self.socket.close()

    def _until(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        """Read up to the end of a match, and return it."""
        while (found := pattern.search(self._rest)) is None:
            self._receive()
        self._rest = self._rest[found.end() :]
        return found

    def _receive(self) -> None:
        came = self.socket.recv(RECEIVED_AT_ONCE)
        if not came:
            raise NatsError("the server closed the connection")
        self._rest += came


def stream_of(topic: str, partition: int) -> str:
    """Return the stream that stands for a partition; its one subject has the same name."""
    return f"{topic}-{partition}"
