"""Fetches records from partition leaders, with at most one Fetch in flight per leader.

It keeps the position of each partition and does not know groups. After a leader change or a broken connection it
refreshes the metadata. Errors that are not retriable are returned to the caller.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raftlog.base.errors import KafkaError, OffsetOutOfRange, from_code
from raftlog.base.types import NO_EPOCH
from raftlog.client.cluster import RETRY_S, Cluster, is_retriable
from raftlog.client.connection import Connection
from raftlog.client.errors import NotConnected
from raftlog.client.metadata import EARLIEST, LATEST, PartitionKey
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import BatchHeader, Record, check_crc, iter_headers, iter_records_from, open_batch
from raftlog.records.visible import visible_batches

FETCH_BYTES: Final = 50 << 20
PARTITION_BYTES: Final = 1 << 20
"""fetch.max.bytes and max.partition.fetch.bytes. A single batch may be larger (KIP-74)."""
NO_SESSION: Final = (0, -1)
NO_EPOCHS: Final[Mapping[PartitionKey, int]] = {}
CREATE_TIME, APPEND_TIME = 1, 2
_GRACE_S: Final = 30.0
"""The timeout of a Fetch, beyond its max wait."""


@dataclass(frozen=True, slots=True)
class Options:
    """Fetch settings. `reset` applies if an offset is out of range: EARLIEST, LATEST, or None for an error."""

    committed: bool = True
    wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = PARTITION_BYTES
    reset: int | None = EARLIEST
    checks_epochs: bool = False
    """Whether leaders compare the epoch of the batch before a position (KIP-320), from Fetch 12 on."""


class WholeBatch(NamedTuple):
    """A batch within a fetched buffer."""

    header: BatchHeader
    content: memoryview


class Fetched(NamedTuple):
    """The result of a Fetch for one partition: records in order, an error, or the end of the partition.

    `position` is the next offset to fetch. With `at_end` it is the end of the partition.
    """

    at: PartitionKey
    leader: int
    records: Iterator[tuple[int, Record]]
    """The records, decoded during iteration, each with its timestamp type: CREATE_TIME or APPEND_TIME. Raises
    CorruptMessage."""
    position: int
    has_records: bool = False
    at_end: bool = False
    is_first_end: bool = False
    """Whether this is the first Fetch that reached this end."""
    error: KafkaError | None = None
    epoch: int = NO_EPOCH
    """The leader epoch of the last batch before `position`, with `checks_epochs` and as far as it is known."""
    diverged_at: int | None = None
    """The offset from which the partition has other records than were fetched: an unclean election truncated it."""


@dataclass(slots=True)
class _Request:
    """A Fetch in flight, and the fetch offset of each partition."""

    connection: Connection
    offsets: dict[PartitionKey, int] = field(default_factory=dict)


class Fetcher:
    """Fetches partitions in the caller's thread. All work is done inside `poll`."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self.options = options
        self.positions: dict[PartitionKey, int] = {}
        """The next offset to fetch of each partition. The caller may remove partitions; `assign` adds them."""
        self.position_epochs: dict[PartitionKey, int] = {}
        """The leader epoch of the last batch before each position; without an entry it is not checked."""
        self._leaders: dict[PartitionKey, int] = {}
        self._epochs: dict[PartitionKey, int] = {}
        """The leader epoch of each leader. A broker that leads no more may serve as a follower, but refuses these."""
        self._connections: dict[int, Connection] = {}
        self._under_way: dict[int, _Request] = {}
        self._retry_leaders_at = 0.0
        self._ends: dict[PartitionKey, int] = {}

    def assign(
        self, offsets: Mapping[PartitionKey, int], epochs: Mapping[PartitionKey, int] | None = None
    ) -> None:
        """Replace the assignment: fetch only these partitions, from these offsets.

        `epochs`: the leader epochs of the batches before the offsets, for `checks_epochs`.
        """
        self.positions = dict(offsets)
        self.position_epochs = dict(epochs or {})
        self._ends.clear()

    def close(self) -> None:
        for each in self._connections.values():
            each.close()

    def offsets_at(self, partitions: Iterable[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
        """Return the first offset at or after a timestamp (ms, EARLIEST or LATEST) in each partition.

        A partition without a later record gets its end offset. Raise KafkaError, Unreachable, Refused.
        """
        wanted = list(partitions)
        found = list_offsets(self._cluster, wanted, timestamp, committed=self.options.committed)
        missing = [key for key, offset in found.items() if offset < 0]
        if missing and timestamp != LATEST:
            found |= list_offsets(self._cluster, missing, LATEST, committed=self.options.committed)
        return found

    def poll(self, timeout_s: float) -> list[Fetched]:
        """Return the results that arrive within the timeout. Raise Unreachable or Refused if no broker returns
        metadata.
        """
        self._send()
        found: list[Fetched] = []
        for leader in self._readable(timeout_s):
            request = self._under_way.pop(leader)
            try:
                answer = request.connection.receive()
            except OSError:
                self._forget_leaders(request.offsets)
                continue
            found += self._read(leader, request, answer)
        return found

    # Sending.

    def _send(self) -> None:
        """Send a Fetch to each leader without a Fetch in flight."""
        self._find_leaders()
        waiting: dict[int, dict[PartitionKey, int]] = {}
        busy = {key for request in self._under_way.values() for key in request.offsets}
        for key, offset in self.positions.items():
            leader = self._leaders.get(key, -1)
            if leader >= 0 and leader not in self._under_way and key not in busy:
                waiting.setdefault(leader, {})[key] = offset
        for leader, offsets in waiting.items():
            try:
                connection = self._connection(leader)
                self._send_fetch(connection, offsets)
            except (OSError, NotConnected):
                self._forget_leaders(offsets)
            else:
                self._under_way[leader] = _Request(connection, offsets)

    def _find_leaders(self) -> None:
        unknown = [key for key in self.positions if self._leaders.get(key, -1) < 0]
        if not unknown or time.monotonic() < self._retry_leaders_at:
            return
        self._retry_leaders_at = time.monotonic() + RETRY_S
        topics = self._cluster.metadata(sorted({topic for topic, _ in unknown})).topics
        for topic, number in unknown:
            known = topics[topic].partitions.get(number)
            self._leaders[topic, number] = -1 if known is None else known.leader
            self._epochs[topic, number] = -1 if known is None else known.leader_epoch

    def _connection(self, leader: int) -> Connection:
        found = self._connections.get(leader)
        if found is None or found.is_closed:
            deadline = time.monotonic() + self._cluster.timeout_s
            found = self._connections[leader] = self._cluster.open(leader, deadline)
            found.set_timeout(self.options.wait_ms / 1000 + _GRACE_S)
        return found

    def _send_fetch(self, connection: Connection, offsets: dict[PartitionKey, int]) -> None:
        version = connection.version_of(ApiKey.FETCH)
        request = fetch_request(
            version, offsets, self.options, epochs=self._epochs, last_epochs=self.position_epochs
        )
        connection.send(ApiKey.FETCH, version, request)

    def _forget_leaders(self, partitions: Iterable[PartitionKey]) -> None:
        for key in partitions:
            self._leaders.pop(key, None)

    # Receiving.

    def _readable(self, timeout_s: float) -> list[int]:
        """Return the leaders with a response to read, after at most `timeout_s`."""
        ready = [leader for leader, each in self._under_way.items() if each.connection.has_response()]
        if ready:
            return ready
        by_descriptor = {each.connection.fileno(): leader for leader, each in self._under_way.items()}
        if not by_descriptor:
            time.sleep(min(timeout_s, RETRY_S))
            return []
        poller = select.poll()
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        return [by_descriptor[descriptor] for descriptor, _ in poller.poll(timeout_s * 1000)]

    def _read(self, leader: int, request: _Request, answer: Any) -> Iterator[Fetched]:
        if answer.error_code:
            self._forget_leaders(request.offsets)
            return
        for topic in answer.responses:
            for part in topic.partitions:
                key = (topic.topic, part.partition_index)
                offset = request.offsets.get(key)
                if offset is None or self.positions.get(key) != offset:
                    continue  # the caller has gone elsewhere meanwhile
                found = self._read_partition(leader, key, offset, part)
                if found is not None:
                    yield found

    def _read_partition(self, leader: int, key: PartitionKey, offset: int, part: Any) -> Fetched | None:
        if part.error_code:
            return self._read_error(leader, key, offset, from_code(part.error_code))
        if (diverged_at := _divergence(part)) is not None:
            return Fetched(key, leader, iter(()), offset, diverged_at=diverged_at)
        received = memoryview(part.records or b"")
        whole = [
            WholeBatch(header, received[position : position + header.length])
            for position, header in iter_headers(received)
        ]
        aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
        visible = visible_batches(whole, aborted if self.options.committed else ())
        position = max(offset, whole[-1].header.end_offset) if whole else offset
        self.positions[key] = position
        if whole and self.options.checks_epochs:
            self.position_epochs[key] = whole[-1].header.leader_epoch
        end = part.last_stable_offset if self.options.committed else part.high_watermark
        at_end = position >= end
        is_first_end = at_end and self._ends.get(key) != position
        if at_end:
            self._ends[key] = position
        if not visible and not is_first_end:
            return None
        records = decoded(visible, offset)
        epoch = self.position_epochs.get(key, NO_EPOCH)
        return Fetched(key, leader, records, position, bool(visible), at_end, is_first_end, epoch=epoch)

    def _read_error(self, leader: int, key: PartitionKey, offset: int, error: KafkaError) -> Fetched | None:
        """Return an error that is not retriable. Others refresh the leader or reset the offset, and return None."""
        if isinstance(error, OffsetOutOfRange) and self.options.reset is not None:
            self.positions |= self.offsets_at([key], self.options.reset)
            return None
        if is_retriable(error.code):
            self._forget_leaders([key])
            if key in self.positions and not self._is_gone(key):
                return None
        return Fetched(key, leader, iter(()), offset, error=error)

    def _is_gone(self, key: PartitionKey) -> bool:
        """Return whether the partition was deleted."""
        return key[1] not in self._cluster.metadata([key[0]]).topics[key[0]].partitions


def fetch_request(
    version: int,
    offsets: Mapping[PartitionKey, int],
    options: Options,
    *,
    epochs: Mapping[PartitionKey, int],
    last_epochs: Mapping[PartitionKey, int] = NO_EPOCHS,
    max_bytes: int = FETCH_BYTES,
) -> Any:
    """Return a Fetch of partitions from these offsets, outside of any fetch session. `max_bytes` is for them all.

    `epochs`: the leader epochs by the metadata, which a broker refuses if it has another. So only leaders answer.
    `last_epochs`: the epochs of the batches before the offsets, which a broker compares with its log.
    """
    make = request_builders(ApiKey.FETCH, version)
    topics: dict[str, list[Any]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, []).append(
            make.FetchPartition(
                partition=number,
                current_leader_epoch=epochs[topic, number],
                fetch_offset=offset,
                last_fetched_epoch=last_epochs.get((topic, number), NO_EPOCH),
                log_start_offset=-1,
                partition_max_bytes=options.partition_bytes,
            )
        )
    return make.FetchRequest(
        replica_id=-1,
        max_wait=options.wait_ms,
        min_bytes=options.min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(options.committed),
        session_id=NO_SESSION[0],
        session_epoch=NO_SESSION[1],
        topics=tuple(make.FetchTopic(topic=name, partitions=tuple(each)) for name, each in topics.items()),
        forgotten_topics_data=(),
        rack_id="",  # so that leaders name no follower to read from
    )


def _divergence(part: Any) -> int | None:
    """Return where a partition's log diverges from what was fetched, None if it does not."""
    found = getattr(part, "diverging_epoch", None)  # a version before 12 has no such field
    return None if found is None or found.end_offset < 0 else int(found.end_offset)


def list_offsets(
    cluster: Cluster, partitions: Iterable[PartitionKey], timestamp: int, *, committed: bool = False
) -> dict[PartitionKey, int]:
    """Return the first offset at or after a timestamp in each partition, or -1 if no record is that late.

    Raise the errors of `Cluster.ask_leaders`.
    Raise KafkaError, with the partition in front of its message, for the first partition with an error.
    """

    def build(make: Any, topics: dict[str, list[int]]) -> Any:
        wanted = tuple(
            make.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    make.ListOffsetsPartition(
                        partition_index=each, current_leader_epoch=-1, timestamp=timestamp
                    )
                    for each in numbers
                ),
            )
            for name, numbers in topics.items()
        )
        return make.ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=wanted)

    found = cluster.ask_leaders(partitions, ApiKey.LIST_OFFSETS, build)
    for each in found.values():
        if each.error_code:
            raise from_code(each.error_code)
    return {key: each.offset for key, each in found.items()}


def decoded(batches: list[WholeBatch], offset: int) -> Iterator[tuple[int, Record]]:
    """Yield the records from an offset on, each with its timestamp type. Raise CorruptMessage."""
    for batch in batches:
        check_crc(batch.content, 0, batch.header)
        header, plain = open_batch(batch.content)
        kind = APPEND_TIME if header.is_log_append_time else CREATE_TIME
        for record in iter_records_from(header, plain, max(offset, header.base_offset)):
            if record is not None:
                yield kind, record
