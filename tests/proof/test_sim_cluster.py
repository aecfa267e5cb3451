"""Whole nodes in virtual time: storms of crashes, power losses, pauses and cuts lose, double or reorder nothing.

A failure names its seed; `python -m raftlog.proof.sweep --seeds N --seconds S --log` replays it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raftlog.broker import fetcher
from raftlog.proof.simulator import SimLoop, simulate
from raftlog.proof.stories import endurance
from raftlog.proof.stories.endurance import Endurance, endure
from raftlog.quorum import wal
from raftlog.replication.following import Following
from raftlog.replication.leading import Leading
from raftlog.replication.progress import Progress
from raftlog.storage.producers import ProducerState

STORM_S = 4.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_storm_breaks_no_promise(seed: int) -> None:
    """What was acknowledged is there once, in order, at its offset, on replicas that are equal and in sync again."""
    report = endurance.run(seed, STORM_S).result
    assert report.acked > 0 and report.elections > 0 and report.faults, "the storm was none"


@pytest.mark.slow
def test_the_same_seed_is_the_same_storm() -> None:
    """Every callback of every node and client, in the same order at the same time."""
    first, again, other = (endurance.run(seed, 1.0) for seed in (3, 3, 4))
    assert first == again
    assert first.digest != other.digest


@pytest.mark.slow
def test_a_storm_does_not_depend_on_hash_randomisation() -> None:
    """Equal digests across PYTHONHASHSEED, in fresh interpreters."""
    program = "from raftlog.proof.stories import endurance; print(endurance.run(3, 1.0).digest)"
    digests = set()
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        digests.add(done.stdout.splitlines()[-1])
    assert len(digests) == 1


async def in_fair_weather(loop: SimLoop) -> endurance.Report:
    story = Endurance(loop)
    await story.begin()
    await asyncio.sleep(1.0)
    recovery_s = await story.finish()
    assert not (faults := story.judge()), faults
    return story.report(recovery_s)


def test_in_fair_weather_leaders_stay_and_everything_is_acknowledged() -> None:
    """Without a fault no partition changes its leader, and all is in sync within moments."""
    report = simulate(in_fair_weather, seed=7).result
    assert report.acked > 30
    assert report.elections == 0
    assert report.recovery_s < 2.0


async def through_blackouts(loop: SimLoop) -> endurance.Report:
    """The whole cluster loses its power amid the work, again and again."""
    story = Endurance(loop)
    await story.begin()
    for _ in range(4):
        acked = story.history.acked_count
        await story.cluster.until(lambda acked=acked: story.history.acked_count > acked + 20, 30, "served")  # type: ignore[misc]
        story.cluster.crash(*story.cluster.nodes)
        await asyncio.sleep(0.2)
        story.cluster.start()
        await story.cluster.until_ready()
    recovery_s = await story.finish()
    assert not (faults := story.judge()), faults
    return story.report(recovery_s)


@pytest.mark.slow
def test_the_power_loss_of_all_nodes_loses_nothing_that_was_acknowledged() -> None:
    """Acknowledged means: on disk on every member of the ISR (log.flush.policy=commit)."""
    assert simulate(through_blackouts, seed=11).result.acked > 80


async def through_a_storm(loop: SimLoop) -> endurance.Report:
    return await endure(loop, STORM_S)


def acknowledge_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """The leader counts what it has only written, and followers fetch on before they flushed."""
    appended = Leading._note_appended

    def count_at_once(leading: Leading, end_before: int) -> None:
        appended(leading, end_before)
        leading.note_flushed(leading.log.log_end_offset)

    patch.setattr(Leading, "_note_appended", count_at_once)
    patch.setattr(fetcher, "_is_dirty", lambda partition: False)


def commit_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """A follower counts for one record more than it proved to have."""
    note_fetch = Progress.note_fetch

    def note_more(progress: Progress, offset: int, epoch: int, *, leader_end_offset: int, now: float) -> None:
        proven = offset + (offset < leader_end_offset)
        note_fetch(progress, proven, epoch, leader_end_offset=leader_end_offset, now=now)

    patch.setattr(Progress, "note_fetch", note_more)


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: a follower's high watermark lags, so this cuts what was committed."""
    begin = Following.begin

    def cut_and_begin(following: Following) -> None:
        begin(following)
        partition = following.partition
        partition.log.truncate_to(max(partition.high_watermark, partition.log_start_offset))

    patch.setattr(Following, "begin", cut_and_begin)


def forget_producers_on_failover(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know what its producers sent to the old one."""
    begin = Leading.begin

    def forget_and_begin(leading: Leading) -> None:
        leading.log._producers = ProducerState()
        begin(leading)

    patch.setattr(Leading, "begin", forget_and_begin)


def tell_the_end_before_it_is_settled(patch: pytest.MonkeyPatch) -> None:
    """KIP-207: a new leader's high watermark may lie before what the old one told."""
    begin = Leading.begin

    def begin_settled(leading: Leading) -> None:
        leading.epoch_start_offset = 0
        begin(leading)

    patch.setattr(Leading, "begin", begin_settled)


def metadata_without_sync(patch: pytest.MonkeyPatch) -> None:
    """Raft §5: a vote or an entry that is answered for must be on the disk."""

    def append_only(journal: wal.Wal, records: list[bytes]) -> None:
        assert journal._file is not None
        group = b"".join([wal.group_record(journal._end), *records])
        journal._end += journal._file.pwritev([group], journal._end)

    patch.setattr(wal.Wal, "append", append_only)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "story", "seeds"),
    [
        (acknowledge_before_the_flush, through_blackouts, range(20)),
        (commit_one_too_many, through_a_storm, range(9, 29)),
        (truncate_to_the_high_watermark, through_a_storm, range(2, 12)),
        (forget_producers_on_failover, through_a_storm, range(10)),
        (tell_the_end_before_it_is_settled, through_a_storm, range(2, 17)),
        (metadata_without_sync, through_a_storm, range(10)),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    story: Callable[[SimLoop], Coroutine[Any, Any, object]],
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Storms that find nothing must be storms in which there was nothing to find."""
    plant(monkeypatch)
    for seed in seeds:
        try:
            simulate(story, seed=seed)
        except AssertionError:
            return
    pytest.fail(f"not found by seeds {seeds}")


@pytest.mark.slow
def test_a_failure_names_its_seed_and_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that judges nothing would be green for ever."""
    monkeypatch.setattr(Endurance, "judge", lambda story: [f"seed {story.loop.seed} lost everything"])
    with pytest.raises(AssertionError, match="seed 5 lost everything"):
        simulate(lambda loop: endure(loop, 0.1), seed=5)
