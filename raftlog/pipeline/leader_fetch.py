"""Reads a range straight from the partition's leader: whole record batches, made Arrow columns by `record_columns`.

This is the fast path of `fetch`, for plain connections in the usual case. Settings that only librdkafka knows, an
error, a slow or dead leader, or a response without a whole batch end it silently. Then `fetch` continues with
librdkafka at the position reached. librdkafka implements waits, retries and error messages.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from raftlog.base.errors import KafkaError
from raftlog.pipeline.offsets import Range, TopicPartition
from raftlog.pipeline.record_columns import Batch, to_arrow
from raftlog.records.batch import iter_headers
from raftlog.records.visible import visible_batches

KNOWN_SETTINGS: Final = frozenset(
    {"bootstrap.servers", "isolation.level", "log_level", "log.connection.close", "security.protocol"}
)
"""Settings that this path supports. With any other setting librdkafka reads."""
FETCH_BYTES: Final = 4 << 20
"""The bytes that one fetch asks for, at most; a single batch may be larger (KIP-74)."""
LEAST_FETCH_BYTES: Final = 64 << 10
MAX_ANSWER_BYTES: Final = 1 << 30
"""No answer is larger: a node that says so is none of ours."""
COMMITTED: Final = "read_committed"
ARROW_BYTES: Final = 8 << 20
"""The size of an Arrow batch, about; a single record may be larger."""
PLAIN_PER_COMPRESSED: Final = 8
"""How many times as large compressed bytes are taken to be when they are grouped for one Arrow batch."""
TIMEOUT_S: Final = 2.0
"""How long a node may be silent before librdkafka takes over, which waits for longer."""
MAX_WAIT_MS: Final = 500
CLIENT_ID: Final = b"raftlog-spark"
FETCH: Final = (1, 11)
METADATA: Final = (3, 4)
"""API keys and versions: the last that are neither flexible nor need topic ids, which Kafka 2.3 to 4 all serve."""

_CORRELATION_ID: Final = 1
_REQUEST: Final = struct.Struct(">ihhih")
_FETCH: Final = struct.Struct(">iiiibiii")
_FETCH_PARTITION: Final = struct.Struct(">iiiqqi")
NO_SESSION: Final = (0, -1)
_INCIDENTS: Final = (OSError, KafkaError, struct.error, ValueError, OverflowError)  # the last: no such port

_idle: dict[tuple[str, TopicPartition], Leader] = {}
"""Idle connections of this process to leaders: each trigger of a stream reads from the same leaders."""
MAX_IDLE: Final = 64


class Unusual(OSError):
    """Something that this path leaves to librdkafka."""


class Fetched(NamedTuple):
    """A leader's answer: batches, the last one perhaps cut off, and (producer id, first offset) of each transaction
    that was aborted in them.
    """

    records: memoryview
    aborted: list[tuple[int, int]]


def can_read(settings: Mapping[str, str]) -> bool:
    """Whether this path supports all of the client library's settings."""
    return (
        KNOWN_SETTINGS.issuperset(settings)
        and settings.get("security.protocol", "plaintext").lower() == "plaintext"
        and settings.get("isolation.level", COMMITTED) in (COMMITTED, "read_uncommitted")
    )


class LeaderReading:
    """One range of one partition. `position` is the offset behind what was yielded."""

    def __init__(self, settings: Mapping[str, str], wanted: Range, schema: pa.Schema) -> None:
        self.position = wanted.start
        self._servers = settings["bootstrap.servers"]
        self._committed = settings.get("isolation.level", COMMITTED) == COMMITTED
        self._wanted = wanted
        self._schema = schema
        self._bytes_per_offset = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield records in order, until the range or what is usual ends."""
        key = (self._servers, self._wanted.at)
        leader = _idle.pop(key, None)
        try:
            leader = leader or find_leader(self._servers, self._wanted.at)
            yield from self._read(leader)
        except _INCIDENTS:
            pass
        else:
            leader.release_memory()
            if len(_idle) < MAX_IDLE and _idle.setdefault(key, leader) is leader:
                leader = None
        finally:
            if leader is not None:  # an answer may be under way
                leader.close()

    def _read(self, leader: Leader) -> Iterator[pa.RecordBatch]:
        fetched_up_to = self._wanted.start
        self._ask(leader, fetched_up_to)
        while fetched_up_to < self._wanted.end:
            fetched = leader.fetched()
            whole = [Batch.at(fetched.records, *each) for each in iter_headers(fetched.records)]
            if not whole or whole[-1].header.end_offset <= fetched_up_to:
                raise Unusual("no whole batch came")
            begun, fetched_up_to = fetched_up_to, whole[-1].header.end_offset
            self._bytes_per_offset = len(fetched.records) / (fetched_up_to - begun)
            if fetched_up_to < self._wanted.end:
                self._ask(leader, fetched_up_to)  # the leader reads while these batches are decoded
            visible = visible_batches(whole, fetched.aborted if self._committed else [])
            for group in grouped(visible):
                yield from sliced(to_arrow(group, self._wanted, self._schema))  # a copy
                self.position = group[-1].header.end_offset
            self.position = fetched_up_to

    def _ask(self, leader: Leader, offset: int) -> None:
        """Ask for what is left of the range, as far as its size is known, so that little is read in vain."""
        left = int((self._wanted.end - offset) * self._bytes_per_offset * 1.05)
        size = min(max(left, LEAST_FETCH_BYTES), FETCH_BYTES) if left else FETCH_BYTES
        leader.ask(self._wanted.at, offset, max_bytes=size, committed=self._committed)


def grouped(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Yield batches in order, together as many as give one Arrow batch, about."""
    group: list[Batch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += len(batch.payload) * (PLAIN_PER_COMPRESSED if batch.header.codec else 1)
        if size >= ARROW_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def sliced(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield all rows in pieces that have the size of an Arrow batch at most, about."""
    most = max(1, rows.num_rows * ARROW_BYTES // max(1, rows.nbytes))
    return (rows.slice(start, most) for start in range(0, rows.num_rows, most))


class Leader:
    """A connection to a broker that leads the partition. One request is under way at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(b"")

    def close(self) -> None:
        self._socket.close()

    def release_memory(self) -> None:
        """Give up the memory for answers, which is as large as the largest of them."""
        self._buffer = memoryview(b"")

    def ask(self, at: TopicPartition, offset: int, *, max_bytes: int, committed: bool) -> None:
        """Send a Fetch for one partition, outside of any fetch session."""
        self._send(
            FETCH,
            _FETCH.pack(-1, MAX_WAIT_MS, 1, max_bytes, committed, *NO_SESSION, 1)
            + _string(at.topic)
            + _FETCH_PARTITION.pack(1, at.partition, -1, offset, -1, max_bytes)
            + struct.pack(">ih", 0, 0),  # no topic is forgotten, and no rack is named
        )

    def fetched(self) -> Fetched:
        """Return the answer to `ask`, in memory that the next answer overwrites.

        Raises Unusual if it is an error, struct.error if it is malformed.
        """
        answer = self._receive()
        _throttle_ms, error, _session = answer.numbers(">ihi")
        if error or answer.numbers(">i") != (1,):
            raise Unusual(f"Fetch failed with error {error}")
        answer.string()
        count, _partition, error, *_offsets = answer.numbers(">iihqqq")
        if count != 1 or error:
            raise Unusual(f"Fetch failed with error {error}")
        (aborted,) = answer.numbers(">i")
        transactions = [answer.numbers(">qq") for _ in range(aborted)]
        _preferred_replica, size = answer.numbers(">ii")
        return Fetched(answer.rest(size), [(producer_id, first) for producer_id, first in transactions])

    def find(self, at: TopicPartition) -> tuple[str, int]:
        """Return the address of the partition's leader. Raises Unusual if there is none."""
        self._send(METADATA, struct.pack(">i", 1) + _string(at.topic) + b"\0")  # and do not create it
        answer = self._receive()
        _throttle_ms, brokers = answer.numbers(">ii")
        addresses: dict[int, tuple[str, int]] = {}
        for _ in range(brokers):
            (node_id,) = answer.numbers(">i")
            host = answer.string()
            (port,) = answer.numbers(">i")
            addresses[node_id] = (host, port)
            answer.string()
        answer.string()
        _controller, _topics, error = answer.numbers(">iih")
        answer.string()
        _is_internal, partitions = answer.numbers(">bi")
        for _ in range(partitions if not error else 0):
            error, partition, node_id = answer.numbers(">hii")
            for _ in ("replicas", "ISR"):
                answer.numbers(f">{answer.numbers('>i')[0]}i")
            if partition == at.partition and not error and node_id in addresses:
                return addresses[node_id]
        raise Unusual(f"{at} has no leader")

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        size = _REQUEST.size - 4 + len(CLIENT_ID) + len(body)
        self._socket.sendall(_REQUEST.pack(size, *api, _CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID + body)

    def _receive(self) -> Answer:
        size, correlation_id = struct.unpack(">ii", self._take(8))
        if correlation_id != _CORRELATION_ID or not 4 <= size <= MAX_ANSWER_BYTES:
            raise Unusual("this is no answer to our request")
        return Answer(self._take(size - 4))

    def _take(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = memoryview(bytearray(size))  # and used again: first touches of memory are dear
        taken = self._buffer[:size]
        filled = 0
        while filled < size:
            count = self._socket.recv_into(taken[filled:])
            if not count:
                raise Unusual("the connection was closed")
            filled += count
        return taken


class Answer:
    """The bytes of a response, read from front to back."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._position = 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Return the next numbers. Raises struct.error at the end."""
        found = struct.unpack_from(layout, self._content, self._position)
        self._position += struct.calcsize(layout)
        return found

    def string(self) -> str:
        """Return the next string, empty for null."""
        (size,) = self.numbers(">h")
        return str(self.rest(max(0, size)), "utf-8")

    def rest(self, size: int) -> memoryview:
        """Return the next bytes without a copy; fewer at the end."""
        begin = self._position
        self._position += max(0, size)
        return self._content[begin : self._position]


def find_leader(servers: str, at: TopicPartition) -> Leader:
    """Return a connection to the leader, by the response of the first server that answers. Raise Unusual."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not port.isdecimal():
            continue
        try:
            asked = Leader(host.strip("[]"), int(port))
        except OSError:
            continue
        try:
            address = asked.find(at)
        finally:
            asked.close()
        return Leader(*address)
    raise Unusual("no server answers")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
