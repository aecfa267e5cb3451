"""Replicas are spread: distinct brokers, distinct racks, evenly (KIP-36)."""

from __future__ import annotations

from collections import Counter
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.controller.broker_availability import availability_of
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.replica_placer import ReplicaPlacer
from raftlog.metadata.image import BrokerState, MetadataImage
from tests.controller.controller_cluster import ControllerCluster
from tests.kit.examples import examples


def image_of(racks: list[str | None], fenced: frozenset[int] = frozenset()) -> MetadataImage:
    brokers = {
        broker_id: BrokerState(broker_id, 0, UUID(int=broker_id), (), rack, broker_id in fenced)
        for broker_id, rack in enumerate(racks, 1)
    }
    return MetadataImage(brokers=brokers)


def placer(image: MetadataImage, seed: int) -> ReplicaPlacer:
    return ReplicaPlacer(image, Random(seed), PartitionIndex(), availability_of(image))


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    data=st.data(),
)
@settings(max_examples=examples(150), deadline=None)
def test_every_placement_is_lawful(racks: list[str | None], partitions: int, data: st.DataObject) -> None:
    """Distinct brokers, as many racks as there can be, leaders in service, fenced brokers only where others lack."""
    factor = data.draw(st.integers(1, len(racks)))
    fenced = frozenset(data.draw(st.sets(st.integers(1, len(racks)), max_size=len(racks) - 1)))
    placed = placer(image_of(racks, fenced), 1).place(partitions, factor)
    in_service = len(racks) - len(fenced)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced
        assert sum(each in fenced for each in replicas) == max(0, factor - in_service)
        if not fenced:
            assert len({racks[each - 1] for each in replicas}) == min(factor, len(set(racks)))


@given(brokers=st.integers(1, 8), factor=st.integers(1, 3), partitions=st.integers(1, 60))
@settings(max_examples=examples(80), deadline=None)
def test_leaders_and_replicas_are_spread_evenly(brokers: int, factor: int, partitions: int) -> None:
    """Without racks no broker leads more than one partition more than another, nor holds two replicas more."""
    factor = min(factor, brokers)
    placed = placer(image_of([None] * brokers), 2).place(partitions, factor)
    leaders = Counter(dict.fromkeys(range(1, brokers + 1), 0))
    leaders.update(replicas[0] for replicas in placed)
    held = Counter(dict.fromkeys(range(1, brokers + 1), 0))
    held.update(each for replicas in placed for each in replicas)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert max(held.values()) - min(held.values()) <= 2


@pytest.mark.parametrize("fenced", [frozenset[int](), frozenset({6})])
@pytest.mark.parametrize("partitions", [1, 6, 12, 31, 60])
def test_equal_racks_are_loaded_equally(partitions: int, fenced: frozenset[int]) -> None:
    """Three racks of two: every partition has a replica in each. Brokers of a rack that are in service hold equally
    many, and all of them lead equally many, but for one (KIP-36).
    """
    racks: list[str | None] = ["a", "a", "b", "b", "c", "c"]
    for seed in range(20):
        placed = placer(image_of(racks, fenced), seed).place(partitions, 3)
        assert all({racks[each - 1] for each in replicas} == {"a", "b", "c"} for replicas in placed)
        held = Counter(each for replicas in placed for each in replicas)
        led = Counter(replicas[0] for replicas in placed)
        assert not held.keys() & fenced
        in_service = [each for each in range(1, 7) if each not in fenced]
        for rack in "abc":
            counts = [held[each] for each in in_service if racks[each - 1] == rack]
            assert max(counts) - min(counts) <= 1, f"{partitions} partitions by chance {seed}: {held}"
        leads = [led[each] for each in in_service]
        assert max(leads) - min(leads) <= 1


def test_three_replicas_in_two_racks_are_two_and_one() -> None:
    """And a rack of a single broker has a replica of every partition."""
    for racks in (["a", "a", "b", "b"], ["a", "a", "b"], ["a", "a", "a", "b"]):
        placed = placer(image_of(list(racks)), 3).place(30, 3)
        spread = {tuple(sorted(Counter(racks[each - 1] for each in one).values())) for one in placed}
        assert spread == {(1, 2)}
        if racks.count("b") == 1:
            assert all(len(racks) in replicas for replicas in placed)


def test_many_small_topics_are_spread_like_one_big_one() -> None:
    """Load of the whole cluster counts where a topic's own does not decide."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3, 4)
    for number in range(20):
        cluster.create(f"t{number}", 1, 2)
    leaders = Counter(topic.partitions[0].leader for topic in cluster.image.topics.values())
    assert set(leaders.values()) == {5}


def test_load_of_a_dead_broker_falls_on_all_others() -> None:
    """Followers differ from partition to partition, so no single broker inherits everything."""
    placed = placer(image_of([None] * 5), 4).place(100, 2)
    heirs = Counter(replicas[1] for replicas in placed if replicas[0] == 1)
    assert set(heirs) == {2, 3, 4, 5}


def test_the_same_chance_gives_the_same_placement() -> None:
    """Placement depends on the given random only, so that a simulation can be replayed."""
    image = image_of([None, "a", "b", None])
    assert placer(image, 5).place(20, 3) == placer(image, 5).place(20, 3)
