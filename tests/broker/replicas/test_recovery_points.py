"""Recovery points move each second: one file for all logs of a directory, and none while nothing moves."""

from __future__ import annotations

import pytest

from raftlog.base.disk import Disk
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas import housekeeping
from raftlog.storage import recovery
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.log import Log
from raftlog.storage.log_directory import LogDirectory, Offsets, decode_offsets
from raftlog_chaos.simulator.hosts import Host
from tests.broker.broker_cluster import BrokerCluster, SimBroker, run_scenario

FILE = "/data/recovery-point-offset-checkpoint"
PARTITIONS = 5
RECORD = "v" * 1000


def points(host: Host) -> dict[int, int]:
    """Return the recovery points of topic t on a host's disk, by partition."""
    if not host.disk.exists(FILE):
        return {}
    return {name.partition: offset for name, offset in decode_offsets(host.disk.read_file(FILE)).items()}


async def produce_to_all(broker: SimBroker) -> None:
    for index in range(PARTITIONS):
        assert await broker.host.start(broker.produce(RECORD, index=index)) == "committed"


async def with_saved_epochs(cluster: BrokerCluster) -> SimBroker:
    """Return a broker with a topic whose logs were once saved: before that, their points stay where they begin."""
    cluster.create(partitions=PARTITIONS)
    await cluster.pass_time(0.1)
    await produce_to_all(cluster[1])
    await cluster.pass_time(65)
    return cluster[1]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    """Gather the contents of all files of recovery points that are written."""
    contents: list[dict[TopicPartition, int]] = []
    write = LogDirectory.write_recovery_points

    def gather(directory: LogDirectory, offsets: Offsets, *, sync: bool = True) -> None:
        contents.append(dict(offsets))
        write(directory, offsets, sync=sync)

    monkeypatch.setattr(LogDirectory, "write_recovery_points", gather)
    return contents


def test_they_follow_within_a_second_by_one_file_for_all_logs(
    written: list[dict[TopicPartition, int]],
) -> None:
    """A start after a crash checks the last second only."""

    async def scenario(cluster: BrokerCluster) -> None:
        broker = await with_saved_epochs(cluster)
        assert points(broker.host) == dict.fromkeys(range(PARTITIONS), 1)
        written.clear()
        await produce_to_all(broker)
        await cluster.pass_time(1.1)
        assert points(broker.host) == dict.fromkeys(range(PARTITIONS), 2)
        assert len(written) == 1 and len(written[0]) == PARTITIONS

    run_scenario(scenario, size=1)


def test_an_idle_broker_writes_none(written: list[dict[TopicPartition, int]]) -> None:
    """Nor does it sync anything else."""

    async def scenario(cluster: BrokerCluster) -> None:
        broker = await with_saved_epochs(cluster)
        await produce_to_all(broker)
        await cluster.pass_time(65)
        written.clear()
        syncs = broker.host.disk.syncs
        await cluster.pass_time(120)
        assert (written, broker.host.disk.syncs) == ([], syncs)

    run_scenario(scenario, size=1)


def test_a_log_that_grew_by_much_is_saved_before_its_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start also reads what indexes and producers lack. The others wait: all of it costs calls of the system."""
    saved: list[str] = []
    checkpoint = Log.checkpoint

    def note(log: Log) -> int:
        saved.append(log.directory)
        return checkpoint(log)

    async def scenario(cluster: BrokerCluster) -> None:
        broker = await with_saved_epochs(cluster)
        monkeypatch.setattr(Log, "checkpoint", note)
        monkeypatch.setattr(housekeeping, "UNSAVED_BYTES", PARTITIONS * 3_000)
        monkeypatch.setattr(housekeeping, "UNSAVED_LOG_BYTES", 0)
        await produce_to_all(broker)
        await cluster.pass_time(2.1)
        assert saved == []
        for _ in range(2):
            await broker.host.start(broker.produce(RECORD, index=3))
        await cluster.pass_time(1.1)
        assert saved == ["/data/t-3"]

    run_scenario(scenario, size=1)


def test_logs_with_a_new_leader_epoch_wait_for_the_recurring_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their checkpoint syncs a file, and after a failover all logs have a new epoch: the loop may not wait so often."""
    monkeypatch.setattr(housekeeping, "UNSAVED_BYTES", 0)
    monkeypatch.setattr(housekeeping, "UNSAVED_LOG_BYTES", 3_000)
    waited: list[str] = []
    write = recovery.write_epoch_checkpoint

    def note(disk: Disk, directory: str, epochs: LeaderEpochs) -> None:
        waited.append(directory)
        write(disk, directory, epochs)

    monkeypatch.setattr(recovery, "write_epoch_checkpoint", note)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=PARTITIONS)
        await cluster.pass_time(0.1)
        broker = cluster[1]
        for _ in range(4):
            await produce_to_all(broker)
        await cluster.pass_time(5.1)
        assert (waited, points(broker.host)) == ([], {})
        await cluster.pass_time(60)
        assert len(waited) == PARTITIONS
        assert points(broker.host) == dict.fromkeys(range(PARTITIONS), 4)

    run_scenario(scenario, size=1)


def test_logs_with_a_new_leader_epoch_that_grew_by_much_are_saved_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that dies within a minute of a failover would read all that was written since, gigabytes."""
    monkeypatch.setattr(housekeeping, "UNSAVED_BYTES", 0)
    monkeypatch.setattr(housekeeping, "UNSAVED_LOG_BYTES", 0)
    monkeypatch.setattr(housekeeping, "UNSAVED_EPOCH_BYTES", 3_000)
    monkeypatch.setattr(housekeeping, "EPOCHS_SAVED_PER_SECOND", 2)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=PARTITIONS)
        await cluster.pass_time(0.1)
        broker = cluster[1]
        await broker.host.start(broker.produce(RECORD, index=4))
        for _ in range(4):
            for index in range(PARTITIONS - 1):
                await broker.host.start(broker.produce(RECORD, index=index))
        await cluster.pass_time(1.1)
        assert len(points(broker.host)) <= 2
        await cluster.pass_time(3.1)
        assert points(broker.host) == dict.fromkeys(range(PARTITIONS - 1), 4)

    run_scenario(scenario, size=1)


def test_logs_whose_producers_cannot_be_saved_yet_leave_others_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot waits for markers that are not committed; such a log stays the one that grew most."""
    monkeypatch.setattr(housekeeping, "UNSAVED_BYTES", 0)
    monkeypatch.setattr(housekeeping, "UNSAVED_LOG_BYTES", 500)
    monkeypatch.setattr(housekeeping, "SAVED_PER_SECOND", 1)
    saved: list[str] = []

    async def scenario(cluster: BrokerCluster) -> None:
        broker = await with_saved_epochs(cluster)

        def save_nothing(log: Log) -> int:
            saved.append(log.directory)
            return log.recovery_point

        monkeypatch.setattr(Log, "checkpoint", save_nothing)
        for index in (3, 3, 1):
            await broker.host.start(broker.produce(RECORD, index=index))
        await cluster.pass_time(4.1)
        assert set(saved) == {"/data/t-3", "/data/t-1"}

    run_scenario(scenario, size=1)


def test_points_follow_after_a_failure_of_one_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would be behind until their next record."""
    update, fails = Log.update_recovery_point, True

    def fail_once(log: Log) -> int:
        nonlocal fails
        if fails and log.directory == "/data/t-2":
            fails = False
            raise ValueError(log.directory)
        return update(log)

    async def scenario(cluster: BrokerCluster) -> None:
        broker = await with_saved_epochs(cluster)
        monkeypatch.setattr(Log, "update_recovery_point", fail_once)
        await produce_to_all(broker)
        await cluster.pass_time(3.1)
        assert not fails
        assert points(broker.host) == dict.fromkeys(range(PARTITIONS), 2)

    run_scenario(scenario, size=1)


def test_a_full_segment_is_synced_under_the_policy_os() -> None:
    """As in Kafka: the recovery point moves when a segment rolls."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.publish(configs={("topic", "t"): {"segment.bytes": "2500"}})
        broker = await with_saved_epochs(cluster)
        (before,) = {broker.partition(index=0).log.recovery_point}
        for _ in range(3):
            await broker.host.start(broker.produce(RECORD, index=0))
        base_offset = broker.partition(index=0).log.active_segment.base_offset
        assert base_offset > before
        await cluster.pass_time(2.1)
        assert points(broker.host)[0] >= base_offset

    run_scenario(scenario, size=1, **{"log.flush.policy": "os"})
