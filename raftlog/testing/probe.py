"""A minimal Kafka client: enough to ask any node for brokers, controller and leaders.

It encodes four requests (Metadata v1 and v7, CreateTopics v4, DescribeQuorum v0, ElectLeaders v1), to time a start-up
without a client library. The caller chooses the node. If a listener requires authentication it uses a `Login`.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.security.scram_client import ScramClient, ServerUnproven
from raftlog.testing.progress import patient

ANSWER_S: Final = 10.0
"""So long a node may take for its answer; what is known to be paused is better not asked."""
_METADATA, _SASL_HANDSHAKE, _CREATE_TOPICS = 3, 17, 19
_SASL_AUTHENTICATE, _ELECT_LEADERS, _DESCRIBE_QUORUM = 36, 43, 55
_PREFERRED = 0
_ALL = -1
_LARGEST_ANSWER = 16 << 20
_QUORUM_TOPIC = b"__cluster_metadata"


class Login(NamedTuple):
    """The credentials for a listener that uses SASL_SSL. Its text form hides the password."""

    user: str
    password: str
    ca: Path
    """The certificate of the authority that the node's own is of."""
    mechanism: str = "SCRAM-SHA-512"

    def __repr__(self) -> str:
        return f"Login({self.user})"


class _Ask(NamedTuple):
    """The address of a node, and how to ask there."""

    host: str
    port: int
    timeout_s: float
    login: Login | None


class NewTopic(NamedTuple):
    """A topic to create; a replication factor of -1 is the cluster's default."""

    name: str
    partitions: int = 1
    replication_factor: int = -1
    settings: Mapping[str, str] = {}


class ClusterView(NamedTuple):
    """One node's view of its cluster: the ids of the live brokers, and the controller's it names (-1: none)."""

    broker_ids: frozenset[int]
    controller_id: int


class PartitionView(NamedTuple):
    """One node's view of a partition; leader -1: none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class QuorumView(NamedTuple):
    """A node's view of the metadata quorum: its leader (-1: none) and term."""

    leader_id: int
    term: int
    voters_behind: frozenset[int] = frozenset()
    """Voters that hold less than all that is committed, as far as the leader knows."""


NO_QUORUM: Final = QuorumView(-1, -1)


class Topics(NamedTuple):
    """One node's view of all topics: brokers (also those fenced moments ago), and by topic and partition the leader
    epoch and the partition."""

    broker_ids: frozenset[int]
    partitions: dict[tuple[str, int], tuple[int, PartitionView]]


class _Reader:
    """Reads the protocol's primitive types in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, format: str) -> int:
        (value,) = struct.unpack_from(">" + format, self._data, self._position)
        self._position += struct.calcsize(">" + format)
        return int(value)

    def skip(self, count: int) -> None:
        self._position += max(count, 0)

    def skip_string(self) -> None:
        self.skip(self.take("h"))

    def string(self) -> str:
        size = max(self.take("h"), 0)
        self._position += size
        return self._data[self._position - size : self._position].decode()

    def bytes(self) -> bytes:
        size = self.take("i")
        self._position += size
        return self._data[self._position - size : self._position]

    def ints(self) -> tuple[int, ...]:
        return tuple(self.take("i") for _ in range(self.take("i")))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def view_cluster(
    host: str, port: int, *, timeout_s: float = ANSWER_S, login: Login | None = None
) -> ClusterView:
    """Ask a node for its cluster. Raises OSError while it does not answer."""
    answer = _ask(_Ask(host, port, timeout_s, login), _METADATA, version=1, body=struct.pack(">i", 0))
    return ClusterView(frozenset(_take_brokers(answer)), answer.take("i"))


def _take_brokers(answer: _Reader) -> Iterator[int]:
    for _ in range(answer.take("i")):
        yield answer.take("i")
        answer.skip_string()
        answer.skip(4)
        answer.skip_string()


def view_topic(
    host: str, port: int, topic: str, *, timeout_s: float = ANSWER_S, login: Login | None = None
) -> dict[int, PartitionView]:
    """Ask a node for a topic's partitions; empty when it knows none. Raises OSError while it does not answer."""
    found = _view(_Ask(host, port, timeout_s, login), struct.pack(">i", 1) + _string(topic))
    return {index: partition for (_, index), (_, partition) in found.partitions.items()}


def view_topics(host: str, port: int, *, timeout_s: float = ANSWER_S, login: Login | None = None) -> Topics:
    """Ask a node for all topics. Raises OSError while it does not answer."""
    return _view(_Ask(host, port, timeout_s, login), struct.pack(">i", _ALL))


def _view(where: _Ask, names: bytes) -> Topics:
    """Return a node's view of some topics, and create none of them. `names`: their array, null for all."""
    answer = _ask(where, _METADATA, version=7, body=names + b"\0")
    answer.skip(4)  # throttle
    brokers = set()
    for _ in range(answer.take("i")):
        brokers.add(answer.take("i"))
        answer.skip_string()
        answer.skip(4)
        answer.skip_string()
    answer.skip_string()  # cluster id
    answer.skip(4)  # controller
    found: dict[tuple[str, int], tuple[int, PartitionView]] = {}
    for _ in range(answer.take("i")):
        answer.skip(2)
        topic = answer.string()
        answer.skip(1)
        for _ in range(answer.take("i")):
            answer.skip(2)
            index, leader, epoch = answer.take("i"), answer.take("i"), answer.take("i")
            found[topic, index] = (epoch, PartitionView(leader, answer.ints(), answer.ints()))
            answer.ints()  # offline replicas
    return Topics(frozenset(brokers), found)


def create_topic(host: str, port: int, topic: NewTopic, *, login: Login | None = None) -> str:
    """Create a topic; return the broker's reason if it refuses, else "". Raise OSError without an answer."""
    pairs = b"".join(_string(each) + _string(value) for each, value in topic.settings.items())
    body = struct.pack(">i", 1) + _string(topic.name)
    body += struct.pack(">ihi", topic.partitions, topic.replication_factor, 0)
    body += struct.pack(">i", len(topic.settings)) + pairs + struct.pack(">ib", int(ANSWER_S * 1000), 0)
    answer = _ask(_Ask(host, port, 2 * ANSWER_S, login), _CREATE_TOPICS, version=4, body=body)
    answer.skip(4 + 4)  # throttle, one topic
    answer.skip_string()
    code = answer.take("h")
    return answer.string() or f"error code {code}" if code else ""


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def is_open(host: str, port: int) -> bool:
    """Return whether something listens at an address."""
    try:
        socket.create_connection((host, port), timeout=patient(ANSWER_S)).close()
    except OSError:
        return False
    return True


def elect_preferred_leaders(
    host: str, port: int, *, timeout_s: float = ANSWER_S, login: Login | None = None
) -> None:
    """Have every partition led by its first replica if in sync. Raise OSError without an answer."""
    body = struct.pack(">bii", _PREFERRED, _ALL, int(timeout_s * 1000))
    _ask(_Ask(host, port, timeout_s, login), _ELECT_LEADERS, version=1, body=body)


def find_controller(host: str, port: int, *, timeout_s: float = ANSWER_S, login: Login | None = None) -> int:
    """Ask a node which node leads the metadata quorum; -1 when none does. Raises OSError while it does not answer."""
    return view_quorum(host, port, timeout_s=timeout_s, login=login).leader_id


def view_quorum(
    host: str, port: int, *, timeout_s: float = ANSWER_S, login: Login | None = None
) -> QuorumView:
    """Ask a node for its view of the metadata quorum. Raise OSError while it does not answer."""
    topic = bytes([2, len(_QUORUM_TOPIC) + 1]) + _QUORUM_TOPIC + b"\x02" + struct.pack(">i", 0) + b"\x00\x00"
    answer = _ask(
        _Ask(host, port, timeout_s, login), _DESCRIBE_QUORUM, version=0, body=b"\x00" + topic + b"\x00"
    )
    answer.skip_tags()
    if answer.take("h") != 0 or answer.varint() < 2:
        return NO_QUORUM
    answer.skip(answer.varint() - 1)
    if answer.varint() < 2:
        return NO_QUORUM
    answer.skip(4)
    return NO_QUORUM if answer.take("h") != 0 else _quorum_view(answer)


def _quorum_view(answer: _Reader) -> QuorumView:
    leader_id, term, high_watermark = answer.take("i"), answer.take("i"), answer.take("q")
    behind = set()
    for _ in range(answer.varint() - 1):
        voter, log_end_offset = answer.take("i"), answer.take("q")
        answer.skip_tags()
        if log_end_offset < high_watermark:
            behind.add(voter)
    return QuorumView(leader_id, term, frozenset(behind))


def _ask(where: _Ask, api_key: int, *, version: int, body: bytes) -> _Reader:
    with _connect(where) as connection:
        return _round_trip(connection, api_key, version=version, body=body)


def _round_trip(connection: socket.socket, api_key: int, *, version: int, body: bytes) -> _Reader:
    # header v1, of which v2 (flexible requests) is this and a tag section, which such a body brings along
    frame = struct.pack(">hhih", api_key, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 4 <= size <= _LARGEST_ANSWER:
        raise ConnectionError(f"an answer of {size} bytes")
    reader = _Reader(_receive(connection, size))
    reader.skip(4)
    return reader


@contextmanager
def _connect(where: _Ask) -> Iterator[socket.socket]:
    """Yield a connection that has logged in where that is wanted. Raises OSError."""
    with socket.create_connection((where.host, where.port), timeout=patient(where.timeout_s)) as plain:
        if where.login is None:
            yield plain
            return
        with _tls_context(where.login.ca).wrap_socket(plain, server_hostname=where.host) as connection:
            _log_in(connection, where.login)
            yield connection


@lru_cache(maxsize=16)
def _tls_context(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


def _log_in(connection: socket.socket, login: Login) -> None:
    """Log in with SCRAM (RFC 5802). Raises ConnectionError when the node refuses, or does not prove itself."""
    mechanism = login.mechanism.encode()
    answer = _round_trip(
        connection,
        _SASL_HANDSHAKE,
        version=1,
        body=struct.pack(f">h{len(mechanism)}s", len(mechanism), mechanism),
    )
    if answer.take("h") != 0:
        raise ConnectionError(f"the node does not offer {login.mechanism}")
    client = ScramClient(login.mechanism, login.user, login.password, nonce=secrets.token_hex(16))
    try:
        client.verify(_authenticate(connection, client.final(_authenticate(connection, client.first()))))
    except ServerUnproven as error:
        raise ConnectionError(str(error)) from None


def _authenticate(connection: socket.socket, said: bytes) -> bytes:
    answer = _round_trip(
        connection, _SASL_AUTHENTICATE, version=0, body=struct.pack(f">i{len(said)}s", len(said), said)
    )
    if answer.take("h") != 0:
        raise ConnectionError(f"the login is refused: {answer.string()}")
    answer.skip_string()
    return answer.bytes()


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("the node closed the connection")
        received += chunk
    return bytes(received)
