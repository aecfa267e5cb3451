"""The calls of a replica to the broker that hosts it, and the callbacks of requests that wait on a replica.

A partition never touches a connection, a clock or a task: it uses these. They must not call back into the partition
before they return. `wake_waiters` and `request_flush` only take note, and the broker acts later in the same or the next
loop iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raftlog.base.disk import Buffer
from raftlog.base.errors import KafkaError
from raftlog.base.types import NO_BROKER, NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP, EpochEnd
from raftlog.metadata.image import BrokerState

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition


class ReplicaHost(Protocol):
    """The broker, as far as its replicas see it."""

    broker_id: int
    replica_lag_time_max: float
    """Seconds a follower may stay behind the log end before it leaves the ISR (replica.lag.time.max.ms)."""
    flush_before_commit: bool
    """log.flush.policy=commit: only synced records count. False: written records count (Kafka's contract)."""

    awaited: dict[Partition, None]
    """The partitions with waiting consumers, and some that had any. The host drops those that have none."""

    def now(self) -> float:
        """Return loop seconds."""

    def latest_ms(self) -> int:
        """Return the time of `Ages.latest_ms`: segments of records without timestamps roll and age by it."""

    def broker_epoch(self) -> int:
        """Return this broker's own epoch, -1 before it registered."""

    def brokers(self) -> Mapping[int, BrokerState]:
        """Return every registered broker, from the newest metadata image."""

    def was_deleted(self, topic: str) -> bool:
        """Return whether a topic of this name was deleted in the last minutes, to this broker's knowledge."""

    def request_flush(self, partition: Partition) -> None:
        """Sync the log, since it has bytes that are not durable, and call `partition.note_flushed`."""

    def touch(self, partition: Partition) -> None:
        """Have recurring work visit the replica: it changed in a way that is neither an append nor an event."""

    def wake_waiters(self, partition: Partition) -> None:
        """Call `partition.wake_parked()` once, soon. Not called again until that happened."""

    def heard_of_leader_at(self, partition: Partition) -> float:
        """Return when this follower's leader last answered a fetch of the partition (loop seconds); -inf if never."""

    def fetch_soon(self, partition: Partition) -> None:
        """Fetch a followed partition once more: consumers read here now, and need each new high watermark."""

    def submit_isr_change(self, partition: Partition) -> None:
        """Send `partition.pending_isr_change()` to the controller and pass the answer to
        `partition.complete_isr_change`.
        """

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the log directory offline: the disk refused a write or a read."""

    def log_damaged(self, partition: Partition) -> None:
        """Report to the controller that the log lacks records that it once had, until it is repaired.

        Also called for a replica that failed (`Partition.failure`) and fetches no more. It may be called again, and
        from the thread of a cold read.
        """

    def log_event(self, event: str, partition: Partition, **facts: object) -> None:
        """Put one event on the operator's timeline."""


class CommitWaiter(Protocol):
    """A request that waits for a commit. Exactly one of its methods is called, once."""

    def committed(self, partition: Partition) -> None: ...

    def failed(self, partition: Partition, error: KafkaError) -> None: ...


class FetchWaiter(Protocol):
    """A fetch, or a fetch session, that is parked on a partition until it is unparked."""

    def wake(self, partition: Partition) -> None:
        """Read again: there are more records, or the replica no longer serves. Called at most once per loop
        iteration.
        """


class ReplicaFetchWaiter(FetchWaiter, Protocol):
    """A follower's fetch session: it reads to the log end. Its methods only take note.

    `wake` is called with each append: read once in the next loop iteration.
    """

    def high_watermark_moved(self, partition: Partition) -> None:
        """Respond soon with the new high watermark, although there is no new record."""

    def log_start_moved(self, partition: Partition) -> None:
        """Put the new log start into the next response, although there is no new record."""


class ReplicaId(NamedTuple):
    """A follower with an authenticated broker id (KIP-903)."""

    broker_id: int
    broker_epoch: int


class TxnMarker(NamedTuple):
    """The end of a transaction, as its coordinator decided. `epoch`: the producer's (see `ProducerState.check_marker`).

    `txn_first_offset`: if not -1, the offset that an operator saw, at which the transaction must begin. Then
    `last_sequence` and `last_timestamp` must also match its producer's last batch.
    """

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    txn_first_offset: int = NO_OFFSET
    last_sequence: int = NO_SEQUENCE
    last_timestamp: int = NO_TIMESTAMP


class PartitionRead(NamedTuple):
    """The result of one fetch of one partition; `error_code` other than 0 comes with empty records.

    `records` None: they are not in the page cache; read the log in a thread. `diverging`: the reader's log left
    the leader's at or before this point; it must truncate (KIP-595). `aborted`: (producer id, first offset) of aborted
    transactions, only for read_committed; () as long as `records` is None.
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Buffer | None
    diverging: EpochEnd | None = None
    aborted: tuple[tuple[int, int], ...] | None = None
    end_offset: int = NO_OFFSET
    """The offset after the last batch in `records`."""
    preferred_read_replica: int = NO_BROKER
    """The follower that the consumer should fetch from instead (KIP-392). It comes without records."""
