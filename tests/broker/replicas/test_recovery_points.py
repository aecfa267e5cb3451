"""Recovery points move each second: one file for all logs of a directory, and none while nothing moves."""

from __future__ import annotations

import pytest

from raftlog.base.types import TopicPartition
from raftlog.broker.replicas import housekeeping
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


def test_a_new_leader_epoch_does_not_hold_a_point_back_for_a_minute_once_its_log_grew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The point waits for the checkpoint of epochs, which is written once it saves a start something to read."""
    monkeypatch.setattr(housekeeping, "UNSAVED_BYTES", 0)
    monkeypatch.setattr(housekeeping, "UNSAVED_LOG_BYTES", 3_000)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=PARTITIONS)
        await cluster.pass_time(0.1)
        broker = cluster[1]
        for _ in range(4):
            await broker.host.start(broker.produce(RECORD, index=2))
        await produce_to_all(broker)
        await cluster.pass_time(2.1)
        assert points(broker.host) == {2: 5}

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
