"""The parts of replication tests: a host that only takes notes, a real log on a simulated disk, batches to produce."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from raftlog.base.config import TopicConfig
from raftlog.base.errors import KafkaError
from raftlog.base.types import TopicPartition
from raftlog.metadata.image import BrokerState, PartitionState
from raftlog.records.batch import ProducerIdAndSequence, build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog.replication.follower_role import FollowerRole
from raftlog.replication.leader_role import LeaderRole
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import ReplicaId
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk

TOPIC_ID = UUID(int=7)
NAME = TopicPartition("events", 0)
NOW_MS = 1_767_225_600_000


def batch(*values: str, producer: tuple[int, int, int] | None = None) -> memoryview:
    """One batch, a record per value."""
    stamp = ProducerIdAndSequence(*producer) if producer else ProducerIdAndSequence()
    records = [new_record(None, value.encode(), timestamp=NOW_MS) for value in values]
    return memoryview(build_batch(records, producer=stamp))


def values_in(records: bytes | memoryview | None) -> list[str]:
    """The record values of fetched bytes."""
    assert records is not None
    view = memoryview(records)
    return [
        (record.value or b"").decode()
        for position, header in iter_headers(view)
        for record in iter_records(view[position : position + header.length])
    ]


class FakeHost:
    """A broker that takes notes; the test decides when it syncs, wakes and asks the controller."""

    def __init__(self, broker_id: int, registered: dict[int, BrokerState]) -> None:
        self.broker_id = broker_id
        self.replica_lag_time_max = 5.0
        self.flush_before_commit = True
        self.clock = 100.0
        self.registered = registered
        self.dirty: dict[Partition, None] = {}
        self.awaited: dict[Partition, None] = {}
        self.told: list[Partition] = []
        self.due: list[Partition] = []
        self.damaged: list[Partition] = []
        self.events: list[tuple[str, dict[str, object]]] = []
        self.errors: list[OSError] = []
        self.deleted: set[str] = set()
        self.heard_at = 0.0
        self.asked: list[Partition] = []

    def now(self) -> float:
        return self.clock

    def latest_ms(self) -> int:
        return NOW_MS

    def was_deleted(self, topic: str) -> bool:
        return topic in self.deleted

    def broker_epoch(self) -> int:
        return self.registered[self.broker_id].broker_epoch

    def brokers(self) -> dict[int, BrokerState]:
        return self.registered

    def request_flush(self, partition: Partition) -> None:
        self.dirty[partition] = None

    def touch(self, partition: Partition) -> None:
        pass

    def wake_waiters(self, partition: Partition) -> None:
        self.told.append(partition)

    def heard_of_leader_at(self, partition: Partition) -> float:
        return self.heard_at

    def fetch_soon(self, partition: Partition) -> None:
        self.asked.append(partition)

    def submit_isr_change(self, partition: Partition) -> None:
        self.due.append(partition)

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        self.errors.append(error)

    def log_damaged(self, partition: Partition) -> None:
        self.damaged.append(partition)

    def log_event(self, event: str, partition: Partition, **facts: object) -> None:
        self.events.append((event, facts))

    def flush(self) -> None:
        """The flusher does this in a round."""
        dirty, self.dirty = self.dirty, {}
        for partition in dirty:
            ticket = partition.log.begin_flush()
            if ticket is not None:
                ticket.run()
                partition.log.complete_flush(ticket)
            partition.note_flushed(partition.log.flushed_end_offset)

    def wake(self) -> None:
        """The broker does this once per loop iteration."""
        told, self.told = self.told, []
        for partition in told:
            partition.wake_parked()


class RecordingWaiter:
    """Records its notices, as a producer and as a fetch."""

    def __init__(self) -> None:
        self.outcome: str | KafkaError | None = None
        self.wakes = 0
        self.high_watermark_moves = 0

    def committed(self, partition: Partition) -> None:
        assert self.outcome is None
        self.outcome = "committed"

    def failed(self, partition: Partition, error: KafkaError) -> None:
        assert self.outcome is None
        self.outcome = error

    def wake(self, partition: Partition) -> None:
        self.wakes += 1

    def high_watermark_moved(self, partition: Partition) -> None:
        self.high_watermark_moves += 1

    def log_start_moved(self, partition: Partition) -> None:
        """Of no interest."""


def registrations(broker_ids: Sequence[int]) -> dict[int, BrokerState]:
    return {each: registration(each) for each in broker_ids}


def registration(
    broker_id: int, *, epoch: int = 10, fenced: bool = False, leaving: bool = False
) -> BrokerState:
    return BrokerState(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=UUID(int=broker_id),
        endpoints=(),
        fenced=fenced,
        in_controlled_shutdown=leaving,
    )


def open_log(disk: SimDisk, *, min_isr: int = 1, recovery_point: int = 0, clean: bool = False) -> Log:
    config = TopicConfig(min_insync_replicas=min_isr)
    return Log.open(
        disk,
        "/data/events-0",
        config=config,
        recovery_point=recovery_point,
        clean=clean,
        topic_id=TOPIC_ID,
        now_ms=NOW_MS,
    )


class ReplicaNode:
    """One broker with one replica."""

    def __init__(
        self, broker_id: int, registered: dict[int, BrokerState], *, min_isr: int = 1, seed: int = 0
    ) -> None:
        self.broker_id = broker_id
        self.min_isr = min_isr
        self.registered = registered
        self.disk = SimDisk(seed)
        self.checkpointed = 0
        self.boot()

    def boot(self, *, clean: bool = False) -> None:
        """Start on what the disk has."""
        self.host = FakeHost(self.broker_id, self.registered)
        log = open_log(self.disk, min_isr=self.min_isr, clean=clean)
        self.partition = Partition(NAME, TOPIC_ID, log=log, host=self.host, high_watermark=self.checkpointed)

    def crash(self) -> None:
        """Power loss."""
        self.disk.crash()

    @property
    def leading(self) -> LeaderRole:
        role = self.partition.role
        assert isinstance(role, LeaderRole)
        return role

    @property
    def replica(self) -> ReplicaId:
        return ReplicaId(self.broker_id, self.registered[self.broker_id].broker_epoch)

    def corrupt_batch(self, offset: int) -> None:
        """Flip a bit in the last byte of the batch that holds `offset`, on the disk."""
        path = f"{self.partition.log.directory}/{0:020d}.log"
        file = self.disk.open(path)
        for position, header in iter_headers(file.pread(file.size(), 0)):
            if header.base_offset <= offset < header.end_offset:
                last = position + header.length - 1
                file.pwritev([bytes([file.pread(1, last)[0] ^ 1])], last)
                file.sync()
        file.close()

    def reboot(self, *, clean: bool = False) -> None:
        """Stop and start: after a clean stop the log is checked only where it is read."""
        self.partition.log.close(clean=True)
        self.boot(clean=clean)

    def produce(
        self, *values: str, acks: int = -1, producer: tuple[int, int, int] | None = None
    ) -> RecordingWaiter:
        """Append one batch; the answer says what became of it."""
        waiting = RecordingWaiter()
        appended = self.partition.append_produced(batch(*values, producer=producer), acks=acks, now_ms=NOW_MS)
        self.partition.await_commit(appended.end_offset, waiting)
        return waiting

    def fetch_from(self, leader: ReplicaNode, *, flush: bool = True, max_bytes: int = 1 << 20) -> int:
        """One round of the fetcher: ask, append or truncate, flush. Returns the wire's error code."""
        role = self.partition.role
        assert isinstance(role, FollowerRole)
        position = role.fetch_position()
        epoch = role.leader_epoch
        read = leader.partition.read(
            position.offset,
            max_bytes,
            min_one=True,
            current_leader_epoch=epoch,
            last_fetched_epoch=position.last_epoch,
            replica=self.replica,
        )
        if read.diverging is not None:
            role.truncate_to(read.diverging, leader_epoch=epoch, log_start_offset=read.log_start_offset)
        elif read.error_code == 1:
            role.restart_at(read.log_start_offset, leader_epoch=epoch)
        elif not read.error_code:
            role.append_fetched(
                memoryview(read.records or b""),
                leader_epoch=epoch,
                high_watermark=read.high_watermark,
                log_start_offset=read.log_start_offset,
            )
        if flush:
            self.host.flush()
        return read.error_code

    def values(self) -> list[str]:
        """Every record of the log, committed or not."""
        log = self.partition.log
        found: list[str] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, 1 << 20, end_offset=log.log_end_offset, min_one=True, cached=False)
            assert records
            found += values_in(records)
            offset = list(iter_headers(records))[-1][1].end_offset
        return found

    def consume(self) -> list[str]:
        """The records that consumers see."""
        return self.values()[: self.partition.high_watermark - self.partition.log_start_offset]


class ReplicaCluster:
    """Nodes 1, 2, 3 … and the state of their one partition."""

    def __init__(self, size: int = 3, *, min_isr: int = 1, isr: tuple[int, ...] | None = None) -> None:
        ids = tuple(range(1, size + 1))
        self.registered = registrations(ids)
        self.nodes = {each: ReplicaNode(each, self.registered, min_isr=min_isr, seed=each) for each in ids}
        self.state = PartitionState(replicas=ids, isr=isr or ids, leader=1)
        self.publish()

    def __getitem__(self, broker_id: int) -> ReplicaNode:
        return self.nodes[broker_id]

    def publish(self, *broker_ids: int) -> None:
        """Give the newest state to these nodes (all, if none is named)."""
        for each in broker_ids or tuple(self.nodes):
            self.nodes[each].partition.reconcile(self.state)

    def elect(self, leader: int, *, isr: tuple[int, ...] | None = None, tell: tuple[int, ...] = ()) -> None:
        self.change(leader=leader, isr=isr, tell=tell)

    def change(
        self,
        *,
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        lost: bool = False,
        adding: tuple[int, ...] = (),
        eligible: tuple[int, ...] = (),
        tell: tuple[int, ...] = (),
    ) -> None:
        """A record of the controller: another leader (a new leader epoch), another ISR, or replicas being added."""
        old = self.state
        uncleanly = leader is not None and (leader not in old.isr or (old.isr_lost and not lost))
        self.state = PartitionState(
            replicas=old.replicas,
            isr=old.isr if isr is None else isr,
            leader=old.leader if leader is None else leader,
            leader_epoch=old.leader_epoch + (leader is not None),
            partition_epoch=old.partition_epoch + 1,
            adding_replicas=adding,
            isr_lost=lost,
            unclean_epoch=old.leader_epoch + 1 if uncleanly else old.unclean_epoch,
            eligible=eligible,
        )
        self.publish(*tell)

    def catch_up(self, leader: int, *followers: int, rounds: int = 3) -> None:
        """Let these followers catch up and learn the high watermark."""
        self[leader].host.flush()
        for _ in range(rounds):
            for each in followers:
                self[each].fetch_from(self[leader])
