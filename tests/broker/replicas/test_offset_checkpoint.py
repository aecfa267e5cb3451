"""Checkpoint files speak of the logs that are there, of all of them, and of no predecessor of the same name."""

from __future__ import annotations

import pytest

from raftlog.base.types import TopicPartition
from raftlog.broker.replicas import housekeeping
from raftlog.replication.partition import Partition
from tests.broker.broker_cluster import BrokerCluster, run_scenario
from tests.broker.replicas.test_compaction import COMPACTED, fill
from tests.broker.replicas.test_housekeeping import NAME, offsets


def test_a_log_made_again_while_a_checkpoint_is_drawn_up_is_not_judged_by_its_predecessor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recovery point beyond what was flushed of the new log would leave its records unchecked after a crash."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("t")
        cluster.create("u", partitions=5)
        await cluster.pass_time(0.1)
        broker, spent_s = cluster[1], 0.0
        await broker.host.start(broker.produce("a", "b"))
        await cluster.pass_time(130)
        assert offsets(cluster, "recovery-point-offset-checkpoint") == {NAME: 2}
        for index in range(5):
            await broker.host.start(broker.produce("x", topic="u", index=index))
        checkpoint = housekeeping._checkpoint

        def long(partition: Partition) -> bool:
            nonlocal spent_s
            spent_s += 0.5
            return checkpoint(partition)

        monkeypatch.setattr(housekeeping, "_checkpoint", long)
        broker.replicas.stopwatch = lambda: spent_s
        drawing_up = broker.host.start(broker.housekeeping.checkpoint_logs())
        await cluster.pass_time(0.6)
        cluster.delete("t")
        await cluster.pass_time(0.3)
        cluster.create("t")
        await cluster.pass_time(0.2)
        assert not drawing_up.done()
        await drawing_up
        assert NAME not in offsets(cluster, "recovery-point-offset-checkpoint")

    run_scenario(scenario, size=1)


def test_a_log_made_again_is_news_though_its_offset_is_its_predecessors() -> None:
    """Deleted records would be back after a crash."""

    async def scenario(cluster: BrokerCluster) -> None:
        for _ in range(2):
            cluster.create()
            await cluster.pass_time(0.1)
            for _ in range(3):
                await cluster[1].host.start(cluster[1].produce("a"))
            cluster[1].partition().delete_records(2)
            await cluster.pass_time(65)
            assert offsets(cluster, "log-start-offset-checkpoint") == {NAME: 2}
            assert offsets(cluster, "replication-offset-checkpoint") == {NAME: 3}
            cluster.delete("t")
            await cluster.pass_time(0.5)

    run_scenario(scenario, size=1)


def test_a_cleaning_after_a_start_leaves_other_logs_in_the_file() -> None:
    """A crash soon after it would have every other compacted log cleaned from its beginning."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.publish(configs={("topic", "t"): COMPACTED, ("topic", "u"): COMPACTED})
        cluster.create("t")
        cluster.create("u")
        await cluster.pass_time(0.1)
        broker, other = cluster[1], TopicPartition("u", 0)
        for name in ("t", "u"):
            broker.host.call(fill, broker.partition(name))
        await cluster.pass_time(130)
        cleaned = offsets(cluster, "cleaner-offset-checkpoint")
        assert set(cleaned) == {NAME, other}
        broker.host.crash()
        await cluster.start(1)
        broker.host.call(fill, broker.partition("u"))
        await cluster.pass_time(20)
        found = offsets(cluster, "cleaner-offset-checkpoint")
        assert found[other] > cleaned[other]
        assert found[NAME] == cleaned[NAME]

    run_scenario(scenario, size=1)
