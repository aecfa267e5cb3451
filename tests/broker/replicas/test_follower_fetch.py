"""Consumers that fetch from followers (KIP-392), over connections of real brokers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.base.errors import KafkaStorageError, NotLeaderOrFollower
from raftlog.broker.controller_session import ControllerSession
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.metadata.image import Endpoint, SupportedFeature
from raftlog.protocol.message_builders import request_builders
from raftlog.records.header import iter_headers
from raftlog.replication.isr import CommittedIsr
from raftlog.replication.leader_role import LeaderRole
from raftlog_chaos.workloads.raw_client import FETCH, Client
from tests.broker.broker_cluster import PORT, BrokerCluster, SimBroker, run_scenario, until
from tests.replication.replica_cluster import values_in

LATER = 30_000
"""Milliseconds that a fetch waits, where a test wants to see it woken."""


class Reader:
    """A consumer of partition t-0 in one fetch session with each broker."""

    def __init__(self, cluster: BrokerCluster, *, rack: str = "", version: int = 12) -> None:
        self.loop = cluster.loop
        self.host = cluster.loop.host("reader")
        self.client = Client("reader", [("node1", PORT)], timeout_s=60.0)
        self.rack, self.version = rack, version
        self.sessions: dict[int, tuple[int, int]] = {}

    async def fetch(self, broker_id: int, offset: int | None, *, wait_ms: int = 0, **rest: Any) -> Any:
        """Return the partition's part of the answer, None if it is not there. No `offset`: what the session has."""
        answer = await self.host.start(self._ask(broker_id, offset, wait_ms, **rest))
        self.sessions[broker_id] = (answer.session_id, self.sessions.get(broker_id, (0, 0))[1] + 1)
        parts = [part for topic in answer.responses for part in topic.partitions]
        return parts[0] if parts else None

    async def _ask(self, broker_id: int, offset: int | None, wait_ms: int, epoch: int = -1) -> Any:
        make = request_builders(FETCH, self.version)
        partition = make.FetchPartition(
            partition=0, fetch_offset=offset or 0, current_leader_epoch=epoch, partition_max_bytes=1 << 20
        )
        session = self.sessions.get(broker_id, (0, 0))
        request = make.FetchRequest(
            max_wait=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            rack_id=self.rack,
            topics=() if offset is None else (make.FetchTopic(topic="t", partitions=(partition,)),),
        )
        return await self.client.ask((f"node{broker_id}", PORT), FETCH, request, version=self.version)


async def produce(cluster: BrokerCluster, *values: str, leader: int = 1) -> None:
    assert await cluster[leader].host.start(cluster[leader].produce(*values)) == "committed"


async def led_by_1(cluster: BrokerCluster, *values: str) -> None:
    """Broker 1 leads, and every follower has heard that these records are committed."""
    cluster.create()
    await until(lambda: all(("t", 0) in each.replicas.partitions for each in cluster.brokers.values()))
    if values:
        await produce(cluster, *values)
    await until(
        lambda: all(each.partition().high_watermark == len(values) for each in cluster.brokers.values())
    )


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_follower_serves_consumers_from_version_11_on(version: int) -> None:
    """KIP-392: older clients would not go back to the leader."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a", "b")
        reader = Reader(cluster, version=version)
        found = await reader.fetch(2, 0)
        if version < 11:
            assert int(found.error_code) == NotLeaderOrFollower.code
        else:
            assert values_in(found.records) == ["a", "b"]
            assert (int(found.error_code), found.high_watermark, found.preferred_read_replica) == (0, 2, -1)

    run_scenario(scenario)


def test_a_session_at_a_follower_is_woken_by_a_commit_and_counts_as_a_consumers() -> None:
    """An incremental fetch (KIP-227) that waits there gets the record once the follower knows that it is committed."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster)
        reader = Reader(cluster)
        assert (await reader.fetch(2, 0)).records == b""
        waiting = reader.host.start(reader.fetch(2, None, wait_ms=LATER))
        await produce(cluster, "a")
        began_at = cluster.loop.time()
        assert values_in((await waiting).records) == ["a"]
        assert cluster.loop.time() - began_at < 1.0
        assert await reader.fetch(2, 1) is None
        assert cluster[2].server.sessions.of_clients == 1
        traffic = cluster[2].replicas.traffic["t"]
        assert (traffic.messages_out, traffic.replica_bytes_out) == (1, 0)
        assert traffic.bytes_out > 0

    run_scenario(scenario)


def test_a_lost_leader_is_looked_for_only_where_consumers_wait() -> None:
    """An idle partition is free: the chore looks at no partition without a consumer, and forgets those that left."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster)
        reader = Reader(cluster)
        reader.sessions[2] = (0, -1)  # of a fetch without a session
        waiting = reader.host.start(reader.fetch(2, 0, wait_ms=LATER))
        await cluster.pass_time(20)
        awaited = [tuple(each.replicas.awaited) for each in cluster.brokers.values()]
        assert awaited == [(), (cluster[2].partition(),), ()]
        await waiting
        await cluster.pass_time(20)
        assert not cluster[2].replicas.awaited

    run_scenario(scenario)


def test_a_waiting_fetch_at_a_follower_learns_at_once_that_its_epoch_is_over() -> None:
    """A client that names its leader epoch is fenced as soon as the follower has a new leader."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        reader = Reader(cluster)
        assert int((await reader.fetch(2, 1, epoch=0)).error_code) == 0
        waiting = reader.host.start(reader.fetch(2, None, wait_ms=LATER))
        await cluster.pass_time(0.1)
        began_at = cluster.loop.time()
        cluster.change(leader=3)
        assert int((await waiting).error_code) == 74
        assert cluster.loop.time() - began_at < 0.1

    run_scenario(scenario)


def test_a_waiting_fetch_at_a_follower_learns_at_once_that_the_replica_left() -> None:
    """NOT_LEADER_OR_FOLLOWER, with the leader as a hint."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        reader = Reader(cluster)
        await reader.fetch(3, 1)
        waiting = reader.host.start(reader.fetch(3, None, wait_ms=LATER))
        await cluster.pass_time(0.1)
        cluster.change(replicas=(1, 2), isr=(1, 2))
        found = await waiting
        assert int(found.error_code) == NotLeaderOrFollower.code
        assert found.current_leader.leader_id == 1

    run_scenario(scenario)


def test_a_follower_whose_log_a_reader_finds_damaged_fetches_it_again() -> None:
    """The reader goes to the leader meanwhile, and finds the follower as good as new later."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        for value in ("b", "c", "d" * 500, "e"):  # a clean start checks only the last segment
            await produce(cluster, value)
        await until(lambda: cluster[2].partition().high_watermark == 5)
        await cluster[2].host.start(cluster[2].stop())
        cluster[2].host.crash()
        _rot_third_batch(cluster[2])
        await cluster.start(2)
        await until(lambda: cluster[2].partition().high_watermark == 5)
        assert cluster[2].partition().log.damage is None
        reader = Reader(cluster)
        assert int((await reader.fetch(2, 2)).error_code) == KafkaStorageError.code
        await until(lambda: cluster[2].partition().log.damage is None)
        await until(lambda: cluster[2].partition().high_watermark == 5)
        assert values_in((await Reader(cluster).fetch(2, 4)).records) == ["e"]

    run_scenario(scenario, log_segment_bytes="600")


# -- news of the leader -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [True, False])
def test_a_reader_at_a_follower_gets_a_record_as_soon_as_it_is_committed(sessions: bool) -> None:
    """A follower with readers asks for each high watermark (KIP-1166), and so waits for no other record."""

    async def scenario(cluster: BrokerCluster) -> tuple[float, float]:
        await led_by_1(cluster)
        reader = Reader(cluster)
        late = []
        for number in range(8):
            if not sessions:
                reader.sessions.clear()
            waiting = reader.host.start(reader.fetch(2, number, wait_ms=LATER))
            await cluster.pass_time(1.0 if number != 6 else 25.0)
            began_at = cluster.loop.time()
            await produce(cluster, f"{number}")
            committed_at = cluster.loop.time()
            assert values_in((await waiting).records) == [f"{number}"]
            late.append((cluster.loop.time() - committed_at) / (committed_at - began_at))
        return max(late), cluster[2].replicas.traffic["t"].follower_fetches

    late, follower_fetches = run_scenario(scenario).result
    assert late < 2.0, "a round of the follower takes about as long as the commit"
    assert follower_fetches == 8


def test_a_follower_without_readers_does_not_hear_of_each_high_watermark() -> None:
    """It gets them with the next records, or with the end of its wait."""

    async def scenario(cluster: BrokerCluster) -> int:
        await led_by_1(cluster)
        await cluster.pass_time(1.0)
        (fetcher,) = cluster[2].replicas.peers.fetchers.values()
        before = fetcher.answers
        for number in range(10):
            await produce(cluster, f"{number}")
        return fetcher.answers - before

    assert run_scenario(scenario).result <= 11


def test_a_follower_that_lost_its_leader_sends_waiting_readers_back() -> None:
    """Also a session in which nothing moved, once replica.lag.time.max.ms is over; they are served again later."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        reader = Reader(cluster)
        assert values_in((await reader.fetch(2, 0)).records) == ["a"]
        await cluster.pass_time(60.0)
        began_at = cluster.loop.time()
        waiting = reader.host.start(reader.fetch(2, 1, wait_ms=LATER))
        await cluster.pass_time(0.1)
        cluster.loop.cut(cluster[1].host, cluster[2].host)
        found = await waiting
        assert (int(found.error_code), found.current_leader.leader_id) == (NotLeaderOrFollower.code, 1)
        assert 5.0 <= cluster.loop.time() - began_at < 9.0
        assert int((await reader.fetch(2, None)).error_code) == NotLeaderOrFollower.code
        cluster.loop.heal()
        await until(lambda: not cluster[2].partition().has_lost_leader(), within=60.0)
        assert values_in((await Reader(cluster).fetch(2, 0)).records) == ["a"]

    run_scenario(scenario, replica_lag_time_max_ms="5000")


def test_a_leader_that_refuses_a_partition_is_not_heard_of() -> None:
    """It answers, but does not lead any more: this follower is cut off from the metadata that says who does."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("other")
        await led_by_1(cluster, "a")
        await cluster.pass_time(1.0)
        began_at = cluster.loop.time()
        cluster[1].host.call(cluster[1].partition().go_offline, NotLeaderOrFollower)
        await until(cluster[2].partition().has_lost_leader, within=60.0)
        assert 4.0 < cluster.loop.time() - began_at < 7.0
        assert not cluster[2].partition("other").has_lost_leader()

    run_scenario(scenario, replica_lag_time_max_ms="5000")


# -- the leader's choice ------------------------------------------------------------------------------------------

RACKS: dict[str, Any] = {"broker_rack": "rack{id}", "replica_selector_class": RACK_AWARE_SELECTOR}


def test_the_leader_names_the_follower_in_the_readers_rack_instead_of_records() -> None:
    """At once, with the partition's offsets, and again with each fetch of a session."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        reader = Reader(cluster, rack="rack2")
        began_at = cluster.loop.time()
        for offset, wait_ms in ((0, 0), (1, LATER), (None, LATER)):
            found = await reader.fetch(1, offset, wait_ms=wait_ms)
            assert (int(found.error_code), found.records, found.preferred_read_replica) == (0, b"", 2)
            assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (1, 1, 0)
        assert cluster.loop.time() - began_at < 1.0
        assert values_in((await reader.fetch(2, 0)).records) == ["a"]

    run_scenario(scenario, **RACKS)


@pytest.mark.parametrize(
    ("reader", "settings"),
    [
        ({}, {}),
        ({"rack": "rack1"}, {}),
        ({"rack": "elsewhere"}, {}),
        ({"rack": "rack2"}, {"replica_selector_class": "org.apache.kafka.common.replica.LeaderSelector"}),
        ({"rack": "rack2"}, {"replica_selector_class": ""}),
        ({"rack": "rack2"}, {"broker_rack": "rack2"}),
    ],
)
def test_other_readers_stay_at_the_leader(reader: dict[str, Any], settings: dict[str, str]) -> None:
    """Without a rack, in the leader's own, in one without a replica, or where no selector chooses."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        found = await Reader(cluster, **reader).fetch(1, 0)
        assert (values_in(found.records), found.preferred_read_replica) == (["a"], -1)

    run_scenario(scenario, **(RACKS | settings))


def test_errors_come_before_the_choice() -> None:
    """A reader with another leader epoch, or at an offset that does not exist, is told so by the leader."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        cluster.change(leader=1)
        await until(lambda: cluster[2].partition().leader_epoch == 1)
        await produce(cluster, "b")
        await cluster[1].host.start(_delete_before(cluster[1], 1))
        for offset, epoch, code in ((1, 0, 74), (1, 2, 75), (0, 1, 1)):
            found = await Reader(cluster, rack="rack2").fetch(1, offset, epoch=epoch)
            assert (int(found.error_code), found.preferred_read_replica) == (code, -1)

    run_scenario(scenario, **RACKS)


async def _delete_before(broker: SimBroker, offset: int) -> None:
    broker.partition().delete_records(offset)


@pytest.mark.parametrize(
    "trouble",
    [
        "fenced",
        "leaving",
        "no listener",
        "older release",
        "oldest release",
        "not in sync",
        "behind",
        "silent",
        "deleted there",
    ],
)
def test_a_follower_that_would_not_serve_is_not_named(trouble: str) -> None:
    """Else readers would go back and forth."""

    async def scenario(cluster: BrokerCluster) -> None:
        await led_by_1(cluster, "a")
        assert (await Reader(cluster, rack="rack2").fetch(1, 1)).preferred_read_replica == 2
        changes = {
            "fenced": {"fenced": True},
            "leaving": {"in_controlled_shutdown": True},
            "older release": {"features": (SupportedFeature(RAFTLOG_METADATA_VERSION, 0, 2),)},
            "oldest release": {"features": ()},
            "no listener": {"endpoints": (Endpoint("OTHER", "node2", PORT),)},
        }
        if trouble in changes:
            state = msgspec.structs.replace(cluster.image.brokers[2], **changes[trouble])
            cluster.publish(brokers={**cluster.image.brokers, 2: state})
        elif trouble == "silent":
            session = ControllerSession(
                cluster.loop.time, session_s=9, fetch_wait_s=0.5, isr_members=frozenset, on_change=print
            )
            session.fetched_at[2] = cluster.loop.time()
            cluster[1].server.broker.session = session
            assert (await Reader(cluster, rack="rack2").fetch(1, 1)).preferred_read_replica == 2
            cluster[2].host.crash(silent=True)
            await cluster.pass_time(6.0)
        else:
            role = cluster[1].partition().role
            assert isinstance(role, LeaderRole)
            cluster[2].host.crash(silent=True)
            if trouble == "not in sync":
                role.isr = CommittedIsr((1, 3))
            elif trouble == "behind":
                role.progress[2].end_offset = 0
            else:
                role.progress[2].log_start_offset = 2
        await cluster.pass_time(0.1)
        assert (await Reader(cluster, rack="rack2").fetch(1, 1)).preferred_read_replica == -1

    run_scenario(scenario, **RACKS)


def _rot_third_batch(broker: SimBroker) -> None:
    disk = broker.host.disk
    path = f"/data/t-0/{0:020d}.log"
    content = disk.peek(path)
    assert content is not None
    position, header = list(iter_headers(memoryview(content)))[2]
    at = position + header.length - 1
    file = disk.open(path)
    file.pwritev([bytes([content[at] ^ 1])], at)
    file.sync()
    file.close()
