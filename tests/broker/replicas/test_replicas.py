"""Three brokers in one simulation: followers fetch over connections, roles change, disks and brokers fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from raftlog.broker.replicas import replicas
from tests.broker.broker_cluster import BrokerCluster, run_scenario, until
from tests.replication.replica_cluster import batch


def test_a_record_reaches_every_replica_before_acks_all_is_answered() -> None:
    """Flushed on every ISR member (docs, "Durable before acknowledged"): all logs hold it when the producer hears."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.05)
        outcome = await cluster[1].host.start(cluster[1].produce("a", "b"))
        assert outcome == "committed"
        assert [cluster[each].values() for each in (1, 2, 3)] == [["a", "b"]] * 3
        assert [cluster[each].partition().log.flushed_end_offset for each in (1, 2, 3)] == [2, 2, 2]

    run_scenario(scenario)


def test_what_was_acknowledged_survives_the_power_loss_of_all() -> None:
    """All nodes lose their unsynced bytes at once; no acknowledged record is among them."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.05)
        for value in "abc":
            assert await cluster[1].host.start(cluster[1].produce(value)) == "committed"
        for broker in cluster.brokers.values():
            broker.host.crash()
        await cluster.start()
        for each in cluster.brokers:
            assert cluster[each].values() == ["a", "b", "c"]

    for seed in range(3):
        run_scenario(scenario, seed=seed)


def test_a_new_leaders_followers_do_not_wait_out_their_long_poll() -> None:
    """Failover: the follower that is parked at the new leader asks again at once when partitions come to it."""

    async def scenario(cluster: BrokerCluster) -> float:
        cluster.create("t", partitions=3)
        await cluster.pass_time(2.0)
        cluster[1].host.crash()
        cluster.change("t", 0, leader=2, isr=(2, 3))
        cluster.change("t", 1, isr=(2, 3))
        began_at = cluster.loop.time()
        await until(lambda: cluster[2].partition("t", 0).is_leader)
        assert await cluster[2].host.start(cluster[2].produce("a")) == "committed"
        return cluster.loop.time() - began_at

    for seed in range(5):
        assert run_scenario(scenario, seed=seed).result < 0.05


def test_a_killed_follower_leaves_and_joins_the_isr() -> None:
    """Shrink on lag, expand on catch-up, through AlterPartition; the producer waits for neither longer than the lag."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[3].host.crash(silent=True)
        began_at = cluster.loop.time()
        assert await cluster[1].host.start(cluster[1].produce("a")) == "committed"
        assert 4.9 < cluster.loop.time() - began_at < 8
        assert cluster.state().isr == (1, 2)
        await cluster.start(3)
        await until(lambda: cluster.state().isr == (1, 2, 3))
        assert cluster[3].values() == ["a"]

    run_scenario(scenario)


def test_a_killed_leader_is_lost_to_its_followers_and_found_when_it_is_back() -> None:
    """Its connections break at once, long before the metadata says so; a stop of our own is no loss."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        heard: list[tuple[str, int]] = []
        peers = cluster[2].replicas.peers
        peers.on_leader_lost = lambda leader: heard.append(("lost", leader))
        peers.on_leader_found = lambda leader: heard.append(("found", leader))
        cluster[2].host.call(peers.reconnect_all)
        await cluster.pass_time(0.5)
        assert heard == [("found", 1)]
        cluster[1].host.crash()
        await cluster.pass_time(0.1)
        assert heard[1:] == [("lost", 1)]
        await cluster.start(1)
        await until(lambda: heard[1:] == [("lost", 1), ("found", 1)])

    run_scenario(scenario)


def test_a_proposal_goes_on_until_a_controller_answers() -> None:
    """No majority: no change is half done; when it returns, the ISR changes."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.controller_is_away = True
        cluster.create(isr=(1,))
        await cluster.pass_time(3)
        assert cluster.state().isr == (1,)
        cluster.controller_is_away = False
        await until(lambda: set(cluster.state().isr) == {1, 2, 3})

    run_scenario(scenario)


def test_a_paused_follower_delays_only_its_own_partitions_isr() -> None:
    """A hung follower does not stop the rest: partitions without it go on, the others after the lag time."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        cluster.create("other", replicas=(1, 2))
        await cluster.pass_time(0.1)
        cluster[3].host.pause()
        began_at = cluster.loop.time()
        assert await cluster[1].host.start(cluster[1].produce("a", topic="other")) == "committed"
        assert cluster.loop.time() - began_at < 0.1
        assert await cluster[1].host.start(cluster[1].produce("b")) == "committed"
        cluster[3].host.resume()
        await until(lambda: cluster.state().isr == (1, 2, 3))

    run_scenario(scenario)


def test_a_zombies_suffix_is_cut_when_it_comes_back() -> None:
    """The old leader wrote with acks=1 after it was replaced; it follows and truncates by epoch."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a"))
        cluster[1].host.pause()
        cluster.change(leader=2, isr=(2, 3))
        await until(lambda: cluster[2].partition().is_leader)
        zombie = cluster[1].partition()
        assert zombie.is_leader
        cluster[1].host.process.context.run(
            lambda: zombie.append_produced(batch("zombie"), acks=1, now_ms=1_767_225_600_000)
        )
        assert await cluster[2].host.start(cluster[2].produce("b")) == "committed"
        cluster[1].host.resume()
        await until(lambda: set(cluster.state().isr) == {1, 2, 3})
        assert [cluster[each].values() for each in (1, 2, 3)] == [["a", "b"]] * 3

    run_scenario(scenario)


def test_log_directories_are_opened_once() -> None:
    """Opening takes the clean-shutdown marker away: a second look would find an unclean stop."""

    async def scenario(cluster: BrokerCluster) -> None:
        volumes = tuple(cluster[1].replicas.logs.volumes)
        cluster[1].replicas.logs.open_directories(None)
        assert tuple(cluster[1].replicas.logs.volumes) == volumes

    run_scenario(scenario, size=1)


def test_a_failed_log_directory_stops_leading_and_is_reported() -> None:
    """EIO on sync; no acknowledgement, no second sync, the directory's id goes into the heartbeats."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[1].host.disk.fail("sync")
        outcome = await cluster[1].host.start(cluster[1].produce("a"))
        assert outcome == "KafkaStorageError"
        assert cluster[1].replicas.failed_directory_ids == cluster[1].replicas.directory_ids
        cluster[1].host.disk.mend()
        assert await cluster[1].host.start(cluster[1].produce("b")) == "KafkaStorageError"

    run_scenario(scenario)


def test_a_full_disk_refuses_writes_and_recovers_by_itself() -> None:
    """ENOSPC is no failure of the directory."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[1].host.disk.fail("write", error=28)
        assert await cluster[1].host.start(cluster[1].produce("a")) == "KafkaStorageError"
        cluster[1].host.disk.mend()
        assert await cluster[1].host.start(cluster[1].produce("b")) == "committed"
        assert cluster[1].replicas.failed_directory_ids == ()

    run_scenario(scenario, size=1)


def test_a_topic_made_again_under_its_name_is_another_log() -> None:
    """Its id differs: the old files go first, and their records are not served."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("old"))
        cluster.delete("t")
        cluster.create()
        await cluster.pass_time(0.2)
        assert await cluster[1].host.start(cluster[1].produce("new")) == "committed"
        assert [cluster[each].values() for each in (1, 2, 3)] == [["new"]] * 3
        assert cluster[1].host.disk.listdir("/data").count("t-0") == 1
        assert not [name for name in cluster[1].host.disk.listdir("/data") if name.endswith("-delete")]

    run_scenario(scenario)


def test_a_replica_that_moves_away_takes_its_log_along() -> None:
    """KIP-455: the folder goes once the metadata says so; producers that wait look for the new leader."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(replicas=(1, 2))
        await cluster.pass_time(0.1)
        assert await cluster[1].host.start(cluster[1].produce("a")) == "committed"
        cluster[2].host.disk.fail("sync")  # no more records are committed
        waiting = cluster[1].host.start(cluster[1].produce("b"))
        await cluster.pass_time(0.1)
        cluster.change(leader=2, isr=(2,), replicas=(2,))
        assert await waiting == "NotLeaderOrFollower"
        await until(lambda: not any(each.startswith("t-0") for each in cluster[1].host.disk.listdir("/data")))
        assert not cluster[1].replicas.partitions

    run_scenario(scenario)


def test_a_replica_may_come_and_go_faster_than_its_files() -> None:
    """Of one topic id there may be several folders to remove: their names differ."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(replicas=(1, 2))
        await cluster.pass_time(0.1)
        cluster[2].host.offload_s = (0.5, 0.5)  # so long it takes to remove a folder
        for _ in range(3):
            cluster.change(isr=(1,), replicas=(1,))
            await cluster.pass_time(0.05)
            cluster.change(replicas=(1, 2))
            await cluster.pass_time(0.05)
        assert await cluster[1].host.start(cluster[1].produce("a")) == "committed"
        await until(lambda: 2 in cluster.state().isr)
        assert cluster[2].values() == ["a"]
        assert cluster[2].replicas.failed_directory_ids == ()
        await cluster.pass_time(2)
        assert cluster[2].host.disk.listdir("/data").count("t-0") == 1
        assert not [name for name in cluster[2].host.disk.listdir("/data") if name.endswith("-delete")]

    run_scenario(scenario)


def test_a_topic_deleted_while_a_broker_was_down_is_set_aside_when_it_returns() -> None:
    """A stray. Renamed, not deleted: maybe the metadata was lost, or the folder is Kafka's (KAFKA-14616)."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        cluster[3].host.crash()
        cluster.delete("t")
        await cluster.start(3)
        await until(lambda: "t-0" not in cluster[3].host.disk.listdir("/data"))
        assert not cluster[3].replicas.partitions
        assert [name for name in cluster[3].host.disk.listdir("/data") if name.endswith("-stray")]

    run_scenario(scenario)


def test_what_a_crash_left_of_a_deleted_partition_is_removed_when_the_broker_returns() -> None:
    """As Kafka does: it would take the disk's space for ever."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        disk = cluster[3].host.disk
        cluster[3].host.crash()
        left = [f"/data/gone-{index}.{index:032x}-delete" for index in range(3)]
        for folder in (*left, "/data/backup-delete"):
            disk.mkdir(folder)
            disk.write_file(f"{folder}/00000000000000000000.log", b"records")
        await cluster.start(3)
        await until(lambda: not any(map(disk.is_folder, left)))
        assert disk.is_folder("/data/backup-delete"), "that is somebody else's"
        assert cluster[3].replicas.partitions

    run_scenario(scenario)


def test_a_replica_that_lost_its_power_before_it_held_anything_needs_no_person() -> None:
    """Its topic id was not on disk yet, nor any record: it is made anew, and no operator has to look."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await until(lambda: cluster[1].replicas.partitions)
        cluster[1].host.crash()
        await cluster.start(1)

    with capture_logs() as logs:
        for seed in range(20):
            run_scenario(scenario, seed=seed)
    levels = [each["log_level"] for each in logs if each["event"] == "log_without_topic_id_set_aside"]
    assert levels, "no seed lost the id"
    assert set(levels) == {"warning"}


def test_the_topic_id_of_a_log_is_as_durable_as_its_records() -> None:
    """Power loss right after the first acknowledgement: the log is still known to be this topic's."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await until(lambda: cluster[1].replicas.partitions)
        assert await cluster[1].host.start(cluster[1].produce("a")) == "committed"
        cluster[1].host.crash()
        await cluster.start(1)
        assert cluster[1].partition().topic_id == cluster.image.topics["t"].topic_id
        assert cluster[1].values() == ["a"]

    for seed in range(5):
        run_scenario(scenario, size=1, seed=seed)


def test_a_restarted_broker_takes_no_role_of_its_earlier_life() -> None:
    """Its own metadata may lag: until an image holds its new registration, it neither leads nor follows."""

    async def scenario(cluster: BrokerCluster) -> None:
        epoch, cluster[1].epoch = cluster[1].epoch, 999
        cluster.create()
        await cluster.pass_time(0.1)
        assert not cluster[1].replicas.partitions
        cluster[1].epoch = epoch
        cluster.publish()
        await until(lambda: cluster[1].replicas.partitions and cluster[1].partition().is_leader)

    run_scenario(scenario)


def test_a_broker_that_stops_takes_no_new_replicas() -> None:
    """Metadata goes on arriving while logs close; a replica made then would be in no checkpoint."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await until(lambda: cluster[1].replicas.partitions)
        replicas = cluster[1].replicas

        async def stop_amid_news() -> None:
            closing = asyncio.ensure_future(replicas.close())
            await asyncio.sleep(0)
            cluster.create("u")
            await closing

        await cluster[1].host.start(stop_amid_news())
        assert [name.topic for name in replicas.partitions] == ["t"]
        assert cluster[1].host.disk.exists("/data/.kafka_cleanshutdown")

    run_scenario(scenario, size=1)


def test_a_disk_that_fails_while_a_follower_stops_is_reported() -> None:
    """Its replicas no longer follow by then, and are offline all the same."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await until(lambda: cluster[2].replicas.peers.fetchers)
        replicas = cluster[2].replicas

        async def stop_on_a_bad_disk() -> None:
            closing = asyncio.ensure_future(replicas.close())
            await asyncio.sleep(0)
            assert not replicas.peers.fetchers
            replicas.logs.fail(replicas.logs.online[0], OSError(5, "it broke"))
            await closing

        await cluster[2].host.start(stop_on_a_bad_disk())
        assert replicas.logs.failed_directory_ids

    run_scenario(scenario)


def test_many_replicas_are_made_while_the_broker_goes_on() -> None:
    """2,000 partitions: folders wait for the file system's journal, so they are made away from the loop."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("t", partitions=100)
        await until(lambda: cluster[1].replicas.partitions)
        assert len(cluster[1].replicas.partitions) < 100
        await until(lambda: all(len(cluster[each].replicas.partitions) == 100 for each in (1, 2, 3)))
        assert await cluster[1].host.start(cluster[1].produce("a", index=99)) == "committed"
        assert [cluster[each].values("t", 99) for each in (1, 2, 3)] == [["a"]] * 3

    run_scenario(scenario)


def test_what_is_deleted_or_made_anew_while_its_replicas_are_made_leaves_nothing() -> None:
    """The newest image counts, not the image that had them made."""

    async def scenario(cluster: BrokerCluster) -> None:
        for name in ("gone", "again"):
            cluster.create(name, partitions=40)
        await until(lambda: cluster[1].replicas._creating)
        cluster.delete("gone")
        cluster.delete("again")
        cluster.create("again", partitions=1)
        await until(lambda: not cluster[1].replicas._creating and cluster[1].replicas.partitions)
        await cluster.pass_time(0.1)
        assert [*cluster[1].replicas.partitions] == [("again", 0)]
        assert cluster[1].partition("again").topic_id == cluster.image.topics["again"].topic_id
        folders = cluster[1].host.disk.listdir("/data")
        assert [name for name in folders if name.startswith(("gone", "again"))] == ["again-0"]

    for seed in range(5):
        run_scenario(scenario, seed=seed, size=1)


async def until_next_turn(condition: Callable[[], bool]) -> None:
    """Look in each turn of the loop, unlike `until`, which lets time pass in between."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come true")


def test_the_replicas_of_a_large_topic_leave_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas that the metadata places here again meanwhile, for a new topic of that name, stay."""
    monkeypatch.setattr(replicas, "REMOVED_AT_ONCE", 10)

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("t", partitions=40)
        await until(lambda: len(cluster[1].replicas.partitions) == 40)
        cluster.delete("t")
        await until_next_turn(lambda: len(cluster[1].replicas.partitions) < 40)
        assert len(cluster[1].replicas.partitions) >= 20, "they left in one turn"
        cluster.create("t", partitions=1)
        await cluster.pass_time(0.2)
        assert [*cluster[1].replicas.partitions] == [("t", 0)]
        assert cluster[1].partition("t").topic_id == cluster.image.topics["t"].topic_id

    for seed in range(5):
        run_scenario(scenario, seed=seed, size=1)


def test_a_broker_that_stops_while_replicas_are_made_waits_for_them() -> None:
    """No file is written to a log directory that is marked clean."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("t", partitions=40)
        await until(lambda: cluster[1].replicas._creating)
        await cluster[1].host.start(cluster[1].stop())
        assert cluster[1].replicas._creating is None
        assert cluster[1].host.disk.exists("/data/.kafka_cleanshutdown")
        cluster[1].host.crash()
        await cluster.start(1)
        await until(lambda: len(cluster[1].replicas.partitions) == 40)

    run_scenario(scenario, size=1)


def test_a_clean_stop_leaves_a_marked_directory_and_high_watermarks() -> None:
    """The next start trusts the files, and begins with the high watermark that it had."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        await cluster[1].host.start(cluster[1].produce("a"))
        await cluster[1].host.start(cluster[1].stop())
        assert cluster[1].host.disk.exists("/data/.kafka_cleanshutdown")
        cluster[1].host.crash(power_loss=True)
        await cluster.start(1)
        assert cluster[1].partition().high_watermark == 1

    run_scenario(scenario, size=1)


def test_an_idle_cluster_fetches_only_as_often_as_the_long_poll_ends() -> None:
    """Idle cost: one empty fetch per leader and replica.fetch.wait.max.ms, whatever the number of partitions."""

    async def scenario(cluster: BrokerCluster) -> int:
        cluster.create(partitions=30)
        await cluster.pass_time(2)
        fetcher = cluster[1].replicas.peers.fetchers[2]
        before = fetcher.fetches
        await cluster.pass_time(10)
        return fetcher.fetches - before

    assert run_scenario(scenario).result == pytest.approx(20, abs=2)


def test_same_seed_same_run() -> None:
    """The data plane brings no chance of its own."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create(partitions=3)
        for broker in cluster.brokers.values():
            broker.server.nonce = broker.replicas.peers.nonce = bytes
        await cluster.pass_time(0.5)
        for each in (1, 2, 3):
            await cluster[each].host.start(cluster[each].produce("a", index=each - 1))
        cluster[2].host.crash()
        await cluster.pass_time(1)

    assert run_scenario(scenario, seed=4).digest == run_scenario(scenario, seed=4).digest


def test_a_deletion_reaches_every_replica_and_its_leader_hears_of_it() -> None:
    """KIP-107: the low watermark is the least log start of all replicas in service; followers send it in a fetch."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        leader = cluster[1].partition()
        await cluster[1].host.start(cluster[1].produce("a"))
        await cluster[1].host.start(cluster[1].produce("b"))
        await until(lambda: leader.high_watermark == 2 and leader.low_watermark() == 0)
        leader.delete_records(1)
        assert leader.low_watermark() == 0
        await until(lambda: leader.low_watermark() == 1)
        assert [cluster[each].partition().log_start_offset for each in (1, 2, 3)] == [1, 1, 1]

    run_scenario(scenario)


def test_under_flush_policy_os_logs_are_synced_by_flush_messages_and_flush_ms() -> None:
    """No request waits for it; after a crash no more is at risk than these settings allow."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create()
        await cluster.pass_time(0.1)
        log = cluster[1].partition().log
        assert await cluster[1].host.start(cluster[1].produce("a")) == "committed"
        await cluster.pass_time(1.5)
        assert log.flushed_end_offset == 0, "not yet"
        await cluster.pass_time(1)
        assert log.flushed_end_offset == 1, "flush.ms after the first of them"
        for value in "bcd":
            await cluster[1].host.start(cluster[1].produce(value))
        await cluster.pass_time(0.1)
        assert log.flushed_end_offset == 4, "flush.messages of them"

    run_scenario(
        scenario,
        size=1,
        log_flush_policy="os",
        log_flush_interval_ms="2000",
        log_flush_interval_messages="3",
    )
