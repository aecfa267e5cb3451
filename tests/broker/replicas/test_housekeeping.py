"""The chores, run by the clock of a simulation."""

from __future__ import annotations

from errno import ENOSPC
from functools import partial
from itertools import pairwise

import pytest

from raftlog.base.disk import Disk
from raftlog.base.errors import CorruptMessage
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.housekeeping import _every, fair_share
from raftlog.replication.partition import Partition
from raftlog.storage import log_directory, segment_age
from raftlog.storage.log_directory import decode_offsets
from raftlog.storage.partition_files import TRUNCATION_MARK
from tests.broker.broker_cluster import BrokerCluster, run_scenario, until
from tests.kit.clock import Clock
from tests.replication.replica_cluster import NOW_MS, batch

NAME = TopicPartition("t", 0)
POINTS = "recovery-point-offset-checkpoint"
PASS_S = 300
"""log.retention.check.interval.ms by default."""


def offsets(cluster: BrokerCluster, name: str) -> dict[TopicPartition, int]:
    disk = cluster[1].host.disk
    return decode_offsets(disk.read_file(f"/data/{name}")) if disk.exists(f"/data/{name}") else {}


def test_high_watermarks_are_checkpointed() -> None:
    """replica.high.watermark.checkpoint.interval.ms: a restart begins near where it was."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a", "b"))
        await cluster.pass_time(6)
        assert offsets(cluster, "replication-offset-checkpoint") == {NAME: 2}
        syncs = cluster[1].host.disk.syncs
        await cluster.pass_time(20)
        assert cluster[1].host.disk.syncs == syncs

    run_scenario(scenario, size=1)


def test_the_recovery_point_follows_what_is_flushed() -> None:
    """log.flush.offset.checkpoint.interval.ms: after a crash only what lies beyond it is checked."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a", "b"))
        await cluster.pass_time(65)
        assert offsets(cluster, "recovery-point-offset-checkpoint") == {NAME: 2}
        assert cluster[1].partition().log.recovery_point == 2

    run_scenario(scenario, size=1)


def test_deleted_records_stay_deleted_over_a_restart() -> None:
    """log-start-offset-checkpoint: the log start may lie inside a segment."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a"))
        await cluster[1].host.start(cluster[1].produce("b"))
        cluster[1].partition().delete_records(1)
        await cluster.pass_time(65)
        cluster[1].host.crash()
        await cluster.start(1)
        assert cluster[1].partition().log_start_offset == 1

    run_scenario(scenario, size=1)


async def delete_all_of_three(cluster: BrokerCluster) -> None:
    """Delete three records; all checkpoints have that."""
    cluster.create()
    await cluster.pass_time(0.1)
    await cluster[1].host.start(cluster[1].produce("a", "b", "c"))
    cluster[1].partition().delete_records(3)
    await cluster.pass_time(65)


def test_a_log_that_began_anew_has_the_records_before_its_former_log_start() -> None:
    """A power loss comes before the next checkpoint of log starts: that speaks of the log as it was before."""

    async def scenario(cluster: BrokerCluster) -> None:
        await delete_all_of_three(cluster)
        assert offsets(cluster, "log-start-offset-checkpoint") == {NAME: 3}
        cluster[1].host.call(cluster[1].partition().log.truncate_fully_and_start_at, 0)
        for value in "abcde":
            await cluster[1].host.start(cluster[1].produce(value))
        cluster[1].host.crash()
        await cluster.start(1)
        assert (cluster[1].partition().log_start_offset, cluster[1].partition().log_end_offset) == (0, 5)

    run_scenario(scenario, size=1)


def test_log_that_began_anew_and_stays_idle_is_not_judged_by_former_checkpoints() -> None:
    """No chore looks at it before its next batch, so all checkpoints speak of the log as it was; its mark stays."""

    async def scenario(cluster: BrokerCluster) -> None:
        await delete_all_of_three(cluster)
        cluster[1].host.call(cluster[1].partition().log.truncate_fully_and_start_at, 1)
        cluster.create("u")
        for _ in range(4):
            await cluster[1].host.start(cluster[1].produce("other", topic="u"))
            await cluster.pass_time(65)
        assert offsets(cluster, POINTS)[NAME] == offsets(cluster, "log-start-offset-checkpoint")[NAME] == 3
        cluster[1].host.crash()
        await cluster.start(1)
        partition = cluster[1].partition()
        assert (partition.log.damage, partition.log_start_offset, partition.high_watermark) == (None, 1, 1)

    run_scenario(scenario, size=1)


def test_records_that_were_deleted_after_a_cut_stay_deleted() -> None:
    """The mark of the cut doubts what was written before, and not a log start beyond it."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        for value in "abc":
            await cluster[1].host.start(cluster[1].produce(value))
        log = cluster[1].partition().log
        cluster[1].host.call(partial(log.truncate_to, 2, committed=True))
        await cluster[1].host.start(cluster[1].produce("d", "e"))
        cluster[1].partition().delete_records(3)
        cluster[1].host.call(log.flush)
        await cluster[1].host.start(cluster[1].housekeeping.checkpoint_log_starts())
        cluster[1].host.crash()
        await cluster.start(1)
        assert cluster[1].partition().log.truncated_to == 2
        assert (cluster[1].partition().log_start_offset, cluster[1].partition().log_end_offset) == (3, 4)

    run_scenario(scenario, size=1)


def test_mark_of_a_cut_stays_while_the_recovery_point_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file still has the cut offset: without the mark the log would pass for a log with lost records."""
    write, is_refused = log_directory.write_checked, False

    def write_unless_refused(disk: Disk, path: str, content: bytes, **more: bool) -> None:
        if is_refused and path.endswith(POINTS):
            raise OSError(ENOSPC, "No space left on device", path)
        write(disk, path, content, **more)

    monkeypatch.setattr(log_directory, "write_checked", write_unless_refused)

    async def scenario(cluster: BrokerCluster) -> None:
        nonlocal is_refused
        cluster.create()
        await cluster.pass_time(0.1)
        for value in "abcdef":
            await cluster[1].host.start(cluster[1].produce(value))
        await cluster.pass_time(65)
        log, disk = cluster[1].partition().log, cluster[1].host.disk
        cluster[1].host.call(partial(log.truncate_to, 1, committed=True))
        is_refused = True
        for value in "gh":
            await cluster[1].host.start(cluster[1].produce(value))
            await cluster.pass_time(65)
        assert (offsets(cluster, POINTS), log.log_end_offset) == ({NAME: 6}, 3)
        cluster[1].host.crash()
        is_refused = False
        await cluster.start(1)
        log = cluster[1].partition().log
        assert (log.damage, log.log_end_offset) == (None, 3)
        for value in "ij":
            assert disk.exists(f"/data/t-0/{TRUNCATION_MARK}")
            await cluster[1].host.start(cluster[1].produce(value))
            await cluster.pass_time(65)
        assert offsets(cluster, POINTS) == {NAME: 5}
        assert not disk.exists(f"/data/t-0/{TRUNCATION_MARK}")

    run_scenario(scenario, size=1)


def test_mark_of_a_cut_stays_until_the_high_watermark_is_written() -> None:
    """A log that was cut and fetched again at once would start with the high watermark of before."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        broker = cluster[1]
        chores, host, mark = broker.housekeeping, broker.host, f"/data/t-0/{TRUNCATION_MARK}"
        await host.start(broker.produce("a", "b"))
        await host.start(broker.produce("c"))
        await host.start(chores.checkpoint_high_watermarks())
        await host.start(chores.checkpoint_logs())
        host.call(partial(broker.partition().log.truncate_to, 2, committed=True))
        for value in "def":
            await host.start(broker.produce(value))
            await host.start(chores.checkpoint_logs())
        assert offsets(cluster, "replication-offset-checkpoint") == {NAME: 3}
        assert host.disk.exists(mark)
        await host.start(chores.checkpoint_high_watermarks())
        await host.start(broker.produce("g"))
        await host.start(chores.checkpoint_logs())
        assert not host.disk.exists(mark)

    run_scenario(scenario, size=1, **{"replica.high.watermark.checkpoint.interval.ms": "3600000"})


def test_an_idle_log_is_cut_down_to_its_size_though_its_segments_were_not_flushed() -> None:
    """Only a segment with a durable name may become the first. The pass has the log flushed, and goes on."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        cluster.publish(configs={("topic", "t"): {"retention.bytes": "300", "segment.bytes": "150"}})
        await cluster.pass_time(PASS_S - 3)
        for value in "abcdefghij":
            await cluster[1].host.start(cluster[1].produce(value, acks=1))
        log = cluster[1].partition().log
        assert (log.log_start_offset, log.flushed_end_offset) == (0, 0)
        await cluster.pass_time(5)
        assert log.log_start_offset > 0 and log.size_bytes < 300 + 150

    run_scenario(scenario, size=1, log_flush_policy="os")


def test_expired_records_go_and_their_files_later() -> None:
    """retention.ms, then file.delete.delay.ms; readers find the new log start."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        cluster.publish(configs={("topic", "t"): {"retention.ms": "1000"}})
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a"))
        folder = "/data/t-0"
        await until(lambda: cluster[1].partition().log_start_offset == 1, within=400)
        assert any(name.endswith(".deleted") for name in cluster[1].host.disk.listdir(folder))
        await cluster.pass_time(100)
        assert not any(name.endswith(".deleted") for name in cluster[1].host.disk.listdir(folder))

    run_scenario(scenario, size=1)


def test_a_segment_that_is_looked_through_in_parts_is_judged_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Old data that came late: after a restart its headers show its age. A part per pass would take days."""
    monkeypatch.setattr(segment_age, "MAX_SCANNED_HEADERS", 1)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        settings = {"retention.ms": str(2 * PASS_S * 1000), "index.interval.bytes": "0"}
        cluster.publish(configs={("topic", "t"): settings})
        await cluster.pass_time(3 * PASS_S)
        for value in "abcde":
            await cluster[1].host.start(cluster[1].produce(value))
        await cluster[1].host.start(cluster[1].stop())
        cluster[1].host.crash(power_loss=False)
        await cluster.start(1)
        assert cluster[1].partition().log_start_offset == 0
        await cluster.pass_time(PASS_S + 1)
        assert cluster[1].partition().log_start_offset == 5

    run_scenario(scenario, size=1)


def test_an_idle_broker_writes_no_checkpoint() -> None:
    """Thousands of idle logs cost no sync, for any length of time."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=3)
        await cluster.pass_time(0.1)
        for value in "ab":
            await cluster[1].host.start(cluster[1].produce(value))
        cluster[1].partition().delete_records(1)
        await cluster.pass_time(130)
        syncs = cluster[1].host.disk.syncs
        await cluster.pass_time(600)
        assert cluster[1].host.disk.syncs == syncs

    run_scenario(scenario, size=1)


def test_a_chore_leaves_the_loop_half_of_the_time() -> None:
    """A checkpoint may wait for the disk, once for each log."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=10)
        await cluster.pass_time(0.1)
        broker, clock, visited = cluster[1], Clock(), []
        broker.replicas.stopwatch = clock

        def slow(partition: object) -> bool:
            clock.advance(0.5)
            visited.append(cluster.loop.time())
            return True

        await broker.housekeeping._visit_these(broker.replicas.partitions.values(), "slow", slow)
        assert [later - before for before, later in pairwise(visited)] == pytest.approx([0.5] * 9, rel=0.01)

    run_scenario(scenario, size=1)


def test_a_new_topic_is_not_judged_by_the_checkpoints_of_a_former_one_of_its_name() -> None:
    """The log, shorter than its predecessor's recovery point, would pass for damaged, on every replica at once."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a", "b"))
        await cluster.pass_time(65)
        cluster[1].host.crash()
        await cluster.start(1)
        await until(lambda: cluster[1].replicas.partitions)
        assert offsets(cluster, "recovery-point-offset-checkpoint") == {NAME: 2}
        cluster.delete("t")
        await until(lambda: not cluster[1].replicas.partitions)
        cluster.create()
        await until(lambda: cluster[1].replicas.partitions)
        assert cluster[1].partition().log.damage is None
        cluster[1].host.crash()
        await cluster.start(1)
        await until(lambda: cluster[1].replicas.partitions)
        assert cluster[1].partition().log.damage is None
        assert cluster[1].partition().high_watermark == 0

    run_scenario(scenario, size=1)


def test_a_checkpoint_drawn_up_before_a_topic_was_made_anew_is_not_written() -> None:
    """It may wait for its thread while the topic is deleted and made again."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        (volume,) = cluster[1].replicas.logs.online
        drawn_up, write = volume.generation, partial(volume.directory.write_recovery_points, {NAME: 2})
        assert volume.checkpoint(write, drawn_up)
        volume.remove_checkpoints([NAME])
        assert not volume.checkpoint(write, drawn_up)
        assert offsets(cluster, "recovery-point-offset-checkpoint") == {}

    run_scenario(scenario, size=1)


def test_a_log_that_retention_fails_for_stops_no_other_log() -> None:
    """It is named with its reason and left alone for a while; once it can be judged it is forgotten."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=3)
        cluster.publish(configs={("topic", "t"): {"retention.ms": "1000"}})
        await cluster.pass_time(0.1)
        broker = cluster[1]
        for index in range(3):
            await broker.host.start(broker.produce("a", index=index))
        bad = broker.partition(index=0).log
        retain = bad.delete_old_segments
        bad.delete_old_segments = broken  # type: ignore[method-assign]
        await cluster.pass_time(301)
        assert [broker.partition(index=each).log_start_offset for each in range(3)] == [0, 1, 1]
        (failure,) = broker.housekeeping.failures
        assert failure[:4] == ("retention", "t-0", "CorruptMessage: no batch boundary", 1)
        bad.delete_old_segments = retain  # type: ignore[method-assign]
        await cluster.pass_time(300)
        assert broker.partition(index=0).log_start_offset == 1
        assert not len(broker.housekeeping.failures)

    run_scenario(scenario, size=1)


def broken(*_: object, **__: object) -> int:
    raise CorruptMessage("no batch boundary")


def test_nothing_is_retained_by_the_defaults_of_a_broker_that_knows_no_metadata_yet() -> None:
    """A node that started while there was no controller deleted what its topics keep for ever."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        cluster.publish(configs={("topic", "t"): {"retention.ms": "-1"}})
        await cluster.pass_time(0.1)
        broker = cluster[1]
        await broker.host.start(broker.produce("a"))
        await cluster.pass_time(70)
        broker.host.crash()
        broker.host.set_clock(30 * 86_400_000)  # a month later
        broker.take = lambda _: None  # type: ignore[method-assign]
        await cluster.start(1)
        assert broker.partition().config.retention_ms == 7 * 86_400_000
        await cluster.pass_time(700)
        assert broker.partition().log_start_offset == 0

    run_scenario(scenario, size=1)


def test_a_failure_is_forgotten_with_its_log() -> None:
    """The name of a deleted topic would otherwise be reported for ever."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[1].partition().log.delete_old_segments = broken  # type: ignore[method-assign]
        await cluster.pass_time(301)
        assert len(cluster[1].housekeeping.failures) == 1
        cluster.delete("t")
        await cluster.pass_time(301)
        assert not len(cluster[1].housekeeping.failures)

    run_scenario(scenario, size=1)


def test_a_clock_that_jumps_ahead_expires_nothing_until_it_comes_back() -> None:
    """In doubt no record is deleted by age, not even records old by both times; later they are."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        age_ms = int(
            cluster.loop.time() * 1000
        )  # of records that are stamped with the simulation's beginning
        cluster.publish(configs={("topic", "t"): {"retention.ms": str(age_ms + 1_000_000)}})
        await cluster.pass_time(20)
        broker = cluster[1]
        await broker.host.start(broker.produce("a"))
        broker.host.call(broker.replicas.env.ages.now_ms)  # a node looks every ten seconds
        await cluster.pass_time(0.1)
        broker.host.set_clock(broker.host.clock_offset_ms + 30 * 86_400_000)
        await cluster.pass_time(1_700)
        assert broker.partition().log_start_offset == 0
        assert broker.replicas.env.ages.jump_ms() > 29 * 86_400_000
        broker.host.set_clock(broker.host.clock_offset_ms - 30 * 86_400_000)
        await cluster.pass_time(400)
        assert broker.partition().log_start_offset == 1

    run_scenario(scenario, size=1)


def produce_as(partition: Partition, producer_id: int) -> None:
    partition.append_produced(batch("a", producer=(producer_id, 0, 0)), acks=1, now_ms=NOW_MS)


def test_all_partitions_together_remember_no_more_producers_than_the_setting() -> None:
    """raftlog.producer.ids.max, at run time: the flooded partition drops producers, small partitions do not."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=3)
        cluster.publish(configs={("broker", ""): {"raftlog.producer.ids.max": "100"}})
        await cluster.pass_time(0.1)
        partitions = [cluster[1].partition(index=each) for each in range(3)]
        for index, count in enumerate((10, 500, 70)):
            for producer_id in range(count):
                cluster[1].host.call(produce_as, partitions[index], producer_id)
        await cluster.pass_time(2)
        assert [len(each.log.producers) for each in partitions] == [10, 45, 45]
        assert 499 in partitions[1].log.producers and 454 not in partitions[1].log.producers
        for producer_id in range(1_000, 1_500):
            cluster[1].host.call(produce_as, partitions[1], producer_id)
        await cluster.pass_time(2)
        assert len(partitions[1].log.producers) == 45
        cluster.publish(configs={})
        await cluster.pass_time(2)
        for producer_id in range(2_000, 2_500):
            cluster[1].host.call(produce_as, partitions[1], producer_id)
        await cluster.pass_time(2)
        assert len(partitions[1].log.producers) == 545

    run_scenario(scenario, size=1)


@pytest.mark.parametrize(
    ("counts", "most", "share"),
    [([], 10, 10), ([5, 5], 10, 10), ([6, 5], 10, 5), ([1, 2, 100, 50], 53, 25), ([9] * 20, 10, 1)],
)
def test_a_fair_share_is_the_most_that_all_can_have(counts: list[int], most: int, share: int) -> None:
    """A connection that has less keeps it, and the rest is for the others."""
    assert fair_share(counts, most) == share


def test_silent_producers_are_looked_for_as_often_as_the_setting_says() -> None:
    """producer.id.expiration.check.interval.ms, by default ten minutes."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[1].host.call(produce_as, cluster[1].partition(), 7)
        await cluster.pass_time(3)
        assert 7 not in cluster[1].partition().log.producers

    often = {"producer_id_expiration_ms": "1000", "producer_id_expiration_check_interval_ms": "500"}
    run_scenario(scenario, size=1, **often)


def test_intervals_and_limits_that_change_while_the_broker_runs_are_heeded() -> None:
    """Kafka changes log.cleaner.* and producer.id.expiration.ms at run time."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[1].host.call(produce_as, cluster[1].partition(), 7)
        cluster.publish(configs={("broker", "1"): {"producer.id.expiration.ms": "600000"}})
        await cluster.pass_time(1_300)
        assert 7 not in cluster[1].partition().log.producers
        rounds: list[float] = []

        async def count() -> None:
            rounds.append(cluster.loop.time())

        cluster.publish(configs={("broker", ""): {"log.cleaner.backoff.ms": "1000"}})
        replicas = cluster[1].replicas
        task = cluster[1].host.start(
            _every(lambda: replicas.config_in_force.log_cleaner_backoff_ms / 1000, count)
        )
        await cluster.pass_time(10.5)
        assert len(rounds) == 10
        cluster.publish(configs={("broker", ""): {"log.cleaner.backoff.ms": "100"}})
        await cluster.pass_time(10)
        assert len(rounds) > 90
        task.cancel()

    run_scenario(scenario, size=1)
