"""Checkpoint files speak of the logs that are there, of all of them, and of no predecessor of the same name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.base.turns import TurnQueue
from raftlog.base.types import TopicPartition
from raftlog.broker.replicas import housekeeping
from raftlog.broker.replicas.offset_checkpoint import OffsetCheckpoint
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


class Fake(SimpleNamespace):
    """A volume or the ports of a node; a key like them."""

    __hash__ = object.__hash__


class CountedName(str):
    """A name that counts how often it is looked up. A copy of a dict looks nothing up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountedName.lookups += 1
        return super().__hash__()


async def test_the_loop_looks_at_logs_that_moved_alone() -> None:
    """100,000 logs took 150 ms to draw up and 500 ms to count as written, each second."""
    names = [CountedName(f"t-{number}") for number in range(50)]
    logs, drawn, written = {name: SimpleNamespace(truncation_count=0) for name in names}, [], []

    async def offload(work: Callable[[], bool]) -> bool:
        assert CountedName.lookups == 0
        done = work()
        CountedName.lookups = 0
        return done

    def checkpoint(write: Callable[[], None], _generation: int) -> bool:
        write()
        return True

    env: Any = SimpleNamespace(offload=offload, turns=TurnQueue())
    volume: Any = Fake(logs=logs, directory=None, generation=0, checkpoint=checkpoint)
    points = OffsetCheckpoint(
        env,
        lambda _, offsets: drawn.append(dict(offsets)),
        written=lambda log, offset: written.append((log, offset)),
    )
    for moved in (names, names[7:9]):
        written.clear()
        for name in moved:
            partition: Any = SimpleNamespace(name=name, log=logs[name])
            points.note(volume, partition, 2 + len(drawn))
        CountedName.lookups = 0
        writing = points.write_if_changed(volume)
        assert writing is not None
        await writing
        assert CountedName.lookups == 0
        assert written == [(logs[name], 1 + len(drawn)) for name in moved]
    assert points.write_if_changed(volume) is None
    assert drawn[1] == dict.fromkeys(names, 2) | dict.fromkeys(names[7:9], 3)


async def test_offsets_that_could_not_be_written_are_due_again_with_those_that_moved_since() -> None:
    """A refused file leaves the older one, and the marks of cuts wait for what is written."""
    written, log = [], SimpleNamespace(truncation_count=0)
    is_written = iter((False, True))

    async def offload(work: Callable[[], bool]) -> bool:
        return work()

    def checkpoint(write: Callable[[], None], _generation: int) -> bool:
        return next(is_written)

    env: Any = SimpleNamespace(offload=offload, turns=TurnQueue())
    volume: Any = Fake(logs={"t": log, "u": log}, directory=None, generation=0, checkpoint=checkpoint)
    points = OffsetCheckpoint(env, lambda _, offsets: None, written=lambda _, offset: written.append(offset))
    for name, offset in (("t", 1), ("u", 5)):
        partition: Any = SimpleNamespace(name=name, log=log)
        points.note(volume, partition, offset)
        writing = points.write_if_changed(volume)
        assert writing is not None
        await writing
    assert written == [1, 5]


def test_work_on_all_logs_leaves_the_loop_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with 100,000 logs has some of these chores each second."""
    monkeypatch.setattr(housekeeping, "LOGS_AT_ONCE", 2)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=9)
        await cluster.pass_time(65)
        broker, turns = cluster[1], 0
        chores, give = broker.housekeeping, TurnQueue.next

        async def count(given: TurnQueue) -> None:
            nonlocal turns
            turns += 1
            await give(given)

        monkeypatch.setattr(TurnQueue, "next", count)
        for chore, at_least in (
            (chores.checkpoint_high_watermarks, 4),
            (chores.checkpoint_log_starts, 4),
            (chores.update_recovery_points, 8),
        ):
            for index in range(9):
                await broker.host.start(broker.produce("x", index=index))
            turns = 0
            await broker.host.start(chore())
            assert turns >= at_least, chore

    run_scenario(scenario, size=1)


async def test_a_log_that_is_cut_while_its_offset_is_written_is_written_again() -> None:
    """The mark of the cut waits for an offset from after it, also if that is the same."""
    written, log, cuts = [], SimpleNamespace(truncation_count=0), iter((1, 0))

    async def offload(work: Callable[[], bool]) -> bool:
        log.truncation_count += next(cuts)
        return work()

    env: Any = SimpleNamespace(offload=offload, turns=TurnQueue())
    volume: Any = Fake(logs={"t": log}, directory=None, generation=0, checkpoint=lambda *_: True)
    points = OffsetCheckpoint(env, lambda _, offsets: None, written=lambda _, offset: written.append(offset))
    partition: Any = SimpleNamespace(name="t", log=log)
    for expected in ([], [7]):
        points.note(volume, partition, 7)
        writing = points.write_if_changed(volume)
        assert writing is not None
        await writing
        assert written == expected
