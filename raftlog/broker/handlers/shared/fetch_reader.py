"""One pass of a fetch over the partitions of its session: what each has for this reader, within the limits.

A consumer's read ends at the high watermark or the last stable offset, a replica's at the log end. The pass only notes
what it found. `fetch.py` decides whether to respond with it, and waits for what is not in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import EIO
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower
from raftlog.base.types import NO_BROKER
from raftlog.broker.handlers.shared.fetch_response import holds_back, leaves_records, room_of_response
from raftlog.broker.network.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
)
from raftlog.broker.partition_lookup import choose_read_replica, locate
from raftlog.broker.rights import TOPIC, connection_may, refusal
from raftlog.protocol.fetch import FetchRequest
from raftlog.replication.replica_host import PartitionRead, ReplicaId
from raftlog.security.acls import Operation

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection
    from raftlog.replication.partition import Partition

READ_COMMITTED: Final = 1

FIRST_FOLLOWER_READ_VERSION: Final = 11
"""Since then followers serve consumers (KIP-392)."""

PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions that one fetch reads between two turns of the loop, some 10 µs each."""


class FetchReader:
    """Reads the partitions of a fetch, and keeps the findings of its last pass over them."""

    __slots__ = (
        "cold",
        "connection",
        "full",
        "has_enough",
        "has_high_watermarks",
        "is_withheld",
        "leader_only",
        "max_bytes",
        "min_bytes",
        "rack",
        "read_committed",
        "replica",
        "session",
        "size_bytes",
    )

    def __init__(
        self,
        connection: Connection,
        request: FetchRequest,
        session: FetchSession,
        replica: ReplicaId | None,
        *,
        version: int,
    ) -> None:
        self.connection = connection
        self.session = session
        self.replica = replica
        self.leader_only = version < FIRST_FOLLOWER_READ_VERSION
        is_rack_aware = connection.server.config.replica_selector_class == RACK_AWARE_SELECTOR
        self.rack = request.rack_id if is_rack_aware and replica is None else ""
        """The consumer's rack if this broker may name a replica there, or empty."""
        self.full = request.session_epoch <= INITIAL_EPOCH or session.session_id == NO_SESSION
        """Whether the response has all partitions, and not only those with news."""
        self.read_committed = request.isolation_level == READ_COMMITTED
        self.max_bytes = min(max(0, request.max_bytes), connection.server.fetch_max_bytes)
        if connection.limits is not None:
            self.max_bytes = min(self.max_bytes, connection.limits.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        # What the last pass found.
        self.size_bytes = 0
        """The size of the records, with the limit of each cold read."""
        self.cold: list[ColdRead] = []
        """The reads that have to wait for the disk."""
        self.has_enough = False
        """Whether that is worth a response now."""
        self.is_withheld = False
        """Whether records are left out only for lack of memory."""
        self.has_high_watermarks = True
        """Whether it included partitions with only a new high watermark."""

    def read_all(self) -> bool:
        """Read every partition that is not dry; return whether that is worth a response now."""
        for _ in self.slices():
            pass
        return self.has_enough

    def slices(self) -> Iterator[None]:
        """Read every partition that is not dry, and stop after every PARTITIONS_AT_ONCE."""
        session = self.session
        most = self.max_bytes
        is_short = withheld = False
        if session.replica:
            self.has_high_watermarks = session.include_high_watermarks(self.connection.server.loop.time())
        if self.replica is None:
            room, is_short = room_of_response(self.connection.server.memory.answers)
            most = min(most, room)
        left, total, read_at_once = most, 0, 0
        urgent = False
        self.cold.clear()
        for entry in tuple(session.ready):
            read_at_once += 1
            if read_at_once == PARTITIONS_AT_ONCE:
                read_at_once = 0
                yield
            limit = left if left < entry.max_bytes else entry.max_bytes
            min_one = total == 0 and not is_short
            read = entry.read = self._read(entry, limit, min_one=min_one)
            records = read.records
            entry.dry = False
            if records is None:
                cold = partial(ColdRead, entry, read, limit=limit, end_offset=self.end_of(entry, read))
                self.cold.append(cold(min_one=min_one, for_consumer=self.replica is None))
                total += limit
            elif records:
                total += len(records)
            elif entry.held and not read.error_code and read.diverging is None:
                continue  # read again with the next fetch
            elif read.error_code or read.diverging is not None or read.preferred_read_replica != NO_BROKER:
                urgent = True  # an error, a point to truncate to, or a replica to fetch from
            elif entry.offset >= self.end_of(entry, read):
                self._note_dry(entry, read)
                urgent |= entry.wants_high_watermark and entry.differs(read)
            elif is_short:
                withheld = True
            else:
                urgent = True  # records that do not fit any more
            left = most - total if total < most else 0
        self.size_bytes = total
        self.is_withheld = withheld
        self.has_enough = urgent or bool(self.cold) or total >= min(self.min_bytes, max(most, 1))
        if total and not self.has_enough:
            self.has_enough = leaves_records(session, self.end_of)

    def _note_dry(self, entry: SessionPartition, read: PartitionRead) -> None:
        """Have the partition wake the session, and leave the entry out of the response if it has no news."""
        session = self.session
        entry.dry = True
        # A fetch without a session parks its entries once it waits. From then on its session is woken for them, and
        # an entry that had nothing to read must be parked again.
        if session.session_id != NO_SESSION or session.fetch is not None:
            session.park(entry)
        if self.full or not entry.differs(read):
            del session.ready[entry]
        elif not self.has_high_watermarks and not entry.wants_high_watermark:
            del session.ready[entry]
            session.changed_high_watermarks[entry] = None

    def _read(self, entry: SessionPartition, max_bytes: int, *, min_one: bool) -> PartitionRead:
        partition = entry.partition
        broker = self.connection.server.broker
        image = broker.image()
        # A session keeps references to replica objects, so a fetch of a thousand partitions needs no lookups. Every
        # new image may have moved, deleted or recreated any of them, so each entry is looked up once after that.
        is_doubted = broker.silent_members and self.replica is None
        if partition is None or entry.image is not image or is_doubted:
            try:
                if broker.authorizer is not None and not connection_may(
                    self.connection, Operation.READ, entry.topic
                ):
                    raise refusal(TOPIC)
                partition = locate(broker, entry.topic, entry.index, for_follower=self.replica is not None)
            except KafkaError as error:
                self.session.attach(entry, None)
                return PartitionRead(error.code, -1, -1, -1, b"", aborted=())
            entry.image = image
            if self.session.session_id == NO_SESSION and not self.session.by_partition:
                entry.partition = partition  # if it has to wait, it is attached then
            elif partition is not entry.partition:
                self.session.attach(entry, partition)
        # Noted at each read, not when the wait begins: later appends count towards min.bytes.
        if self.min_bytes > 1:
            entry.seen_bytes, entry.seen_role = partition.log.size_bytes, partition.role
        # DeleteRecords waits for the least log start of all replicas (KIP-107). A follower sends its own as it
        # fetches.
        replica = self.replica
        is_new = entry.moved
        if replica is not None and is_new:
            partition.note_log_start(replica, entry.log_start_offset)
        entry.held = (
            replica is not None
            and broker.replicas.sent.is_limited
            and holds_back(broker.replicas, replica, entry, partition)
        )
        if self.rack:
            preferred = choose_read_replica(
                broker, partition, entry.offset, rack=self.rack, listener=self.connection.listener
            )
            if preferred != NO_BROKER:
                return self._redirect(entry, partition, preferred)
        # A throttled follower gets no records, but its fetch is noted: the leader learns the follower's position from
        # it.
        read = partition.read(
            entry.offset,
            0 if entry.held else max_bytes,
            min_one=min_one and not entry.held,
            current_leader_epoch=entry.current_leader_epoch,
            last_fetched_epoch=entry.last_fetched_epoch,
            read_committed=self.read_committed,
            replica=replica,
            is_new=is_new,
            leader_only=self.leader_only,
        )
        if read.error_code:
            entry.image = None  # perhaps another replica object serves it by now
        else:
            entry.moved = False
        return read

    def _redirect(self, entry: SessionPartition, partition: Partition, preferred: int) -> PartitionRead:
        """Check the consumer's position and epoch here. If both are right, name the replica instead of records."""
        read = partition.read(
            entry.offset,
            0,
            current_leader_epoch=entry.current_leader_epoch,
            last_fetched_epoch=entry.last_fetched_epoch,
            read_committed=self.read_committed,
        )
        if read.error_code or read.diverging is not None:
            return read
        return read._replace(records=b"", preferred_read_replica=preferred)

    def end_of(self, entry: SessionPartition, read: PartitionRead) -> int:
        """Return the offset that this reader may not read past."""
        if self.replica is not None and entry.partition is not None:
            return entry.partition.log.log_end_offset
        return read.last_stable_offset if self.read_committed else read.high_watermark

    def finish_cold(self, reads: list[PartitionRead]) -> None:
        """Take the results of the cold reads, in their order."""
        for cold, read in zip(self.cold, reads, strict=True):
            cold.entry.read = cold.finish(read)
        self.cold.clear()
        found = [each.read for each in self.session.ready if each.read is not None]
        self.size_bytes = sum(len(read.records) for read in found if read.records)


class ColdRead:
    """A read that has to wait for the disk. It is created on the loop and run away from it. It uses only the log."""

    __slots__ = (
        "_aborted",
        "_disk_error",
        "_end_offset",
        "_for_consumer",
        "_limit",
        "_min_one",
        "_offset",
        "_partition",
        "_read",
        "_refused",
        "_role",
        "_truncation_count",
        "entry",
    )

    def __init__(
        self,
        entry: SessionPartition,
        read: PartitionRead,
        *,
        limit: int,
        end_offset: int,
        min_one: bool,
        for_consumer: bool,
    ) -> None:
        """`limit` in bytes; `end_offset` is the offset that the reader may not read past."""
        assert entry.partition is not None
        self.entry = entry
        self._read = read
        self._disk_error: OSError | None = None
        self._refused: KafkaError | None = None
        self._partition = entry.partition
        self._role = entry.partition.role
        self._truncation_count = entry.partition.log.truncation_count
        self._offset = entry.offset
        self._limit = limit
        self._end_offset = end_offset
        self._min_one = min_one
        self._for_consumer = for_consumer
        # Determined now, since the segment may be cleaned, and its aborted transactions forgotten, while it is read.
        log = entry.partition.log
        self._aborted = None if read.aborted is None else log.transaction_index.since(entry.offset)

    def run(self) -> PartitionRead:
        """Wait for the disk."""
        log, end = self._partition.log, self._end_offset
        try:
            found = log.read_with_end(
                self._offset, self._limit, end_offset=end, min_one=self._min_one, cached=False
            )
            if self._for_consumer:
                found = log.read_on(found, self._limit, end_offset=end, min_one=self._min_one, cached=False)
        except KafkaError as error:
            self._refused = error
            return PartitionRead(error.code, -1, -1, -1, b"")
        except OSError as error:
            self._disk_error = error
            return PartitionRead(KafkaStorageError.code, -1, -1, -1, b"")
        records, read_end = found
        read = self._read._replace(records=records, end_offset=read_end)
        if self._aborted is None or records is None:
            return read
        return read._replace(aborted=tuple(self._aborted.in_batches(self._offset, records)))

    def finish(self, read: PartitionRead) -> PartitionRead:
        """Return the result on the loop, if the replica had the same role all the while, and did not truncate its log.

        A follower truncates and overwrites its log (KAFKA-18723). A failing disk goes offline; a file that retention
        deleted meanwhile is not a failure.
        """
        partition, error = self._partition, self._disk_error
        refused = None if self._refused is None else partition.read_error_for_client(self._refused)
        if error is not None and error.errno == EIO:
            partition.storage_failed(error)
        if partition.role is not self._role or partition.log.truncation_count != self._truncation_count:
            error_code = NotLeaderOrFollower.code if error is None else read.error_code
            return PartitionRead(error_code, -1, -1, -1, b"")
        return read if refused is None else read._replace(error_code=refused.code)
