"""The response of every role of a replica to a request that only a leader serves, and the reads of consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.base.disk import Buffer
from raftlog.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower
from raftlog.base.types import NO_EPOCH, EpochEnd
from raftlog.metadata.image import PartitionState
from raftlog.replication.divergence import check_position
from raftlog.replication.replica_host import CommitWaiter, PartitionRead, ReplicaId, TxnMarker

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.producers import ActiveProducer, LogAppendInfo
    from raftlog.storage.verification import Verification

Search = Callable[[], tuple[int, int, int] | None]


class ReplicaRole:
    """A role that does not lead: each request is refused with the role's error."""

    __slots__ = ("error", "leader_epoch", "partition")

    def __init__(self, partition: Partition, error: type[KafkaError] = NotLeaderOrFollower) -> None:
        self.partition = partition
        self.error = error
        self.leader_epoch = NO_EPOCH

    def append_produced(
        self, records: memoryview, *, acks: int, now_ms: int, max_timestamp: int | None = None
    ) -> LogAppendInfo:
        raise self.error()

    def begin_verification(self, producer_id: int, epoch: int) -> Verification | None:
        raise self.error()

    def append_coordinator_batch(self, batch: bytes, *, now_ms: int) -> LogAppendInfo:
        raise self.error()

    def append_marker(self, marker: TxnMarker, *, now_ms: int) -> int:
        raise self.error()

    def active_producers(self) -> list[ActiveProducer]:
        raise self.error()

    def await_commit(self, end_offset: int, waiter: CommitWaiter) -> None:
        waiter.failed(self.partition, self.error())

    def read_as_consumer(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        last_fetched_epoch: int,
        read_committed: bool,
    ) -> PartitionRead:
        raise self.error()

    def read_as_replica(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        last_fetched_epoch: int,
        replica: ReplicaId,
        is_new: bool,
    ) -> PartitionRead:
        raise self.error()

    def offset_for_timestamp(
        self, timestamp_ms: int, *, read_committed: bool, replica: bool, search: Search | None
    ) -> tuple[int, int, int] | None:
        raise self.error()

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        raise self.error()

    def delete_records(self, offset: int) -> int:
        raise self.error()

    def note_log_start(self, replica: ReplicaId, log_start_offset: int) -> None:
        """Note where a follower's log now begins; only a leader remembers it."""

    def low_watermark(self) -> int:
        raise self.error()

    def note_counted_end(self, end_offset: int) -> None:
        """Note up to where this replica's own log counts; only a leader's high watermark depends on it."""

    def resign(self, error: type[KafkaError]) -> None:
        """Leave this role and fail its waiting requests with `error`."""

    def update(self, state: PartitionState) -> None:
        """Take over a newer partition state of the same leader epoch."""

    def reevaluate_isr(self) -> None:
        """Re-evaluate the ISR and the high watermark after an outside change (brokers, config, time)."""


class ReadableRole(ReplicaRole):
    """A role that serves consumers what this replica knows to be committed: the leader's, or a follower's (KIP-392)."""

    __slots__ = ()

    def read_as_consumer(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        last_fetched_epoch: int,
        read_committed: bool,
    ) -> PartitionRead:
        partition = self.partition
        log = partition.log
        refused = check_position(log, self.leader_epoch, offset, last_fetched_epoch)
        if refused is not None:
            return self._refuse(*refused)
        high_watermark = partition.high_watermark
        stable = partition.last_stable_offset
        end = stable if read_committed else high_watermark
        read: tuple[Buffer | None, int] = b"", offset
        aborted: tuple[tuple[int, int], ...] | None = None
        if offset < end:
            read = log.read_with_end(offset, max_bytes, end_offset=end, min_one=min_one)
            if log.has_old_reads:
                partition.host.touch(partition)
                read = log.read_on(read, max_bytes, end_offset=end, min_one=min_one)
        records, read_end = read
        if read_committed:
            aborted = tuple(log.transaction_index.in_batches(offset, records)) if records is not None else ()
        return PartitionRead(
            0, high_watermark, stable, log.log_start_offset, records, None, aborted, read_end
        )

    def _refuse(self, error: int, diverging: EpochEnd | None) -> PartitionRead:
        """Return the response to a reader whose position is out of range, or whose log diverges at `diverging`."""
        partition = self.partition
        start = partition.log.log_start_offset
        return PartitionRead(
            error, partition.high_watermark, partition.last_stable_offset, start, b"", diverging
        )


class FailedRole(ReplicaRole):
    """A follower that would have had to truncate committed records: it neither fetches nor serves in this leader epoch.

    Kafka calls this a failed partition of its fetcher. `reason` is for people.
    """

    __slots__ = ("reason",)

    def __init__(self, partition: Partition, reason: str) -> None:
        super().__init__(partition, KafkaStorageError)
        self.leader_epoch = partition.leader_epoch
        self.reason = reason


class OfflineRole(ReplicaRole):
    """The replica's disk failed, or the replica was removed: it is neither read nor written any more."""

    __slots__ = ()

    def __init__(self, partition: Partition, error: type[KafkaError] = KafkaStorageError) -> None:
        super().__init__(partition, error)
