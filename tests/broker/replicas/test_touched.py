"""Recurring work looks at touched partitions; an idle partition is free."""

from __future__ import annotations

import errno
import gc
import itertools
from typing import Any
from weakref import ref

import pytest

from raftlog.broker.replicas.compaction import LogCleaner
from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.broker.replicas.replicas import CREATED_ON_LOOP
from raftlog.broker.replicas.touched import TouchedPartitions
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.replication.partition import Partition
from raftlog.storage import cleaner
from raftlog.storage.log import Log
from tests.broker.broker_cluster import BrokerCluster, run_scenario
from tests.broker.replicas.test_compaction import CLEANED_S, COMPACTED, compacted, fill, put
from tests.broker.replicas.test_follower_fetch import Reader
from tests.replication.replica_cluster import NOW_MS

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


@pytest.mark.parametrize("policy", ["delete", "compact", "delete,compact"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"log_cleaner_enable": "false"}, {"log_flush_policy": "os"}],
    ids=["usual", "no cleaner", "flushed in time"],
)
def test_nothing_holds_a_deleted_log(policy: str, settings: dict[str, str]) -> None:
    """A few seconds later no chore, checkpoint, timer or session of a client that is gone has it."""

    def write(partition: Partition, number: int) -> None:
        record = new_record(b"k", b"x" * 400, timestamp=NOW_MS)
        batch = build_batch([record], producer=ProducerIdAndSequence(1, 0, number))
        partition.append_produced(memoryview(batch), acks=1, now_ms=NOW_MS)

    async def scenario(cluster: BrokerCluster) -> None:
        configs = {"cleanup.policy": policy, "segment.bytes": "300", "flush.ms": "86400000"}
        cluster.publish(configs={("topic", "t"): configs})
        cluster.create(partitions=3)
        await cluster.pass_time(0.1)
        for number in range(2):
            cluster[1].host.call(write, cluster[1].partition(), number)
            await cluster.pass_time(0.1)
        for each in cluster.brokers.values():
            await each.host.start(_all_chores(each.housekeeping))
        readers = [Reader(cluster) for _ in range(3)]
        assert (await readers[0].fetch(1, 0)).records  # it is idle from now on
        assert not (await readers[1].fetch(1, 2)).records
        assert readers[1].host.start(readers[1].fetch(1, None, wait_ms=86_400_000))
        assert not (await readers[2].fetch(1, 2)).records
        assert len(cluster[1].server.sessions) == 3 + 2  # and its followers'
        logs = [
            ref(each.log)
            for broker in cluster.brokers.values()
            for each in broker.replicas.partitions.values()
        ]
        assert len(logs) == 9
        cluster[1].host.call(write, cluster[1].partition(), 2)
        cluster.delete("t")
        await cluster.pass_time(5)
        assert _held(logs) == []
        for each in cluster.brokers.values():
            held = each.replicas.touched._queues
            assert [len(queue.waiting) for queue in held] == [0] * len(held)

    run_scenario(scenario, **settings)


def test_a_topic_deleted_while_it_is_made_leaves_nothing() -> None:
    """Its logs are made in a thread, and removed again."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=CREATED_ON_LOOP + 1)
        await cluster.pass_time(0.0001)
        cluster.delete("t")
        await cluster.pass_time(5)
        assert cluster[1].replicas.partitions == {}
        assert "t" not in cluster[1].replicas.traffic

    run_scenario(scenario, size=1)


def test_a_topic_deleted_while_its_log_is_cleaned_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaning touches the replica at its end."""

    async def scenario(cluster: BrokerCluster) -> None:
        compacted(cluster)
        await cluster.pass_time(0.1)
        cluster[1].host.call(fill, cluster[1].partition())
        run, logs = LogCleaner._run, [ref(cluster[1].partition().log)]

        async def interrupted(*arguments: Any) -> None:
            cluster.delete("t")
            await cluster.pass_time(1)
            await run(*arguments)

        monkeypatch.setattr(LogCleaner, "_run", interrupted)
        await cluster.pass_time(CLEANED_S)
        assert cluster[1].replicas.partitions == {}
        assert _held(logs) == []

    run_scenario(scenario, size=1)


def _held(logs: list[ref[Log]]) -> list[Log]:
    """Return the logs that are in memory."""
    gc.collect()
    return [log for each in logs if (log := each()) is not None]


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
