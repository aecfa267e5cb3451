"""The chores, run by the clock of a simulation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raftlog.base.types import TopicPartition
from raftlog.storage.log_directory import decode_offsets
from tests.broker.world import World, play, until

NAME = TopicPartition("t", 0)


def offsets(world: World, name: str) -> dict[TopicPartition, int]:
    disk = world[1].host.disk
    return decode_offsets(disk.read_file(f"/data/{name}")) if disk.exists(f"/data/{name}") else {}


def test_high_watermarks_are_checkpointed() -> None:
    """replica.high.watermark.checkpoint.interval.ms: a restart begins near where it was."""

    async def story(world: World) -> None:
        world.create()
        await world.pass_time(0.1)
        await world[1].host.start(world[1].produce("a", "b"))
        await world.pass_time(6)
        assert offsets(world, "replication-offset-checkpoint") == {NAME: 2}
        syncs = world[1].host.disk.syncs
        await world.pass_time(20)
        assert world[1].host.disk.syncs == syncs

    play(story, size=1)


def test_the_recovery_point_follows_what_is_flushed() -> None:
    """log.flush.offset.checkpoint.interval.ms: after a crash only what lies beyond it is checked."""

    async def story(world: World) -> None:
        world.create()
        await world.pass_time(0.1)
        await world[1].host.start(world[1].produce("a", "b"))
        await world.pass_time(65)
        assert offsets(world, "recovery-point-offset-checkpoint") == {NAME: 2}
        assert world[1].partition().log.recovery_point == 2

    play(story, size=1)


def test_deleted_records_stay_deleted_over_a_restart() -> None:
    """log-start-offset-checkpoint: the log start may lie inside a segment."""

    async def story(world: World) -> None:
        world.create()
        await world.pass_time(0.1)
        await world[1].host.start(world[1].produce("a"))
        await world[1].host.start(world[1].produce("b"))
        world[1].partition().delete_records(1)
        await world.pass_time(65)
        world[1].host.crash()
        await world.start(1)
        assert world[1].partition().log_start_offset == 1

    play(story, size=1)


def test_expired_records_go_and_their_files_later() -> None:
    """retention.ms, then file.delete.delay.ms; readers find the new log start."""

    async def story(world: World) -> None:
        world.create()
        world.publish(configs={("topic", "t"): {"retention.ms": "1000"}})
        await world.pass_time(0.1)
        await world[1].host.start(world[1].produce("a"))
        folder = "/data/t-0"
        await until(lambda: world[1].partition().log_start_offset == 1, within=400)
        assert any(name.endswith(".deleted") for name in world[1].host.disk.listdir(folder))
        await world.pass_time(100)
        assert not any(name.endswith(".deleted") for name in world[1].host.disk.listdir(folder))

    play(story, size=1)


def test_an_idle_broker_writes_no_checkpoint() -> None:
    """Thousands of logs in which nothing happened cost no sync, however long that lasts."""

    async def story(world: World) -> None:
        world.create(partitions=3)
        await world.pass_time(0.1)
        for value in "ab":
            await world[1].host.start(world[1].produce(value))
        world[1].partition().delete_records(1)
        await world.pass_time(130)
        syncs = world[1].host.disk.syncs
        await world.pass_time(600)
        assert world[1].host.disk.syncs == syncs

    play(story, size=1)


def test_a_chore_leaves_the_loop_half_of_the_time() -> None:
    """A checkpoint may wait for the disk, once for each log."""

    async def story(world: World) -> None:
        world.create(partitions=10)
        await world.pass_time(0.1)
        broker, clock, visited = world[1], [0.0], []
        broker.replicas.stopwatch = lambda: clock[0]

        def slow(partition: object) -> bool:
            clock[0] += 0.5
            visited.append(world.loop.time())
            return True

        (volume,) = broker.replicas.logs.online
        await broker.housekeeping._visit(volume, slow)
        assert [later - before for before, later in pairwise(visited)] == pytest.approx([0.5] * 9, rel=0.01)

    play(story, size=1)


def test_a_new_topic_is_not_judged_by_the_checkpoints_of_a_former_one_of_its_name() -> None:
    """Else its log, shorter than the former one's recovery point, would pass for damaged, on every replica at once."""

    async def story(world: World) -> None:
        world.create()
        await world.pass_time(0.1)
        await world[1].host.start(world[1].produce("a", "b"))
        await world.pass_time(65)
        world[1].host.crash()
        await world.start(1)
        await until(lambda: world[1].replicas.partitions)
        assert offsets(world, "recovery-point-offset-checkpoint") == {NAME: 2}
        world.delete("t")
        await until(lambda: not world[1].replicas.partitions)
        world.create()
        await until(lambda: world[1].replicas.partitions)
        assert world[1].partition().log.damage is None
        world[1].host.crash()
        await world.start(1)
        await until(lambda: world[1].replicas.partitions)
        assert world[1].partition().log.damage is None
        assert world[1].partition().high_watermark == 0

    play(story, size=1)


def test_a_checkpoint_drawn_up_before_a_topic_was_made_anew_is_not_written() -> None:
    """It may wait for its thread while the topic is deleted and made again."""

    async def story(world: World) -> None:
        world.create()
        await world.pass_time(0.1)
        (volume,) = world[1].replicas.logs.online
        drawn_up, write = volume.generation, volume.directory.write_recovery_points
        assert volume.checkpoint(write, {NAME: 2}, drawn_up)
        volume.forget([NAME])
        assert not volume.checkpoint(write, {NAME: 2}, drawn_up)
        assert offsets(world, "recovery-point-offset-checkpoint") == {}

    play(story, size=1)
