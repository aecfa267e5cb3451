"""The controller's index says what a look at every partition would say, and costs what changed."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState, TopicState

NAMES = ("a", "b", "c")
BROKERS = range(1, 5)

replica_lists = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    """Any lawful state: a leader in the ISR or none, reassigned or not."""
    replicas = draw(replica_lists)
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    return PartitionState(
        replicas,
        isr,
        draw(st.sampled_from((*isr, NO_BROKER))),
        removing_replicas=replicas[1:] if draw(st.booleans()) else (),
        isr_lost=draw(st.booleans()),
    )


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    topics = {
        name: TopicState(name, UUID(int=draw(st.integers(1, 2))), tuple(draw(st.lists(states(), max_size=3))))
        for name in draw(st.sets(st.sampled_from(NAMES)))
    }
    leaving = draw(st.sets(st.sampled_from(BROKERS), max_size=2))
    return MetadataImage(topics=topics, decommissions=dict.fromkeys(leaving, NO_BROKER))


def contents(index: PartitionIndex) -> dict[str, Any]:
    """All that an index says."""
    return {
        "in sync": {broker_id: names for broker_id, names in index._in_sync.items() if names},
        "out of sync": {broker_id: names for broker_id, names in index._out_of_sync.items() if names},
        "without leader": index.without_leader,
        "reassigned": index.reassigned,
        "imbalanced": index.imbalanced,
        "leaving": set(index.leaving),
        "replicas": +index.replicas,
        "leaders": +index.preferred_leaders,
    }


def look_at_all(image: MetadataImage) -> dict[str, Any]:
    """The same, from every partition."""
    found = {
        TopicPartition(name, number): state
        for name, topic in image.topics.items()
        for number, state in enumerate(topic.partitions)
    }
    members = {each for state in found.values() for each in state.isr}
    others = {each for state in found.values() for each in state.replicas if each not in state.isr}
    return {
        "in sync": {each: {name for name, state in found.items() if each in state.isr} for each in members},
        "out of sync": {
            each: {name for name, it in found.items() if each in it.replicas and each not in it.isr}
            for each in others
        },
        "without leader": {n for n, state in found.items() if state.leader == NO_BROKER or state.isr_lost},
        "reassigned": {name for name, state in found.items() if state.is_reassigned},
        "imbalanced": {n for n, state in found.items() if state.leader not in (state.replicas[0], NO_BROKER)},
        "leaving": {n for n, state in found.items() if image.decommissions.keys() & set(state.replicas)},
        "replicas": Counter(each for state in found.values() for each in state.replicas),
        "leaders": Counter(state.replicas[0] for state in found.values()),
    }


@given(st.lists(images(), max_size=5))
def test_an_index_follows_any_images_in_any_order(history: list[MetadataImage]) -> None:
    """Topics come, go, are made anew under their names and widened; tails are lost, so images go back as well."""
    index = PartitionIndex()
    for image in (*history, *reversed(history), EMPTY_IMAGE, *history):
        assert contents(index.at(image)) == look_at_all(image)


@given(images(), st.sets(st.sampled_from(BROKERS)))
def test_partitions_are_found_by_their_members_in_sync(image: MetadataImage, brokers: set[int]) -> None:
    """With any of these brokers, and with any other."""
    index = PartitionIndex().at(image)
    expected = look_at_all(image)["in sync"]
    others = expected.keys() - brokers
    assert index.in_sync_on_any(brokers) == {name for each in brokers for name in expected.get(each, ())}
    assert index.in_sync_outside(brokers) == {name for each in others for name in expected[each]}
    assert index.in_sync_on(99) == set()
