"""KIP-73: replicas that catch up are throttled, on the leader's side and on their own; replicas in sync are not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.broker.replicas.replication_quota import ReplicationQuota, is_listed
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.broker_cluster import BrokerCluster, until
from tests.kit.clock import Clock

RATE = 50_000
VALUE = "v" * 10_000
RECORDS = 30
LEADER, FOLLOWER = "leader", "follower"


def test_quota_is_overdrawn_once_and_made_good_in_time() -> None:
    """An answer is not cut in pieces; what it took too much delays the next."""
    clock = Clock()
    quota = ReplicationQuota(clock)
    assert (quota.is_limited, quota.wait_s()) == (False, 0.0)
    quota.limit(1000)
    assert quota.wait_s() == 0.0
    quota.record(3000)
    assert quota.wait_s() == pytest.approx(2.0, abs=0.01)
    clock.now += 1.5
    assert quota.wait_s() == pytest.approx(0.5, abs=0.01)
    clock.now += 0.51
    assert quota.wait_s() == 0.0


def test_quota_saves_up_a_second_at_most() -> None:
    """Else a quiet night would allow a storm in the morning."""
    clock = Clock()
    quota = ReplicationQuota(clock)
    quota.limit(1000)
    clock.now += 3600
    quota.record(2000)
    assert quota.wait_s() == pytest.approx(1.0, abs=0.01)
    quota.limit(None)
    assert quota.wait_s() == 0.0


def test_list_names_replicas_or_all() -> None:
    """partition:broker."""
    assert is_listed(("*",), 3, 1)
    assert is_listed(("0:1", "3:2"), 3, 2)
    assert not is_listed(("0:1", "3:2"), 3, 1)
    assert not is_listed((), 0, 1)


def throttle(cluster: BrokerCluster, side: str, listed: str) -> None:
    """Set rate and list of one side, as an operator does through AlterConfigs."""
    configs: dict[tuple[str, str], dict[str, str]] = {
        ("broker", ""): {f"{side}.replication.throttled.rate": str(RATE)},
        ("topic", "t"): {f"{side}.replication.throttled.replicas": listed},
    }
    cluster.publish(configs={**cluster.image.configs, **configs})


async def filled(loop: SimLoop) -> BrokerCluster:
    """Brokers 1 and 2 hold what broker 3 does not have."""
    cluster = BrokerCluster(loop, 3, replica_fetch_max_bytes="20000", replica_lag_time_max_ms="600000")
    await cluster.start()
    cluster.create(replicas=(1, 2))
    await until(lambda: ("t", 0) in cluster[1].replicas.partitions)
    for number in range(RECORDS):
        assert await cluster[1].host.start(cluster[1].produce(f"{number}{VALUE}")) == "committed"
    return cluster


async def caught_up_in(cluster: BrokerCluster) -> float:
    """Add a replica at broker 3; returns the virtual seconds until it is in sync."""
    began_at = cluster.loop.time()
    cluster.change(replicas=(1, 2, 3), adding_replicas=(3,))
    await until(lambda: 3 in cluster.state().isr, within=120)
    return cluster.loop.time() - began_at


@pytest.mark.parametrize(
    ("side", "listed"), [(LEADER, "0:1"), (FOLLOWER, "0:3"), (LEADER, "*"), (FOLLOWER, "*")]
)
def test_replica_that_catches_up_keeps_to_the_rate(side: str, listed: str) -> None:
    """Both sides hold: the leader leaves it out of answers, the follower does not ask."""

    async def program(loop: SimLoop) -> Any:
        cluster = await filled(loop)
        throttle(cluster, side, listed)
        await cluster.pass_time(0.1)
        least = RECORDS * len(VALUE) / RATE - 2
        assert least < await caught_up_in(cluster) < 3 * least
        assert cluster[3].values() == cluster[1].values()

    simulate(program)


@pytest.mark.parametrize(("side", "listed"), [(LEADER, "0:2,1:1"), (FOLLOWER, "0:1"), (LEADER, "")])
def test_replica_that_is_not_listed_is_not_held_back(side: str, listed: str) -> None:
    """A rate alone throttles no replica."""

    async def program(loop: SimLoop) -> Any:
        cluster = await filled(loop)
        throttle(cluster, side, listed)
        await cluster.pass_time(0.1)
        assert await caught_up_in(cluster) < 1

    simulate(program)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_replicas_in_sync_are_not_held_up(side: str) -> None:
    """Producers wait for them: only what catches up is throttled, though all that is listed counts."""

    async def program(loop: SimLoop) -> Any:
        cluster = await filled(loop)
        throttle(cluster, side, "*")
        await cluster.pass_time(0.1)
        cluster.change(replicas=(1, 2, 3), adding_replicas=(3,))
        await cluster.pass_time(1)
        assert 3 not in cluster.state().isr
        for number in range(10):
            began_at = loop.time()
            assert await cluster[1].host.start(cluster[1].produce(f"more {number}")) == "committed"
            assert loop.time() - began_at < 0.2
        assert 3 not in cluster.state().isr

    simulate(program)


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_lifted_throttle_lets_it_run(side: str) -> None:
    """An operator can raise the rate if it takes too long."""

    async def program(loop: SimLoop) -> Any:
        cluster = await filled(loop)
        throttle(cluster, side, "*")
        await cluster.pass_time(0.1)
        waiting = asyncio.ensure_future(caught_up_in(cluster))
        await cluster.pass_time(1)
        cluster.publish(configs={})
        assert await waiting < 3

    simulate(program)


class CountedEntry(str):
    """An entry of a list that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedEntry.comparisons += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def test_a_long_list_of_throttled_replicas_is_not_looked_through_for_each_partition() -> None:
    """It names thousands of replicas while a large topic is reassigned, and each fetch asks for each partition."""
    listed = tuple(CountedEntry(f"{index}:1") for index in range(1_000))
    assert all(is_listed(listed, index, 1) for index in range(1_000))
    assert not any(is_listed(listed, index, 2) for index in range(1_000))
    assert CountedEntry.comparisons < 10_000
