"""Recurring work looks at touched partitions; an idle partition is free."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest

from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.broker.replicas.touched import TouchedPartitions
from raftlog.replication.partition import Partition
from raftlog.storage import cleaner
from tests.broker.broker_cluster import BrokerCluster, run_scenario
from tests.broker.replicas.test_compaction import CLEANED_S, COMPACTED, put

CHORES = (
    "shrink_isrs",
    "checkpoint_high_watermarks",
    "checkpoint_logs",
    "update_recovery_points",
    "checkpoint_log_starts",
    "retain",
    "reap",
    "expire_producers",
    "limit_producers",
    "compact",
)


def test_each_chore_sees_what_was_touched_once_at_its_own_pace() -> None:
    """A queue that is emptied leaves the others as they are; what a chore keeps comes again."""
    touched = TouchedPartitions()
    often, seldom = touched.queue(), touched.queue()
    one, two = object(), object()
    touched.fresh[one] = None  # type: ignore[index]
    assert often.drain() == [one]
    assert often.drain() == []
    touched.fresh[two] = touched.fresh[one] = None  # type: ignore[index]
    assert list(often) == list(often) == [two, one]
    often.drain()
    often.requeue(two)  # type: ignore[arg-type]
    assert often.drain() == [two]
    assert seldom.drain() == [one, two]


async def _all_chores(housekeeping: Housekeeping) -> None:
    for chore in CHORES:
        await getattr(housekeeping, chore)()


def _lookers(housekeeping: Housekeeping) -> dict[str, list[Partition]]:
    """The content of each queue, by name."""
    own = {name: queue for name, queue in vars(housekeeping).items() if hasattr(queue, "waiting")}
    return {name: list(queue) for name, queue in own.items()}


def test_a_partition_that_rests_waits_in_no_queue() -> None:
    """Once its followers have caught up and all is written, no work visits it until it is touched again."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=5)
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a"))
        await cluster.pass_time(2)
        for broker in (cluster[1], cluster[2], cluster[3]):
            for _ in range(2):
                await broker.host.start(_all_chores(broker.housekeeping))
            assert set(map(len, _lookers(broker.housekeeping).values())) == {0}
            assert list(broker.replicas.unsettled_isrs) == []
        await cluster[1].host.start(cluster[1].produce("b"))
        partition = cluster[1].partition()
        assert set(map(tuple, _lookers(cluster[1].housekeeping).values())) == {(partition,)}

    run_scenario(scenario)


def test_a_follower_that_lags_keeps_its_partition_waiting() -> None:
    """The ISR must shrink even without new appends."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[3].host.crash()
        await cluster[1].host.start(cluster[1].produce("a", acks=1))
        for _ in range(3):
            await cluster[1].host.start(_all_chores(cluster[1].housekeeping))
            assert list(cluster[1].replicas.unsettled_isrs) == [cluster[1].partition()]
        await cluster.pass_time(60)
        assert cluster[1].partition().role.isr.committed == (1, 2)  # type: ignore[union-attr]

    run_scenario(scenario)


def test_a_chore_that_fails_for_a_log_comes_back_to_it() -> None:
    """A failure leaves it in the queue, whatever else happens to it."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        housekeeping, attempts = cluster[1].housekeeping, []

        def fails(partition: Any) -> bool:
            attempts.append(partition)
            raise ValueError("not now")

        queue = cluster[1].replicas.touched.queue()
        queue.requeue(cluster[1].partition())
        await housekeeping._visit(queue, "some", fails, lambda partition: False)
        assert list(queue) == attempts == [cluster[1].partition()]

    run_scenario(scenario, size=1)


def test_queues_let_go_of_deleted_partitions() -> None:
    """No queue references a deleted log, however long its records would have been kept."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a"))
        housekeeping, partition = cluster[1].housekeeping, cluster[1].partition()
        await cluster[1].host.start(_all_chores(housekeeping))
        assert partition in housekeeping._expires
        cluster.delete("t")
        await cluster.pass_time(2)
        await cluster[1].host.start(_all_chores(housekeeping))
        assert partition not in housekeeping._expires
        assert set(map(len, _lookers(housekeeping).values())) == {0}

    run_scenario(scenario, size=1)


def test_a_broker_without_a_cleaner_lets_go_of_deleted_partitions_too() -> None:
    """log.cleaner.enable=false: no cleaner empties a queue for it."""

    async def scenario(cluster: BrokerCluster) -> None:
        for _ in range(5):
            cluster.create()
            await cluster.pass_time(0.5)
            cluster.delete("t")
            await cluster.pass_time(0.5)
        await cluster.pass_time(1300)
        held = cluster[1].replicas.touched._queues
        assert [len(queue.waiting) for queue in held] == [0] * len(held)

    run_scenario(scenario, size=1, log_cleaner_enable="false")


def test_indexes_that_a_reader_loaded_are_unloaded_again() -> None:
    """A job that reads old records through would leave some megabytes for each gigabyte of an idle log."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.publish(configs={("topic", "t"): {"segment.bytes": "300"}})
        cluster.create()
        await cluster.pass_time(0.1)
        for _ in range(20):
            await cluster[1].host.start(cluster[1].produce("x" * 50))
        await cluster.pass_time(700)
        segments = cluster[1].partition().log.segments[:-1]
        assert len(segments) > 5
        assert sum(each._indexed for each in segments) == 0
        for offset in range(20):
            read = (
                cluster[1]
                .partition()
                .role.read_as_consumer(offset, 1, min_one=True, last_fetched_epoch=-1, read_committed=False)
            )
            assert read.records
        assert sum(each._indexed for each in segments) > 5
        await cluster.pass_time(700)
        assert sum(each._indexed for each in segments) == 0

    run_scenario(scenario, size=1)


def test_files_that_a_cleaning_replaced_before_it_failed_are_deleted() -> None:
    """On a full disk, where it fails again and again, they would fill the room that is left."""

    async def scenario(cluster: BrokerCluster) -> None:
        configs = {**COMPACTED, "segment.bytes": "300", "file.delete.delay.ms": "1000"}
        cluster.publish(configs={("topic", "t"): configs})
        cluster.create()
        await cluster.pass_time(0.1)
        broker, groups = cluster[1], itertools.count()
        clean_group = cleaner.Cleaning._clean_group

        def clean_every_other(cleaning: Any, *arguments: Any) -> Any:
            if next(groups) % 2:
                raise OSError(errno.ENOSPC, "full")
            return (yield from clean_group(cleaning, *arguments))

        def fill(partition: Partition) -> None:
            for number in range(60):
                put(partition, b"k%d" % number, b"v" * 40)

        broker.host.call(fill, broker.partition())
        await cluster.pass_time(0.1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaner.Cleaning, "_clean_group", clean_every_other)
            await cluster.pass_time(CLEANED_S)
            assert next(groups) > 1
            await cluster.pass_time(3000)
        found = [name for name in broker.host.disk.listdir("/data/t-0") if name.endswith(".deleted")]
        assert len(found) < 50

    run_scenario(scenario, size=1)
