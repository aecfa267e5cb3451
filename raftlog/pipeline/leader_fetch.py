"""Reads a range straight from the partition's leader: whole record batches, made Arrow columns by `record_columns`.

This is the fast path of `fetch`, for plain connections in the usual case. Settings that only librdkafka knows, an
error, a slow or dead leader, or a response without a whole batch end it silently. Then `fetch` continues with
librdkafka at the position reached. librdkafka implements waits, retries and error messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from raftlog.base.errors import KafkaError
from raftlog.client.connection import Connection, Dialer
from raftlog.client.fetching import Options, fetch_request
from raftlog.client.metadata import read_metadata
from raftlog.pipeline.offsets import Range, TopicPartition
from raftlog.pipeline.record_columns import Batch, to_arrow
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import iter_headers
from raftlog.records.visible import visible_batches

KNOWN_SETTINGS: Final = frozenset(
    {"bootstrap.servers", "isolation.level", "log_level", "log.connection.close", "security.protocol"}
)
"""Settings that this path supports. With any other setting librdkafka reads."""
FETCH_BYTES: Final = 4 << 20
"""The bytes that one fetch asks for, at most; a single batch may be larger (KIP-74)."""
MIN_FETCH_BYTES: Final = 64 << 10
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
CLIENT_ID: Final = "raftlog-spark"

_INCIDENTS: Final = (OSError, KafkaError, struct.error, ValueError, OverflowError)  # the last: no such port

_idle: dict[tuple[str, TopicPartition], Leader] = {}
"""Idle connections of this process to leaders: each trigger of a stream reads from the same leaders."""
MAX_IDLE: Final = 64
_answering: dict[str, str] = {}
"""The server that answered last, by bootstrap.servers."""


class Unusual(OSError):
    """Something that this path leaves to librdkafka."""


class Fetched(NamedTuple):
    """A leader's answer: batches, the last one perhaps cut off, and (producer id, first offset) of each transaction
    that was aborted in them.
    """

    records: memoryview
    aborted: list[tuple[int, int]]


def can_read(settings: Mapping[str, str]) -> bool:
    """Return whether this path supports all of the client library's settings."""
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
                raise Unusual("the response has no complete batch")
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
        size = min(max(left, MIN_FETCH_BYTES), FETCH_BYTES) if left else FETCH_BYTES
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
    """A connection to a broker that leads the partition in `epoch`. One request is under way at a time.

    The epoch is -1 while the leader is looked for.
    """

    def __init__(self, host: str, port: int, epoch: int = -1) -> None:
        self._epoch = epoch
        connected = Dialer().connect(host, port, TIMEOUT_S)
        self._connection = Connection(connected, CLIENT_ID, max_response_bytes=MAX_ANSWER_BYTES)

    def close(self) -> None:
        self._connection.close()

    def release_memory(self) -> None:
        """Release the memory for answers, which is as large as the largest of them."""
        self._connection.release_memory()

    def ask(self, at: TopicPartition, offset: int, *, max_bytes: int, committed: bool) -> None:
        """Send a Fetch for one partition, outside of any fetch session."""
        version = self._connection.version_of(ApiKey.FETCH)
        options = Options(committed=committed, wait_ms=MAX_WAIT_MS, partition_bytes=max_bytes)
        key = (at.topic, at.partition)
        request = fetch_request(
            version, {key: offset}, options, epochs={key: self._epoch}, max_bytes=max_bytes
        )
        self._connection.send(ApiKey.FETCH, version, request)

    def fetched(self) -> Fetched:
        """Return the answer to `ask`. Raises Unusual if it is an error."""
        answer = self._connection.receive()
        parts = [part for topic in answer.responses for part in topic.partitions]
        if answer.error_code or len(parts) != 1 or parts[0].error_code:
            raise Unusual("Fetch failed")
        aborted = [(each.producer_id, each.first_offset) for each in parts[0].aborted_transactions or ()]
        return Fetched(memoryview(parts[0].records or b""), aborted)

    def find(self, at: TopicPartition) -> tuple[str, int, int]:
        """Return host, port and epoch of the partition's leader. Raises Unusual if there is none."""
        version = self._connection.version_of(ApiKey.METADATA)
        make = request_builders(ApiKey.METADATA, version)
        topics = (make.MetadataRequestTopic(name=at.topic),)
        request = make.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        found = read_metadata(self._connection.exchange(ApiKey.METADATA, version, request))
        topic = found.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        leader = None if partition is None else found.brokers.get(partition.leader)
        if leader is None or partition is None:
            raise Unusual(f"{at} has no leader")
        return leader.host, leader.port, partition.leader_epoch


def find_leader(servers: str, at: TopicPartition) -> Leader:
    """Return a connection to the leader, by the response of the first server that answers. Raise Unusual.

    A silent server is left for the next after TIMEOUT_S. The next call begins with the server that answered.
    """
    named = [each.strip() for each in servers.split(",")]
    named.sort(key=lambda each: each != _answering.get(servers))
    for server in named:
        host, _, port = server.rpartition(":")
        if not port.isdecimal():
            continue
        asked = None
        try:
            asked = Leader(host.strip("[]"), int(port))
            found = asked.find(at)
        except Unusual:
            raise
        except _INCIDENTS:
            continue
        finally:
            if asked is not None:
                asked.close()
        _answering[servers] = server
        return Leader(*found)
    raise Unusual("no server is reachable")
