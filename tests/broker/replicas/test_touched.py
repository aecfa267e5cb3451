"""Recurring work looks at partitions to which something happened, and an idle one costs it nothing."""

from __future__ import annotations

from typing import Any

from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.broker.replicas.touched import TouchedPartitions
from raftlog.replication.partition import Partition
from tests.broker.broker_cluster import BrokerCluster, run_scenario

CHORES = (
    "shrink_isrs",
    "checkpoint_high_watermarks",
    "checkpoint_logs",
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
    assert often.take() == [one]
    assert often.take() == []
    touched.fresh[two] = touched.fresh[one] = None  # type: ignore[index]
    assert list(often) == list(often) == [two, one]
    often.take()
    often.keep(two)  # type: ignore[arg-type]
    assert often.take() == [two]
    assert seldom.take() == [one, two]


async def _all_chores(housekeeping: Housekeeping) -> None:
    for chore in CHORES:
        await getattr(housekeeping, chore)()


def _lookers(housekeeping: Housekeeping) -> dict[str, list[Partition]]:
    """The content of each queue, by name."""
    own = {name: queue for name, queue in vars(housekeeping).items() if hasattr(queue, "waiting")}
    return {name: list(queue) for name, queue in own.items()}


def test_a_partition_that_rests_waits_in_no_queue() -> None:
    """Once its followers have all and everything is written, nothing looks at it until it is touched again."""

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
    """The ISR must shrink though nothing is appended any more."""

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
        queue.keep(cluster[1].partition())
        await housekeeping._visit(queue, "some", fails, lambda partition: False)
        assert list(queue) == attempts == [cluster[1].partition()]

    run_scenario(scenario, size=1)


def test_queues_let_go_of_deleted_partitions() -> None:
    """A log that is gone is held by nothing, however long its records would have been kept."""

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
