"""Replicas that could not be made: one timer, its pause kept, and a line for each trouble."""

from __future__ import annotations

import errno

import pytest
from structlog.testing import capture_logs

from raftlog.broker.replicas.missing_replicas import TRY_AGAIN_S
from tests.broker.broker_cluster import BrokerCluster, run_scenario, until
from tests.broker.replicas.test_replicas import until_next_turn

PARTITIONS = 80


@pytest.mark.parametrize(
    ("operation", "error", "event"),
    [
        ("any", errno.ENOSPC, "disk_full"),
        ("open", errno.EMFILE, "too_many_open_files"),
        ("open", errno.ENFILE, "too_many_open_files"),
    ],
)
def test_a_disk_that_takes_no_replica_is_asked_once_in_a_while(
    operation: str, error: int, event: str
) -> None:
    """80 partitions, far more than are made at once: a try, a pause, and one line with the reason."""

    async def scenario(cluster: BrokerCluster) -> None:
        disk, replicas = cluster[1].host.disk, cluster[1].replicas
        disk.fail(operation, under="/data", error=error)
        with capture_logs() as lines:
            cluster.create("t", partitions=PARTITIONS)
            await cluster.pass_time(10 * TRY_AGAIN_S)
        said = [each for each in lines if each["event"] == "replicas_not_created"]
        assert [each["count"] for each in said] == [PARTITIONS]
        assert said[0]["reason"].startswith(f"[Errno {error}]") and "/data/" in said[0]["reason"]
        assert 0 < len([each for each in lines if each["event"] == event]) <= 60
        assert disk.effects[f"{'name' if operation == 'any' else 'open'} failed"] < 10 * 100
        assert len(replicas.refused.reasons) == PARTITIONS
        (volume,) = replicas.logs.volumes
        assert volume.full is (error == errno.ENOSPC)
        assert volume.is_troubled(replicas.now()) is not volume.full
        disk.mend()
        with capture_logs() as lines:
            await until(lambda: len(replicas.partitions) == PARTITIONS)
        assert [each["event"] for each in lines if each["event"].startswith("refused")] == [
            "refused_replicas_created"
        ]
        assert await cluster[1].host.start(cluster[1].produce("a", index=PARTITIONS - 1)) == "committed"

    run_scenario(scenario, size=1)


def test_a_topic_deleted_while_its_replicas_are_refused_is_forgotten() -> None:
    """It is not made when there is room again."""

    async def scenario(cluster: BrokerCluster) -> None:
        disk, replicas = cluster[1].host.disk, cluster[1].replicas
        disk.fail("open", error=errno.EMFILE)
        cluster.create("t", partitions=3)
        await until(lambda: len(replicas.refused.reasons) == 3)
        cluster.delete("t")
        disk.mend()
        await cluster.pass_time(2 * TRY_AGAIN_S)
        assert (dict(replicas.refused.reasons), dict(replicas.partitions)) == ({}, {})

    run_scenario(scenario, size=1)


@pytest.mark.parametrize("partitions", [3, PARTITIONS])
@pytest.mark.parametrize("has_room", [True, False])
def test_a_topic_made_again_while_its_replicas_are_refused_is_served(has_room: bool, partitions: int) -> None:
    """The metadata names a new id. There is room when it does, or when all that was refused is tried again."""

    async def scenario(cluster: BrokerCluster) -> None:
        disk, replicas = cluster[1].host.disk, cluster[1].replicas
        disk.fail("any", under="/data", error=errno.ENOSPC)
        cluster.create("t", partitions=partitions)
        await until(lambda: len(replicas.refused.reasons) == partitions)
        cluster.delete("t")
        if has_room:
            disk.mend()
        cluster.create("t", partitions=partitions)
        await cluster.pass_time(0.1)
        disk.mend()
        await until(lambda: len(replicas.partitions) == partitions)
        made = {each.topic_id for each in replicas.partitions.values()}
        assert made == {cluster.image.topics["t"].topic_id}
        for index in (0, partitions - 1):
            assert await cluster[1].host.start(cluster[1].produce("a", index=index)) == "committed"
        await cluster.pass_time(2 * TRY_AGAIN_S)
        assert (len(replicas.partitions), dict(replicas.refused.reasons)) == (partitions, {})
        assert [cluster[1].values("t", index) for index in (0, partitions - 1)] == [["a"], ["a"]]

    run_scenario(scenario, size=1)


def test_what_was_refused_is_tried_again_in_the_turn_of_the_topic_made_again() -> None:
    """An answer about the topic waits for the replicas that this broker leads, whatever was refused before."""

    async def scenario(cluster: BrokerCluster) -> None:
        disk, replicas = cluster[1].host.disk, cluster[1].replicas
        disk.fail("any", under="/data", error=errno.ENOSPC)
        cluster.create("t", partitions=PARTITIONS)
        await until(lambda: len(replicas.refused.reasons) == PARTITIONS)
        cluster.delete("t")
        disk.mend()
        cluster.create("t", partitions=PARTITIONS)
        await until_next_turn(lambda: replicas._creating is not None)
        replicas.refused._fire()
        assert not replicas.missing.leaderships_made.is_set()
        await replicas.missing.leaderships_made.wait()
        assert len(replicas.partitions) == PARTITIONS

    run_scenario(scenario, size=1)


def test_a_directory_that_refused_is_passed_over_while_another_takes_replicas() -> None:
    """The full directory has the fewest logs, so it would be chosen again and again."""

    async def scenario(cluster: BrokerCluster) -> None:
        logs = cluster[1].replicas.logs
        first, second = logs.volumes
        logs.report(first, OSError(errno.ENOSPC, "No space left on device"))
        assert logs.roomiest([]) is second
        cluster.create("t", partitions=3)
        await until(lambda: len(second.logs) == 3)
        assert not first.logs

    run_scenario(scenario, size=1, log_dirs="/data/one,/data/two")


def test_a_start_waits_for_descriptors() -> None:
    """A log that could not be opened for want of descriptors is no evidence against the disk."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("t", partitions=3)
        await until(lambda: len(cluster[1].replicas.partitions) == 3)
        assert await cluster[1].host.start(cluster[1].produce("a")) == "committed"
        disk = cluster[1].host.disk
        cluster[1].host.crash(power_loss=False)
        disk.fail("open", under="/data/t-0", error=errno.EMFILE)
        cluster.loop.call_later(5.0, disk.mend)
        await cluster.start(1)
        assert cluster[1].replicas.failed_directory_ids == ()
        assert cluster[1].values("t", 0) == ["a"]

    run_scenario(scenario, size=1)
