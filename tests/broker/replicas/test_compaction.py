"""Compacted topics on brokers: cleaned beside everything else, remembered over restarts, taken over by followers."""

from __future__ import annotations

import asyncio
import struct
from functools import partial

import pytest

from raftlog.base.errors import InvalidRecord
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas import compaction
from raftlog.records.batch import build_batch, iter_headers, iter_records, new_record, read_header
from raftlog.replication.partition import Partition
from raftlog.storage.log import Log
from raftlog.storage.log_to_clean import LogToClean, find_log_to_clean
from tests.broker.broker_cluster import BrokerCluster, run_scenario, until
from tests.broker.replicas.test_housekeeping import offsets
from tests.records.forged_batches import with_deltas
from tests.replication.replica_cluster import NOW_MS

NAME = TopicPartition("t", 0)
CHECKPOINT = "cleaner-offset-checkpoint"
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "300",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "1000",
}
BACKOFF_S = 15.5
"""The cleaner's next turn (log.cleaner.backoff.ms)."""
CLEANED_S = 100.0
"""Some turns of the cleaner."""


def compacted(cluster: BrokerCluster, **configs: str) -> None:
    cluster.publish(configs={("topic", "t"): {**COMPACTED, **configs}})
    cluster.create()


def put(partition: Partition, key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([new_record(key, value, timestamp=NOW_MS)])
    partition.append_produced(memoryview(batch), acks=1, now_ms=NOW_MS)


def fill(partition: Partition, count: int = 40) -> None:
    for number in range(count):
        put(partition, b"k%d" % (number % 3), b"%d" % number)


def table(partition: Partition) -> dict[bytes | None, bytes]:
    """The newest value of each key, read from where the batch before ended."""
    log, found = partition.log, {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        chunk = memoryview(bytes(log.read(offset, 500, end_offset=log.log_end_offset, cached=False) or b""))
        assert chunk, f"stuck at {offset}"
        for position, header in iter_headers(chunk):
            for record in iter_records(chunk[position : position + header.length]):
                found[record.key] = record.value
            offset = header.end_offset
    return {key: value for key, value in found.items() if value is not None}


def test_every_replica_cleans_its_own_log() -> None:
    """Leader and followers keep the newest value of each key, in less room; their offsets agree."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[1].host.call(fill, cluster[1].partition())
        replicas = [cluster[each].partition() for each in (1, 2, 3)]
        await until(lambda: all(each.high_watermark == 40 for each in replicas))
        before = replicas[0].log.size_bytes
        await cluster.pass_time(CLEANED_S)
        for each in replicas:
            assert table(each) == {b"k0": b"39", b"k1": b"37", b"k2": b"38"}
            assert each.log.size_bytes < before / 1.5
            assert each.log_end_offset == 40 and each.log.damage is None
        assert {broker.housekeeping.compaction.cleanings for broker in cluster.brokers.values()} == {1}
        assert cluster[2].housekeeping.compaction.records_removed > 25

    run_scenario(scenario)


def test_up_to_where_a_log_was_cleaned_is_known_after_a_restart() -> None:
    """cleaner-offset-checkpoint, in Kafka's format: what is clean is not looked at again."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[1].host.call(fill, cluster[1].partition())
        await cluster.pass_time(CLEANED_S)
        cleaned = cluster[1].partition().log.cleaned_until
        assert cleaned > 30 and offsets(cluster, CHECKPOINT) == {NAME: cleaned}
        cluster[1].host.crash()
        await cluster.start(1)
        await until(lambda: cluster[1].replicas.partitions)
        assert cluster[1].partition().log.cleaned_until == cleaned
        await cluster.pass_time(CLEANED_S)
        assert cluster[1].housekeeping.compaction.cleanings == 0

    run_scenario(scenario, size=1)


def test_a_replica_that_was_away_goes_on_with_what_is_left() -> None:
    """Its fetch offset lies in a hole of the leader's log; a key that was deleted meanwhile does not come back."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[1].host.call(fill, cluster[1].partition(), 10)
        await until(lambda: cluster[3].partition().high_watermark == 10)
        cluster[3].host.crash()
        cluster.change(isr=(1, 2))
        leader = cluster[1].partition()
        cluster[1].host.call(put, leader, b"k1", None)
        cluster[1].host.call(fill, leader, 1)
        for _ in range(4):
            cluster[1].host.call(fill, leader, 30)
            cluster[1].host.call(put, leader, b"k1", None)
            await cluster.pass_time(CLEANED_S)
        assert cluster[1].housekeeping.compaction.cleanings >= 3
        await cluster.start(3)
        await until(lambda: cluster[3].replicas.partitions)
        await until(lambda: cluster[3].partition().log_end_offset == leader.log_end_offset)
        expected = {b"k0": b"27", b"k2": b"29"}
        assert table(leader) == table(cluster[3].partition()) == expected
        await until(lambda: len(cluster.state().isr) == 3)
        for _ in range(2):
            cluster[1].host.call(fill, leader, 1)
            cluster[1].host.call(put, leader, b"x", b"x" * 200)
            await cluster.pass_time(2 * CLEANED_S)
        assert table(leader) == table(cluster[3].partition()) == {**expected, b"k0": b"0", b"x": b"x" * 200}

    run_scenario(scenario)


def test_a_record_without_a_key_is_refused() -> None:
    """INVALID_RECORD that names it; its batch is not appended."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        partition = cluster[1].partition()
        batch = build_batch([new_record(b"k", b"v", timestamp=1), new_record(None, b"v", timestamp=1)])
        try:
            partition.append_produced(memoryview(batch), acks=1, now_ms=NOW_MS)
        except InvalidRecord as error:
            assert "record 1: the record has no key" in str(error.message)
        else:
            raise AssertionError("it was taken")
        assert partition.log_end_offset == 0

    run_scenario(scenario, size=1)


def test_a_disk_that_fails_under_a_cleaning_takes_its_directory_offline() -> None:
    """Half of the names may have changed; only a start may judge that."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[1].host.call(fill, cluster[1].partition())
        await cluster.pass_time(58)
        cluster[1].host.disk.fail("name", under="/data/t-0")
        (volume,) = cluster[1].replicas.logs.volumes
        await until(lambda: volume.error is not None, within=CLEANED_S)
        cluster[1].host.disk.mend()
        cluster[1].host.crash()
        await cluster.start(1)
        await until(lambda: cluster[1].replicas.partitions)
        assert table(cluster[1].partition()) == {b"k0": b"39", b"k1": b"37", b"k2": b"38"}
        assert cluster[1].partition().log.damage is None

    run_scenario(scenario, size=1)


def test_a_full_disk_puts_a_cleaning_off() -> None:
    """No data is lost, no directory goes offline, and the next turn does it."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[1].host.call(fill, cluster[1].partition())
        await cluster.pass_time(5)
        cluster[1].host.disk.fill()
        await cluster.pass_time(40)
        (volume,) = cluster[1].replicas.logs.volumes
        compaction = cluster[1].housekeeping.compaction
        assert (volume.error, compaction.cleanings) == (None, 0)
        cluster[1].host.disk.make_room()
        await until(lambda: compaction.cleanings == 1, within=CLEANED_S)

    run_scenario(scenario, size=1)


@pytest.mark.parametrize("policy", ["commit", "os"])
def test_closed_segments_are_cleaned_at_the_cleaners_next_turn(policy: str) -> None:
    """Not after the next checkpoint, which comes once a minute: Kafka's limits are the last stable offset and age."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        partition = cluster[1].partition()
        cluster[1].host.call(fill, partition)
        await cluster.pass_time(BACKOFF_S)
        assert cluster[1].housekeeping.compaction.cleanings == 1
        assert partition.log.cleaned_until == partition.log.active_segment.base_offset > 30
        assert offsets(cluster, "recovery-point-offset-checkpoint")[NAME] >= partition.log.cleaned_until

    run_scenario(scenario, size=1, **{"log.flush.policy": policy})


def test_a_cleaning_leaves_the_loop_to_others() -> None:
    """It gives way after a millisecond of work or some steps, and stops where the log went."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        partition = cluster[1].partition()
        cluster[1].host.call(fill, partition, 400)
        await cluster.pass_time(5)
        partition.log.flush()
        partition.log.checkpoint()
        compaction = cluster[1].housekeeping.compaction
        (volume,) = cluster[1].replicas.logs.volumes
        running = cluster.loop.create_task(compaction.clean(volume))
        turns = 0
        while not running.done():
            await cluster.pass_time(0)
            turns += 1
            if turns == 5:
                cluster.delete("t")
        assert turns > 5 and compaction.cleanings == 0

    run_scenario(scenario, size=1)


@pytest.mark.parametrize("moment", [0.013, 0.017, 0.03, 0.05, 0.07, 0.1])
def test_a_topic_deleted_under_a_cleaning_leaves_the_directory_in_service(moment: float) -> None:
    """Its files are gone while they are read from the disk: that is no failing disk."""
    running: list[asyncio.Task[bool]] = []

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        partition = cluster[1].partition()
        cluster[1].host.call(fill, partition, 200)
        await cluster.pass_time(0.1)
        partition.log.flush()
        partition.log.checkpoint()
        compaction = cluster[1].housekeeping.compaction
        (volume,) = cluster[1].replicas.logs.volumes
        cluster[1].host.disk.cold_read_rate = 1.0
        cluster[1].host.offload_s = (0.01, 0.02)
        cluster[1].host.call(running.append, cluster[1].host.start(compaction.clean(volume)))
        await cluster.pass_time(moment)
        cluster.delete("t")
        await running[0]
        assert partition.log.cleaned_until == 0
        assert (volume.error, compaction.cleanings, compaction.failures) == (None, 0, 0)

    run_scenario(scenario, size=1)


def test_a_new_replica_of_a_topic_that_once_was_compact_catches_up() -> None:
    """It knows of no compaction, but the leader's offsets decide: the hole stays empty."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[3].host.crash()
        cluster.change(isr=(1, 2))
        leader = cluster[1].partition()
        cluster[1].host.call(fill, leader, 60)
        await cluster.pass_time(CLEANED_S)
        assert cluster[1].housekeeping.compaction.cleanings > 0
        cluster.publish(configs={("topic", "t"): {"cleanup.policy": "delete", "segment.bytes": "300"}})
        await cluster.start(3)
        await until(lambda: cluster[3].replicas.partitions)
        newest = cluster[3].partition()
        assert not newest.log.compacted
        await until(lambda: newest.log_end_offset == leader.log_end_offset, within=30)
        assert table(newest) == table(leader) == {b"k0": b"57", b"k1": b"58", b"k2": b"59"}
        await cluster.pass_time(1)
        cluster[3].host.crash()
        await cluster.start(3)
        await until(lambda: cluster[3].replicas.partitions)
        assert cluster[3].partition().log.damage is None
        assert cluster[3].partition().log_end_offset == leader.log_end_offset

    run_scenario(scenario)


def test_what_was_cut_and_grew_again_is_not_clean() -> None:
    """However far the log was clean before: the checkpoint says so before the next recovery point does."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        partition = cluster[1].partition()
        cluster[1].host.call(fill, partition)
        await cluster.pass_time(CLEANED_S)
        assert offsets(cluster, CHECKPOINT)[NAME] > 30
        cluster[1].host.call(partition.log.truncate_to, 20)
        await cluster.pass_time(0.01)
        cut_to = partition.log.log_end_offset
        assert 0 < cut_to <= 20
        cluster[1].host.call(fill, partition, 1)
        await cluster.pass_time(61)
        assert cluster[1].housekeeping.compaction.cleanings == 1
        assert offsets(cluster, CHECKPOINT)[NAME] == cut_to

    run_scenario(scenario, size=1)


def test_a_log_that_cannot_be_cleaned_is_named_and_stops_no_other_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One batch once stopped the compaction of all logs behind it for ever, the coordinators' too."""

    def find(log: Log, **limits: int) -> LogToClean | None:
        if log.directory.endswith("t-1"):
            raise struct.error("argument out of range")
        return find_log_to_clean(log, **limits)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.publish(configs={("topic", "t"): COMPACTED})
        cluster.create(partitions=4)
        await cluster.pass_time(0.1)
        broker = cluster[1]
        partitions = [broker.partition(index=each) for each in range(4)]
        for each in partitions:
            broker.host.call(fill, each)
        monkeypatch.setattr(compaction, "find_log_to_clean", find)
        await cluster.pass_time(CLEANED_S)
        assert [each.log.cleaned_until > 30 for each in partitions] == [True, False, True, True]
        (failure,) = broker.housekeeping.failures
        assert failure[:3] == ("compaction", "t-1", "error: argument out of range")
        assert 1 <= failure.times <= 2 and broker.housekeeping.compaction.failures == failure.times
        monkeypatch.undo()
        await cluster.pass_time(2 * CLEANED_S)
        assert partitions[1].log.cleaned_until > 30
        assert not len(broker.housekeeping.failures)

    run_scenario(scenario, size=1)


def test_batches_that_were_made_to_stop_compaction_do_not() -> None:
    """Timestamps beyond 64 bits, in a log from before they were refused: it and all others are cleaned."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.publish(configs={("topic", "t"): COMPACTED})
        cluster.create(partitions=3)
        await cluster.pass_time(0.1)
        broker = cluster[1]
        partitions = [broker.partition(index=each) for each in range(3)]
        for each in partitions:
            forged = with_deltas((2**63 - 1 - NOW_MS, 0), (2**62, 1), timestamp=NOW_MS, value=None)
            header = read_header(forged)
            broker.host.call(
                partial(each.log.append_as_leader, header, forged, leader_epoch=0, now_ms=NOW_MS)
            )
            broker.host.call(fill, each)
        await cluster.pass_time(CLEANED_S)
        assert all(each.log.cleaned_until > 30 for each in partitions)
        assert not len(broker.housekeeping.failures)

    run_scenario(scenario, size=1)
