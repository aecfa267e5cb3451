"""One replica of one partition on this broker: its log, its high watermark, and the role that the metadata assigns.

It must not know connections, tasks or clocks: it is driven by plain calls on one thread and calls its `ReplicaHost`.
Ordering law of a role change: the old role ends and fails its waiting requests. Then the new role begins; then parked
fetches wake and read their error.

A damaged log is trusted again in three cases only. It holds all that it held before; the leader took it back into the
ISR; an unclean election chose it in this epoch. Until then it does not count as in sync and takes no records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from raftlog.base.config import TopicConfig
from raftlog.base.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    NewLeaderElected,
    NotLeaderOrFollower,
    OperationNotAttempted,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.base.types import NO_EPOCH, NO_OFFSET, EpochEnd, TopicPartition
from raftlog.metadata.broker_requests import IsrChange, IsrChangeResult
from raftlog.metadata.image import PartitionState
from raftlog.records.header import read_header
from raftlog.records.validation import NeedsStepwiseValidation
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.replica_host import (
    CommitWaiter,
    FetchWaiter,
    PartitionRead,
    ReplicaFetchWaiter,
    ReplicaHost,
    ReplicaId,
    TxnMarker,
)
from raftlog.replication.role import FailedRole, OfflineRole, ReplicaRole, Search
from raftlog.replication.traffic import Traffic
from raftlog.storage.log import Log
from raftlog.storage.producers import ActiveProducer, LogAppendInfo
from raftlog.storage.verification import Verification

FAILED_ADVICE: Final = (
    "compare the replicas; elect one that has the records, or remove the folder of this one"
)

ISR_CHANGE_REJECTED = frozenset({IneligibleReplica.code, OperationNotAttempted.code})
"""AlterPartition errors that are certain: the change was refused, and no other change came first."""

ISR_CHANGE_STALE = frozenset(
    error.code
    for error in (
        FencedLeaderEpoch,
        InvalidRequest,
        InvalidUpdateVersion,
        NewLeaderElected,
        UnknownTopicId,
        UnknownTopicOrPartition,
    )
)
"""AlterPartition errors of a controller with a newer state of the partition, which the image will bring."""


class Partition:
    """One replica. Offsets are exclusive ends; `high_watermark` is the first offset that is not committed."""

    __slots__ = (
        "_left_isr",
        "_replicas",
        "_wake_pending",
        "high_watermark",
        "host",
        "index",
        "log",
        "low_watermark_waiters",
        "partition_epoch",
        "role",
        "topic",
        "topic_id",
        "traffic",
        "waiting_consumers",
    )

    def __init__(
        self, name: TopicPartition, topic_id: UUID, *, log: Log, host: ReplicaHost, high_watermark: int = 0
    ) -> None:
        """`high_watermark` is the last checkpointed value, lowered to the log's end and to any truncation."""
        if log.truncated_to is not None:
            high_watermark = min(high_watermark, log.truncated_to)
        self.topic, self.index = name
        self.topic_id = topic_id
        self.log = log
        self.host = host
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log.on_high_watermark_updated(self.high_watermark)  # it was known before, and may not move any more
        self.partition_epoch = NO_EPOCH
        self.role: ReplicaRole | LeaderRole | FollowerRole = ReplicaRole(self)
        self.waiting_consumers: dict[FetchWaiter, None] = {}
        """The parked fetches and fetch sessions of consumers."""
        self._replicas: dict[ReplicaFetchWaiter, None] = {}
        self.low_watermark_waiters: tuple[Callable[[], None], ...] = ()
        """Called when the low watermark may have moved, or this replica leads no more."""
        self._wake_pending = False
        self.traffic = Traffic()
        """The traffic counters of its topic, once the broker has set them."""
        self._left_isr = False
        """With a damaged log: the metadata was seen to count without this replica."""

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def is_leader(self) -> bool:
        return type(self.role) is LeaderRole

    def in_sync(self, broker_id: int) -> bool | None:
        """Return whether a replica is in the ISR as this leader knows it; None where this replica does not lead."""
        role = self.role
        return broker_id in role.isr.committed if type(role) is LeaderRole else None

    @property
    def leader_epoch(self) -> int:
        """-1 before the first metadata, or offline."""
        return self.role.leader_epoch

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers may see: before the first open transaction, and in the log.

        A consumer with auto.offset.reset=latest begins here.
        """
        log, high_watermark = self.log, self.high_watermark
        unstable = log.first_unstable_offset
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        assert log.log_start_offset <= stable <= high_watermark <= log.log_end_offset
        return stable

    def limit_high_watermark(self) -> None:
        """Lower the high watermark to the log's end, after the log may have been truncated.

        Such a log may have read back the markers of transactions, and those below the high watermark are committed.
        """
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.log.on_high_watermark_updated(self.high_watermark)

    @property
    def durable_end_offset(self) -> int:
        """The end up to which this replica may count its own log: flushed, or written if log.flush.policy=os."""
        return self.log.flushed_end_offset if self.host.flush_before_commit else self.log.log_end_offset

    def configure(self, config: TopicConfig) -> None:
        self.log.config = config
        self.role.reevaluate_isr()

    # -- roles --------------------------------------------------------------------------------------------------

    def reconcile(self, state: PartitionState) -> None:
        """Take the role that the metadata assigns. Older states are ignored: an answer may outrun the image."""
        role = self.role
        if type(role) is OfflineRole:
            return
        if (state.leader_epoch, state.partition_epoch) > (self.leader_epoch, self.partition_epoch):
            self._weigh_damage(state)
        if state.leader_epoch > self.leader_epoch:
            self._change_role(state)
        elif state.leader_epoch == self.leader_epoch and state.partition_epoch > self.partition_epoch:
            self.partition_epoch = state.partition_epoch
            role.update(state)

    def _weigh_damage(self, state: PartitionState) -> None:
        """Accept a damaged log if the metadata trusts this replica again (see the module)."""
        if self.log.damage is None:
            self._left_isr = False
            return
        me = self.host.broker_id
        chosen = state.leader == me and state.unclean_epoch == state.leader_epoch > self.leader_epoch
        if me not in state.trusted:
            self._left_isr = True
        elif self._left_isr or chosen:
            self._accept_damage(chosen=chosen)

    def _accept_damage(self, *, chosen: bool) -> None:
        damage = self.log.damage
        assert damage is not None
        try:
            self.log.accept_damage()
        except OSError as error:
            self.storage_failed(error)
            return
        self.limit_high_watermark()
        event = "damaged_log_accepted" if chosen else "damaged_log_repaired"
        self.host.log_event(event, self, offset=damage.offset, log_end_offset=self.log.log_end_offset)

    def _change_role(self, state: PartitionState) -> None:
        self.role.resign(NotLeaderOrFollower)
        self.partition_epoch = state.partition_epoch
        role: LeaderRole | FollowerRole
        role = LeaderRole(self, state) if state.leader == self.host.broker_id else FollowerRole(self, state)
        self.role = role
        try:
            role.begin()
        except OSError as error:
            self.storage_failed(error)
        self.high_watermark_moved()
        self.log_end_moved()
        self.low_watermark_moved()

    def go_offline(self, error: type[KafkaError] = KafkaStorageError) -> None:
        """Refuse all requests from now on: the disk failed or, with another error, the replica was removed."""
        role = self.role
        if type(role) is OfflineRole:
            return
        self.role = OfflineRole(self, error)
        role.resign(error)
        self.high_watermark_moved()
        self.log_end_moved()
        self.low_watermark_moved()

    def fail_following(self, reason: str) -> None:
        """Stop following until another leader is elected; the log stays as it is, for an operator to examine."""
        self.role = FailedRole(self, reason)
        self.host.log_event("replica_failed", self, reason=reason, advice=FAILED_ADVICE)
        self.host.log_damaged(self)
        self.high_watermark_moved()

    def cut_damage(self) -> bool:
        """Cut off damage that a reader found, so that a follower fetches it again. Return whether there was any."""
        role = self.role
        try:
            return type(role) is FollowerRole and role.cut_damage()
        except OSError as error:
            self.storage_failed(error)
            return False

    def has_lost_leader(self) -> bool:
        """Return whether this follower serves no consumers: its leader was silent for replica.lag.time.max.ms."""
        role = self.role
        return type(role) is FollowerRole and role.has_lost_leader(self.host.now())

    @property
    def failure(self) -> str | None:
        """Why this replica follows no leader though the metadata has it follow; or None."""
        return self.role.reason if type(self.role) is FailedRole else None

    def stop_replica(self, *, elsewhere: bool = False) -> None:
        """Refuse all requests: the topic was deleted or, if it goes on `elsewhere`, the replica moved away."""
        self.go_offline(NotLeaderOrFollower if elsewhere else UnknownTopicOrPartition)

    def reevaluate_isr(self) -> None:
        """Re-evaluate the ISR after brokers came, went or changed: an idle follower may now join it."""
        self.role.reevaluate_isr()

    def maybe_shrink_isr(self) -> None:
        """Propose to drop ISR members that lag; also let the high watermark advance without a stalled joiner. Leader
        only.
        """
        if type(self.role) is LeaderRole:
            self.role.maybe_shrink_isr()

    def storage_failed(self, error: OSError) -> KafkaStorageError:
        """Report the disk failure, and return the error for the client."""
        self.host.storage_failed(self, error)
        return KafkaStorageError()

    # -- serving ------------------------------------------------------------------------------------------------

    def append_produced(
        self, records: memoryview, *, acks: int, now_ms: int, max_timestamp: int | None = None
    ) -> LogAppendInfo:
        """Validate and append one produced batch; a duplicate returns the offsets of its original.

        Raise NotLeaderOrFollower; NotEnoughReplicas (acks -1, ISR below min.insync.replicas, batch not appended);
        KafkaStorageError; and the errors of the batch and its producer. NeedsStepwiseValidation: walk its records
        (`records.validation`) and call again with their `max_timestamp`.
        """
        traffic = self.traffic
        traffic.produces += 1
        try:
            appended = self.role.append_produced(
                records, acks=acks, now_ms=now_ms, max_timestamp=max_timestamp
            )
        except NeedsStepwiseValidation:
            traffic.produces -= 1
            raise
        except OSError as error:
            traffic.failed_produces += 1
            raise self.storage_failed(error) from error
        except KafkaError:
            traffic.failed_produces += 1
            raise
        if not appended.duplicate:
            traffic.messages_in += appended.end_offset - appended.base_offset
            traffic.bytes_in += len(records)
        return appended

    def begin_verification(self, producer_id: int, epoch: int) -> Verification | None:
        """Return what a transaction's coordinator must confirm before its first batch here; None if not required
        (KIP-890). Leader only.

        Raises NotLeaderOrFollower, InvalidProducerEpoch.
        """
        return self.role.begin_verification(producer_id, epoch)

    def note_refused_batch(self, records: memoryview, error: KafkaError) -> None:
        """Remember a batch that was refused for a temporary reason: later batches of its producer wait until it comes
        again.
        """
        try:
            header = read_header(records)
        except CorruptMessage:
            return
        self.log.producers.note_refused_batch(header, error)

    def append_coordinator_batch(self, batch: bytes, *, now_ms: int) -> LogAppendInfo:
        """Append a batch that a coordinator on this broker writes in a producer's transaction, without a sequence.

        Wait for its commit. InvalidTxnState without a confirmed transaction; else as `append_produced`.
        """
        try:
            return self.role.append_coordinator_batch(batch, now_ms=now_ms)
        except OSError as error:
            raise self.storage_failed(error) from error

    def append_marker(self, marker: TxnMarker, *, now_ms: int) -> int:
        """End a producer's transaction here; return the offset to wait for (a marker is not written twice).

        NotLeaderOrFollower, NotEnoughReplicas, TransactionCoordinatorFenced, InvalidProducerEpoch (a newer epoch
        wrote), InvalidTxnState (another transaction is open).
        """
        try:
            return self.role.append_marker(marker, now_ms=now_ms)
        except OSError as error:
            raise self.storage_failed(error) from error

    def active_producers(self) -> list[ActiveProducer]:
        """Return the producers that the log knows; of a follower, as far as it has fetched."""
        return self.role.active_producers()

    def await_commit(self, end_offset: int, waiter: CommitWaiter) -> None:
        """Call `waiter` when the high watermark reaches `end_offset`, perhaps at once, or when it cannot."""
        self.role.await_commit(end_offset, waiter)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool = False,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        read_committed: bool = False,
        replica: ReplicaId | None = None,
        is_new: bool = True,
        leader_only: bool = True,
    ) -> PartitionRead:
        """Read whole batches from the batch that holds `offset`; errors come as `error_code`.

        Consumers see what is committed, replicas everything. A replica's read also acknowledges what it has flushed,
        unless it repeats a waiting fetch (not `is_new`). `min_one`: the first batch comes even if it is longer than
        `max_bytes`. Without `leader_only` a follower serves consumers, too.
        """
        try:
            role = self.role
            if 0 <= current_leader_epoch != role.leader_epoch:
                self._check_leader_epoch(current_leader_epoch)
            if replica is None:
                if leader_only and type(role) is FollowerRole:
                    raise role.error()
                return role.read_as_consumer(
                    offset,
                    max_bytes,
                    min_one=min_one,
                    last_fetched_epoch=last_fetched_epoch,
                    read_committed=read_committed,
                )
            return role.read_as_replica(
                offset,
                max_bytes,
                min_one=min_one,
                last_fetched_epoch=last_fetched_epoch,
                replica=replica,
                is_new=is_new,
            )
        except KafkaError as error:
            return PartitionRead(self.read_error_for_client(error).code, NO_OFFSET, NO_OFFSET, NO_OFFSET, b"")
        except OSError as error:
            return PartitionRead(self.storage_failed(error).code, NO_OFFSET, NO_OFFSET, NO_OFFSET, b"")

    def read_error_for_client(self, error: KafkaError) -> KafkaError:
        """Return the error for a reader after a failed read: a damaged log is not the client's fault."""
        if not isinstance(error, CorruptMessage) or self.log.damage is None:
            return error
        self.host.log_damaged(self)
        return KafkaStorageError()

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = NO_EPOCH,
        read_committed: bool = False,
        replica: bool = False,
        search: Search | None = None,
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) for ListOffsets, specials -1 … -6 included; None if there is no
        such record.

        `search` returns the result of the log's own search, if that ran elsewhere already. Raise OffsetNotAvailable for
        the end, until this leader has committed up to the start of its epoch (KIP-207).
        """
        self._check_leader_epoch(current_leader_epoch)
        try:
            return self.role.offset_for_timestamp(
                timestamp_ms, read_committed=read_committed, replica=replica, search=search
            )
        except OSError as error:
            raise self.storage_failed(error) from error

    def epoch_end(self, leader_epoch: int, *, current_leader_epoch: int = NO_EPOCH) -> EpochEnd:
        """Return where the largest epoch ≤ `leader_epoch` ends in the leader's log, for OffsetForLeaderEpoch."""
        self._check_leader_epoch(current_leader_epoch)
        return self.role.epoch_end(leader_epoch)

    def delete_records(self, offset: int) -> int:
        """Drop what lies before `offset` (-1: all that is committed). Return the new log start."""
        try:
            return self.role.delete_records(offset)
        except OSError as error:
            raise self.storage_failed(error) from error

    def note_log_start(self, replica: ReplicaId, log_start_offset: int) -> None:
        """Note where a follower's log begins, as its fetch says."""
        self.role.note_log_start(replica, log_start_offset)

    def low_watermark(self) -> int:
        """Return the offset below which no replica in service has records. Raise NotLeaderOrFollower."""
        return self.role.low_watermark()

    def _check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise if the client's leader epoch is not this replica's (KIP-320); -1, in a fetch any negative, passes."""
        if current_leader_epoch in (NO_EPOCH, self.role.leader_epoch):
            return
        if type(self.role) is OfflineRole:
            raise self.role.error()
        raise FencedLeaderEpoch() if current_leader_epoch < self.role.leader_epoch else UnknownLeaderEpoch()

    # -- what happens around it ---------------------------------------------------------------------------------

    def note_flushed(self, end_offset: int) -> None:
        """Note that everything of this log before `end_offset` is on disk.

        Under log.flush.policy=os later writes count already, and a sync does not revoke them.
        """
        self.role.note_counted_end(end_offset if self.host.flush_before_commit else self.log.log_end_offset)

    def pending_isr_change(self) -> IsrChange | None:
        """Return the ISR change to send to the controller, or None. It stays the same until it is answered."""
        return self.role.pending_isr_change() if type(self.role) is LeaderRole else None

    def complete_isr_change(self, change: IsrChange, answer: IsrChangeResult) -> bool:
        """Apply the controller's answer to `change`; True: retry after a while.

        If another change came first, the proposal stays (it counts) until the image shows the result.
        """
        role = self.role
        current = change.leader_epoch == role.leader_epoch and change.partition_epoch == self.partition_epoch
        if type(role) is not LeaderRole or not current:
            return False
        if answer.error_code == 0:
            if answer.leader_epoch == role.leader_epoch and answer.partition_epoch > self.partition_epoch:
                self.partition_epoch = answer.partition_epoch
                role.adopt_isr(answer.isr, answer.eligible)
            return False
        if answer.error_code in ISR_CHANGE_REJECTED:
            role.revert_isr_change()
            return False
        return answer.error_code not in ISR_CHANGE_STALE

    # -- waiting fetches --------------------------------------------------------------------------------------------

    def park(self, waiter: FetchWaiter) -> None:
        """Wake this consumer's fetch when the high watermark moves, until it is unparked."""
        self.waiting_consumers[waiter] = None
        self.host.awaited[self] = None

    def park_replica(self, waiter: ReplicaFetchWaiter) -> None:
        """Wake this follower's session when the log end moves, until it is unparked."""
        self._replicas[waiter] = None

    def unpark(self, waiter: FetchWaiter) -> None:
        """Remove a waiter; it need not be parked."""
        self.waiting_consumers.pop(waiter, None)
        self._replicas.pop(waiter, None)  # type: ignore[call-overload]  # a consumer's is simply not there

    def high_watermark_moved(self) -> None:
        """Wake the waiting consumers, once per loop iteration however often it moves."""
        if self._replicas:
            for session in tuple(self._replicas):
                session.high_watermark_moved(self)
        if self.waiting_consumers and not self._wake_pending:
            self._wake_pending = True
            self.host.wake_waiters(self)

    def low_watermark_moved(self) -> None:
        """Have the deletions of records that wait check it again."""
        for waiter in self.low_watermark_waiters:
            waiter()

    def log_start_moved(self) -> None:
        """Put the new log start into the followers' next responses, without waking any fetch."""
        for session in tuple(self._replicas):
            session.log_start_moved(self)

    def log_end_moved(self) -> None:
        """Wake the followers' sessions: they take note, and read once per loop iteration."""
        if self._replicas:
            for session in tuple(self._replicas):
                session.wake(self)

    def wake_parked(self) -> None:
        """Wake parked fetches. The host calls it after `wake_waiters`, at most once per loop iteration."""
        self._wake_pending = False
        for waiter in tuple(self.waiting_consumers):
            waiter.wake(self)
