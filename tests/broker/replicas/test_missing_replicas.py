"""Missing replicas: leaders are made first, and it is known when the last of them is there."""

from __future__ import annotations

import errno

from raftlog.base.types import TopicPartition
from raftlog.broker.replicas.missing_replicas import MissingReplicas
from tests.broker.broker_cluster import BrokerCluster, run_scenario, until

A, B, C = (TopicPartition(name, 0) for name in "abc")


def test_leaders_come_before_followers() -> None:
    """A follower that has waited longer is made later, and a replica that leads by now moves to the front."""
    missing = MissingReplicas()
    missing.add(A, leads=False)
    missing.add(B, leads=True)
    missing.add(C, leads=False)
    assert [*missing] == [B, A, C]
    missing.add(C, leads=True)
    assert [*missing] == [B, C, A]
    missing.remove(B)
    assert [*missing] == [C, A] and len(missing) == 2 and B not in missing


def test_a_leader_counts_until_it_is_made() -> None:
    """Not only until its turn has come. A leader without a directory, or a follower by now, is not waited for."""
    missing = MissingReplicas()
    missing.add(A, leads=False)
    assert missing.leaderships_made.is_set()
    missing.add(B, leads=True)
    missing.add(C, leads=True)
    missing.remove(B)
    assert not missing.leaderships_made.is_set()
    missing.discard(B)
    assert not missing.leaderships_made.is_set()
    missing.add(C, leads=False)
    assert missing.leaderships_made.is_set()


def test_a_leader_that_is_to_be_made_again_still_counts() -> None:
    """Its topic was deleted and made again while the first replica was being made."""
    missing = MissingReplicas()
    missing.add(A, leads=True)
    missing.remove(A)
    missing.add(A, leads=True)
    missing.discard(A)
    assert not missing.leaderships_made.is_set()
    missing.clear()
    assert missing.leaderships_made.is_set() and not len(missing)


def test_a_broker_leads_all_that_it_is_to_lead_before_it_makes_its_followers() -> None:
    """A client writes to all leaders of a new topic at once. Three brokers lead 40 of 120 partitions each."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster.create("t", partitions=120)
        await until(lambda: not cluster[1].replicas.missing.leaderships_made.is_set())
        await cluster[1].replicas.missing.leaderships_made.wait()
        held = cluster[1].replicas.partitions
        led = [index for index in range(120) if cluster.state("t", index).leader == 1]
        assert all(("t", index) in held for index in led)
        assert all(held["t", index].is_leader for index in led)  # type: ignore[index]
        assert len(held) < 120
        await until(lambda: len(held) == 120)

    run_scenario(scenario)


def test_every_replica_that_is_made_late_notifies_the_waiters_for_its_role() -> None:
    """A coordinator waits for the leadership that the metadata gave it, and the metadata may not change again."""

    async def scenario(cluster: BrokerCluster) -> None:
        replicas, seen = cluster[1].replicas, set[int]()
        replicas.role_listeners.append(
            lambda: seen.update(each.index for each in replicas.partitions.values() if each.is_leader)
        )
        cluster.create("t", partitions=120)
        await until(lambda: len(replicas.partitions) == 120)
        assert seen == {index for index in range(120) if cluster.state("t", index).leader == 1}

    run_scenario(scenario)


def test_a_full_disk_leaves_no_request_waiting_for_leaders() -> None:
    """The replicas that no directory takes are tried again later; requests do not wait for that."""

    async def scenario(cluster: BrokerCluster) -> None:
        cluster[1].host.disk.fail("any", under="/data", error=errno.ENOSPC)
        cluster.create("t", partitions=40)
        replicas = cluster[1].replicas
        await until(lambda: len(replicas.refused.reasons) == 40)
        assert replicas.missing.leaderships_made.is_set()

    run_scenario(scenario, size=1)
