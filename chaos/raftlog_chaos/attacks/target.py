"""The cluster under attack as a script sees it: ports, sockets and frames, without knowledge of nodes.

Every socket uses a loopback address that no honest client uses. So the judge can attribute the connections that a node
still holds, and limits per address concern the attacker alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec

from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.protocol.apis import is_flexible
from raftlog.protocol.codec import RequestHeader, decode_response, encode_request
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.writer import write_varint

Port = Literal["kafka", "controller", "http", "registry", "logins", "secure"]

LOGIN_USERS: Final = ("ann", "ben")
LOGIN_PASSWORD: Final = "one password for both"  # noqa: S105 - of clusters that are there to be attacked
"""The users of a closed cluster's listener without TLS."""

ATTACKER: Final = "127.0.0.66"
"""Source address of attacks, unless they come from many addresses."""
ELSEWHERE: Final = "127.0.9.9"
"""Source address of an attacker's clean-up, in case the other address is blocked."""
ANSWER_S: Final = 3.0
"""Seconds that a script waits for an answer by default."""
CONNECT_S: Final = 3.0
LINES_AT_ONCE: Final = 200
LARGEST_ANSWER: Final = 64 << 20
CHUNK_BYTES: Final = 1 << 16
CLIENT_ID: Final = "attacker"
LENGTH: Final = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")


class ClaimBroken(Exception):
    """An answer contradicts the attack's claim; the message says how."""


def expect(holds: bool, otherwise: str) -> None:
    """Raise ClaimBroken unless it holds."""
    if not holds:
        raise ClaimBroken(otherwise)


class NodePorts(msgspec.Struct, frozen=True):
    """The ports of one node, and the folder of its logs. `logins` asks for a login, `secure` over TLS; 0: not there."""

    host: str
    kafka: int
    controller: int
    http: int
    folder: str
    logins: int = 0
    secure: int = 0
    https: bool = False
    """The HTTP port speaks TLS."""
    registry: int = 0


class Target(msgspec.Struct, frozen=True):
    """The cluster under attack. Each topic has a partition for each node, which leads it: node 1 leads partition 0."""

    nodes: dict[int, NodePorts]
    topic: str
    """Holds some megabytes of records."""
    compacted: str
    """The same with cleanup.policy=compact."""
    bystanders: str
    """The topic of the honest clients."""

    @property
    def own_topics(self) -> tuple[str, str, str]:
        """The topics that a session begins with."""
        return self.topic, self.compacted, self.bystanders

    def address(self, port: Port, node: int = 1) -> tuple[str, int]:
        """Return where a node listens."""
        doors = self.nodes[node]
        return doors.host, int(getattr(doors, port))

    def line(self, port: Port = "kafka", node: int = 1, source: str = ATTACKER) -> Line:
        """Open a connection. Raises OSError when it is refused."""
        return Line(self.address(port, node), source)

    @contextlib.contextmanager
    def lines(
        self, count: int, port: Port = "kafka", node: int = 1, source: str = ATTACKER
    ) -> Iterator[list[Line]]:
        """Open up to `count` connections, as many as are accepted, and close them at the end."""
        opened: list[Line] = []
        try:
            for _ in range(count):
                with contextlib.suppress(OSError):
                    opened.append(self.line(port, node, source))
            yield opened
        finally:
            for each in opened:
                each.close()

    @contextlib.contextmanager
    def rush(self, count: int, port: Port = "kafka", node: int = 1) -> Iterator[list[Line]]:
        """Begin `count` connections at once, from four addresses, without waiting; close them at the end."""
        begun: list[Line] = []
        try:
            for number in range(count):
                source = f"127.0.{1 + number % 4}.66"
                begun.append(Line(self.address(port, node), source, waits=False))
            yield begun
        finally:
            for each in begun:
                each.close()

    def cool(self) -> None:
        """Drop the pages of the attacked topic's logs from the page cache, as a busy machine does by and by."""
        for doors in self.nodes.values():
            for path in Path(doors.folder).glob(f"{self.topic}-*/*.log"):
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Line:
    """One connection of the attacker. Sending never raises; `closed` says whether the other end hung up."""

    def __init__(self, address: tuple[str, int], source: str = ATTACKER, *, waits: bool = True) -> None:
        self.socket = socket.socket()
        self.closed = False
        try:
            self.socket.settimeout(CONNECT_S if waits else 0)
            self.socket.bind((source, 0))
            with contextlib.suppress(BlockingIOError):
                self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def secure(self, context: ssl.SSLContext, within_s: float = ANSWER_S) -> None:
        """Go on over TLS. Raises OSError if the other end does not."""
        self.socket.settimeout(within_s)
        self.socket = context.wrap_socket(self.socket)

    def send(self, data: bytes, within_s: float = ANSWER_S) -> int:
        """Send all of it, or as much as the other end takes in time; return how many bytes went out."""
        sent, end_at = 0, time.monotonic() + within_s
        view = memoryview(data)
        while sent < len(data) and not self.closed and (left_s := end_at - time.monotonic()) > 0:
            self.socket.settimeout(left_s)
            try:
                sent += self.socket.send(view[sent : sent + CHUNK_BYTES])
            except TimeoutError:
                break
            except OSError:
                self.closed = True
        return sent

    def receive(self, within_s: float = ANSWER_S) -> bytes | None:
        """Return the next Kafka response without its length, None if none comes in time or the line is closed."""
        end_at = time.monotonic() + within_s
        while not self.closed:
            if len(self._received) >= LENGTH.size:
                size = LENGTH.unpack_from(self._received)[0]
                end = LENGTH.size + size
                if not 0 <= size <= LARGEST_ANSWER:
                    return None
                if len(self._received) >= end:
                    frame = bytes(self._received[LENGTH.size : end])
                    del self._received[:end]
                    return frame
            if not self._receive(end_at):
                return None
        return None

    def read(self, within_s: float = ANSWER_S, most: int = CHUNK_BYTES) -> bytes:
        """Return the received bytes, after waiting for the first of them."""
        end_at = time.monotonic() + within_s
        while not self.closed and not self._received and self._receive(end_at):
            pass
        found, self._received = bytes(self._received[:most]), self._received[most:]
        return found

    def _receive(self, end_at: float) -> bool:
        left_s = end_at - time.monotonic()
        if left_s <= 0:
            return False
        self.socket.settimeout(left_s)
        try:
            data = self.socket.recv(CHUNK_BYTES)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        self.closed = not data
        self._received += data
        return not self.closed

    def ask(self, frame: bytes, within_s: float = ANSWER_S) -> bytes | None:
        """Send one frame and return its answer; see `receive`."""
        self.send(frame, within_s)
        return self.receive(within_s)

    def request(
        self, api_key: int, version: int, name: str, within_s: float = ANSWER_S, **fields: Any
    ) -> Any:
        """Send a request and return its decoded answer; None if there is none."""
        answer = self.ask(request(api_key, version, name, **fields), within_s)
        return None if answer is None else decode_response(api_key, version, memoryview(answer))[1]

    def outcome(self, within_s: float = 1.0) -> str:
        """Wait for the other end; return "answered", "closed" or "silent"."""
        found = self.read(within_s)
        if found:
            return "answered"
        return "closed" if self.closed else "silent"

    @property
    def state(self) -> str:
        """open or closed."""
        return "closed" if self.closed else "open"

    def close(self, *, reset: bool = False) -> None:
        """Close it; with a RST if `reset`."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
        self.closed = True


# --- frames


def framed(body: bytes) -> bytes:
    """Return the bytes with their length in front."""
    return LENGTH.pack(len(body)) + body


def head(api_key: int, version: int, correlation_id: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a request's header, with empty tagged fields where the version has them."""
    name = None if client_id is None else client_id.encode()
    start = _HEADER.pack(api_key, version, correlation_id, -1 if name is None else len(name)) + (name or b"")
    return start + b"\0" if is_flexible(api_key, version) else start


def raw(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """Return a request's frame around a body made by hand."""
    return framed(head(api_key, version, correlation_id) + body)


def request(api_key: int, version: int, name: str, **fields: Any) -> bytes:
    """Return a request's frame, built by the schema; `name` is kio's name of the message."""
    message = getattr(request_builders(api_key, version), name)(**fields)
    return encode_request(RequestHeader(api_key, version, 1, CLIENT_ID), message)


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def compact(text: str) -> bytes:
    """Return a compact string."""
    data = text.encode()
    return varint(len(data) + 1) + data


def legacy(text: str) -> bytes:
    """Return a string with a length of two bytes."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(items: Sequence[bytes]) -> bytes:
    """Return a compact array of elements that are bytes already."""
    return varint(len(items) + 1) + b"".join(items)


def legacy_array(items: Sequence[bytes]) -> bytes:
    """Return an array with a count of four bytes, of elements that are bytes already."""
    return LENGTH.pack(len(items)) + b"".join(items)


# --- steps that many scripts share


def send_each(
    target: Target,
    frames: Sequence[bytes],
    *,
    port: Port = "kafka",
    node: int = 1,
    within_s: float = 1.0,
    source: str = ATTACKER,
) -> str:
    """Send each on a connection of its own, at most LINES_AT_ONCE at a time; return the outcomes in words."""
    words: list[str] = []
    for start in range(0, len(frames), LINES_AT_ONCE):
        some = frames[start : start + LINES_AT_ONCE]
        with target.lines(len(some), port, node, source) as lines:
            for line, frame in zip(lines, some, strict=False):
                line.send(frame)
            words += outcomes_of(lines, within_s)
    return counted(words)


def outcomes_of(lines: Sequence[Line], within_s: float = 1.0) -> list[str]:
    """Return the `outcome` of each line, once all have said something or the time is over."""
    end_at, words = time.monotonic() + within_s, []
    for line in lines:
        words.append(line.outcome(max(0.002, end_at - time.monotonic())))
    return words


def create_topic(target: Target, name: str, *, configs: Sequence[tuple[str, str]] = ()) -> str:
    """Create a topic of one partition on all nodes, led by node 1; return the outcome in words."""
    placed = array(
        [LENGTH.pack(0) + varint(len(target.nodes) + 1) + b"".join(map(LENGTH.pack, target.nodes)) + b"\0"]
    )
    given = array([compact(key) + compact(value) + b"\0" for key, value in configs])
    topic = compact(name) + struct.pack(">ih", -1, -1) + placed + given + b"\0"
    with target.line(source=ELSEWHERE) as line:
        line.send(raw(19, 7, array([topic]) + LENGTH.pack(10_000) + b"\0\0"))
        return line.outcome(12)


def delete_topics(target: Target, names: Sequence[str]) -> str:
    """Delete topics, some hundred at a time; return the outcome in words."""
    words = []
    with target.line(source=ELSEWHERE) as line:
        for start in range(0, len(names), 500):
            some = array([compact(name) for name in names[start : start + 500]])
            line.send(raw(20, 4, some + LENGTH.pack(20_000) + b"\0"))
            words.append("answered" if line.receive(25) is not None else "no answer")
    return counted(words)


def topics_made(target: Target) -> list[str]:
    """Return the names of all topics except the nodes' own and the initial topics of a session."""
    with target.line(source=ELSEWHERE) as line:
        answer = line.ask(raw(3, 4, LENGTH.pack(-1) + b"\0"), 20)
    if answer is None:
        return []
    names = [each.name for each in decode_response(3, 4, memoryview(answer))[1].topics]
    kept = {SCHEMAS_TOPIC, *target.own_topics}
    return [name for name in names if not name.startswith("__") and name not in kept]


def for_seconds(seconds: float) -> Callable[[], bool]:
    """Return a question that is answered yes for so long."""
    end_at = time.monotonic() + seconds
    return lambda: time.monotonic() < end_at


def never_read(lines: Sequence[Line], data: bytes, *, seconds: float) -> int:
    """Send the same again and again on each line without reading anything; return how many bytes went out."""
    going_on, sent = for_seconds(seconds), 0
    while going_on() and not all(each.closed for each in lines):
        before = sent
        for each in lines:
            sent += each.send(data, within_s=0.02)
        if sent == before:
            time.sleep(0.05)
    return sent


def counted(words: Sequence[str], most: int = 4) -> str:
    """Return words with how often each came, most frequent first."""
    ranked = sorted({each: words.count(each) for each in words}.items(), key=lambda each: -each[1])
    said = [word if count == 1 else f"{word} x{count}" for word, count in ranked[:most]]
    return ", ".join([*said, "…"] if len(ranked) > most else said)
