"""One replica of one partition on this broker: its log, its high watermark, and the role that the metadata gives it.

It must not know connections, tasks or clocks: it is driven by plain calls on one thread and speaks to its `Host`.
Ordering law: a role change ends the old role first (whoever waits is told), then the new one begins, and fetches that
are parked are woken so that they read their error.
"""

from __future__ import annotations

from uuid import UUID

from raftlog.base.config import TopicConfig
from raftlog.base.errors import (
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
from raftlog.metadata.image import PartitionState
from raftlog.metadata.requests import IsrChange, IsrChanged
from raftlog.replication.following import Following
from raftlog.replication.host import (
    CommitWaiter,
    FetchWaiter,
    Host,
    PartitionRead,
    ReplicaFetchWaiter,
    ReplicaId,
)
from raftlog.replication.leading import Leading
from raftlog.replication.resigning import Resigning
from raftlog.replication.role import Offline, Role, Search
from raftlog.storage.log import Appended, Log

GIVEN_UP = frozenset({IneligibleReplica.code, OperationNotAttempted.code})
"""Answers to AlterPartition that say for sure: not done, and nobody else changed the partition."""

OVERTAKEN = frozenset(
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
"""Answers that say: the controller has a newer state of the partition, which the image will bring."""


class Partition:
    """One replica. Offsets are exclusive ends; `high_watermark` is the first offset that is not committed."""

    __slots__ = (
        "_consumers",
        "_in_isr",
        "_progress_told",
        "_replicas",
        "high_watermark",
        "host",
        "index",
        "log",
        "partition_epoch",
        "role",
        "topic",
        "topic_id",
    )

    def __init__(
        self, name: TopicPartition, topic_id: UUID, *, log: Log, host: Host, high_watermark: int = 0
    ) -> None:
        """`high_watermark` is the last checkpointed one; what the log no longer has is taken off."""
        self.topic, self.index = name
        self.topic_id = topic_id
        self.log = log
        self.host = host
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.partition_epoch = NO_EPOCH
        self.role: Role | Leading | Following | Resigning = Role(self)
        self._in_isr = True  # unknown: only a change from False says something
        self._consumers: dict[FetchWaiter, None] = {}
        self._replicas: dict[ReplicaFetchWaiter, None] = {}
        self._progress_told = False

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def is_leader(self) -> bool:
        return type(self.role) is Leading

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
        """The end of what read_committed consumers may see: before the first open transaction."""
        unstable = self.log.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def durable_end_offset(self) -> int:
        """What this replica may count as its own: flushed, or written if log.flush.policy=os."""
        return self.log.flushed_end_offset if self.host.flush_before_commit else self.log.log_end_offset

    def configure(self, config: TopicConfig) -> None:
        self.log.config = config
        self.role.reconsider()

    # -- roles --------------------------------------------------------------------------------------------------

    def reconcile(self, state: PartitionState) -> None:
        """Take the role that the metadata gives. Older states change nothing: an answer may outrun the image."""
        role = self.role
        if type(role) is Offline:
            return
        if state.leader_epoch > self.leader_epoch:
            self.partition_epoch = state.partition_epoch
            self._note_membership(state)
            self._take(self._role_in(state), NotLeaderOrFollower)
        elif state.leader_epoch == self.leader_epoch and state.partition_epoch > self.partition_epoch:
            self.partition_epoch = state.partition_epoch
            self._note_membership(state)
            role.update(state)

    def _role_in(self, state: PartitionState) -> Leading | Following | Resigning:
        if state.leader != self.host.broker_id:
            return Following(self, state)
        if self.log.damage is not None:
            return Resigning(self, state)
        return Leading(self, state)

    def _take(self, role: Leading | Following | Resigning, error: type[KafkaError]) -> None:
        self.role.resign(error)
        self.role = role
        try:
            role.begin()
        except OSError as failed:
            self.storage_failed(failed)
        self.high_watermark_moved()
        self.log_end_moved()

    def _note_membership(self, state: PartitionState) -> None:
        """Who comes into the ISR has proved to its leader that it lacks nothing, or was chosen in spite of it."""
        in_isr = self.host.broker_id in state.isr and not state.isr_lost
        if in_isr and not self._in_isr and self.log.damage is not None:
            self._accept_damage()
        self._in_isr = in_isr

    def _accept_damage(self) -> None:
        self.host.happened("damage_over", self, log_end_offset=self.log.log_end_offset)
        try:
            self.log.accept_damage()
        except OSError as error:
            self.storage_failed(error)

    def heed_damage(self) -> None:
        """Lead no more if a reader found the log damaged: the followers must not be cut to match it."""
        role = self.role
        if type(role) is Leading and self.log.damage is not None:
            state = PartitionState(
                replicas=role.replicas,
                isr=role.isr.committed,
                leader=self.host.broker_id,
                leader_epoch=role.leader_epoch,
                partition_epoch=self.partition_epoch,
            )
            self._take(Resigning(self, state), KafkaStorageError)

    def go_offline(self, error: type[KafkaError] = KafkaStorageError) -> None:
        """The disk failed (or, with another error, the replica is no more): serve nothing from now on."""
        role = self.role
        if type(role) is Offline:
            return
        self.role = Offline(self, error)
        role.resign(error)
        self.high_watermark_moved()
        self.log_end_moved()

    def retire(self) -> None:
        """The topic was deleted or this broker no longer holds a replica."""
        self.go_offline(UnknownTopicOrPartition)

    def reconsider(self) -> None:
        """Brokers came, went or changed: an idle follower may now join the ISR."""
        self.role.reconsider()

    def shrink_laggards(self) -> None:
        """Leader: propose to drop ISR members that lag; also lets the high watermark go on without a stalled joiner."""
        if type(self.role) is Leading:
            self.role.shrink_laggards()

    def storage_failed(self, error: OSError) -> KafkaStorageError:
        """Report the disk, and return what to tell the client."""
        self.host.storage_failed(self, error)
        return KafkaStorageError()

    # -- serving ------------------------------------------------------------------------------------------------

    def append_produced(self, records: memoryview, *, acks: int, now_ms: int) -> Appended:
        """Validate and append one produced batch; a duplicate gives the offsets of its original.

        NotLeaderOrFollower; NotEnoughReplicas (acks -1, ISR below min.insync.replicas, nothing appended);
        KafkaStorageError; and what the batch and its producer may have wrong.
        """
        try:
            return self.role.append_produced(records, acks=acks, now_ms=now_ms)
        except OSError as error:
            raise self.storage_failed(error) from error
        except KafkaStorageError:
            self.heed_damage()
            raise

    def await_commit(self, end_offset: int, waiter: CommitWaiter) -> None:
        """Tell `waiter` when the high watermark reached `end_offset`, perhaps at once, or why it will not."""
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
        cached: bool = True,
    ) -> PartitionRead:
        """Read whole batches from the one that holds `offset`; errors come as `error_code`.

        Consumers see what is committed, replicas everything; a replica's read also says what it has flushed.
        `min_one`: the first batch comes even if it is longer than `max_bytes`. `cached`: see PartitionRead.records.
        """
        try:
            role = self.role
            if 0 <= current_leader_epoch != role.leader_epoch:
                self._check_leader_epoch(current_leader_epoch)
            if replica is None:
                return role.read_as_consumer(
                    offset,
                    max_bytes,
                    min_one=min_one,
                    last_fetched_epoch=last_fetched_epoch,
                    read_committed=read_committed,
                    cached=cached,
                )
            return role.read_as_replica(
                offset,
                max_bytes,
                min_one=min_one,
                last_fetched_epoch=last_fetched_epoch,
                replica=replica,
                cached=cached,
            )
        except KafkaError as error:
            if self.log.damage is not None:
                self.heed_damage()
            return PartitionRead(error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, b"")
        except OSError as error:
            return PartitionRead(self.storage_failed(error).code, NO_OFFSET, NO_OFFSET, NO_OFFSET, b"")

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = NO_EPOCH,
        read_committed: bool = False,
        replica: bool = False,
        search: Search | None = None,
    ) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) for ListOffsets, specials -1 … -6 included; None: there is no such record.

        `search` gives what the log's own search found, where that happened elsewhere already.

        OffsetNotAvailable until this leader has committed up to the start of its epoch (KIP-207).
        """
        self._check_leader_epoch(current_leader_epoch)
        try:
            return self.role.offset_for_timestamp(
                timestamp_ms, read_committed=read_committed, replica=replica, search=search
            )
        except OSError as error:
            raise self.storage_failed(error) from error

    def epoch_end(self, leader_epoch: int, *, current_leader_epoch: int = NO_EPOCH) -> EpochEnd:
        """OffsetForLeaderEpoch: where the largest epoch ≤ `leader_epoch` ends in the leader's log."""
        self._check_leader_epoch(current_leader_epoch)
        return self.role.epoch_end(leader_epoch)

    def delete_records(self, offset: int) -> int:
        """Leader: drop what lies before `offset` (-1: all that is committed); returns the log start (low watermark)."""
        try:
            return self.role.delete_records(offset)
        except OSError as error:
            raise self.storage_failed(error) from error

    def _check_leader_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: the asker's epoch must be this replica's; -1 does not ask."""
        if current_leader_epoch < 0 or current_leader_epoch == self.role.leader_epoch:
            return
        if type(self.role) is Offline:
            raise self.role.error()
        raise FencedLeaderEpoch() if current_leader_epoch < self.role.leader_epoch else UnknownLeaderEpoch()

    # -- what happens around it ---------------------------------------------------------------------------------

    def note_flushed(self, end_offset: int) -> None:
        """Everything of this log before `end_offset` is on disk."""
        self.role.note_flushed(end_offset)

    def isr_proposal(self) -> IsrChange | None:
        """Leader: the ISR change to send to the controller, or None. The same one until it is answered."""
        return self.role.isr_proposal()

    def isr_answered(self, change: IsrChange, answer: IsrChanged) -> bool:
        """Take the controller's answer to `change`; True: ask again after a while.

        Where somebody else changed the partition first, the proposal stands (it counts) until the image tells.
        """
        role = self.role
        current = change.leader_epoch == role.leader_epoch and change.partition_epoch == self.partition_epoch
        if not current:
            return False
        if type(role) is Resigning:
            return self._resignation_answered(role, answer)
        if type(role) is not Leading:
            return False
        if answer.error_code == 0:
            if answer.leader_epoch == role.leader_epoch and answer.partition_epoch > self.partition_epoch:
                self.partition_epoch = answer.partition_epoch
                role.commit_isr(answer.isr)
            return False
        if answer.error_code in GIVEN_UP:
            role.withdraw()
            return False
        return answer.error_code not in OVERTAKEN

    def _resignation_answered(self, role: Resigning, answer: IsrChanged) -> bool:
        """Another leader comes with the image; or the topic prefers this one, damaged as it is, to none (unclean)."""
        if answer.error_code:
            return answer.error_code not in OVERTAKEN
        if answer.leader == self.host.broker_id and answer.leader_epoch == role.leader_epoch:
            self._accept_damage()
            self._take(Leading(self, role.state), NotLeaderOrFollower)
        return False

    # -- who waits for something to read ------------------------------------------------------------------------

    def park(self, waiter: FetchWaiter) -> None:
        """Wake this consumer's fetch when the high watermark moves, until it is unparked."""
        self._consumers[waiter] = None

    def park_replica(self, waiter: ReplicaFetchWaiter) -> None:
        """Wake this follower's session when the log end moves, until it is unparked."""
        self._replicas[waiter] = None

    def unpark(self, waiter: FetchWaiter) -> None:
        """Fine if it is not parked."""
        self._consumers.pop(waiter, None)
        self._replicas.pop(waiter, None)  # type: ignore[call-overload]  # a consumer's is simply not there

    def high_watermark_moved(self) -> None:
        """Have those who wait for it woken, once in a loop iteration however often it moves."""
        if not self._progress_told and (self._consumers or self._replicas):
            self._progress_told = True
            self.host.progressed(self)

    def log_end_moved(self) -> None:
        """Wake the followers' sessions: they only take note, and look once for all that moved in a loop iteration."""
        if self._replicas:
            for session in tuple(self._replicas):
                session.wake(self)

    def wake_parked(self) -> None:
        """Called by the host once after `progressed`, at most once per loop iteration."""
        self._progress_told = False
        for waiter in tuple(self._consumers):
            waiter.wake(self)
        for session in tuple(self._replicas):
            session.high_watermark_moved(self)
