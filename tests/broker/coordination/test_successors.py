"""Offsets of a deleted topic never apply to a new topic with its name, whichever broker coordinated meanwhile."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftlog.base.errors import UnknownTopicOrPartition
from raftlog.coordinator.group import CommittedOffset
from raftlog.coordinator.group_requests import CommitOffsets, MemberRef, OffsetCommit
from raftlog.metadata.image import PartitionState, TopicState
from tests.broker.coordination.group_broker import TOPIC, GroupBroker
from tests.broker.handlers.test_groups import commit, run_scenario
from tests.broker.handlers.test_transaction_markers import end, pend, transactional

OLD = {"t": TOPIC}
NEW = {"t": TopicState("t", UUID(int=99), (PartitionState((1,), (1,), 1),) * 3)}
NONE: dict[str, TopicState] = {}


async def offsets(node: GroupBroker) -> dict[int, int]:
    """The group's offset for the topic."""
    return {index: each.offset for (_, index), each in (await node.groups.read("g")).offsets.items()}


async def take_over(node: GroupBroker, topics: dict[str, TopicState]) -> None:
    node.publish(leader=1, topics=topics)
    await node.pass_time(1)


@pytest.mark.parametrize("found", [NEW, NONE])
def test_offsets_of_a_topic_that_was_deleted_without_a_coordinator_go(found: Any) -> None:
    """Its successor is read from its beginning, also where that is made only later; what goes has its tombstones."""

    async def scenario(node: GroupBroker) -> None:
        assert await commit(node, 8, (0, 5_000, ""), (2, 7, "")) == [0, 0]
        node.publish(leader=2)
        node.publish(topics=NONE)
        await take_over(node, found)
        node.publish(topics=NEW)
        assert await offsets(node) == {}
        assert await commit(node, 8, (1, 3, "")) == [0]
        node.publish(
            leader=2, topics=OLD
        )  # as it never is: reading back takes every record without a tombstone
        await take_over(node, OLD)
        assert set(await offsets(node)) <= {1}

    run_scenario(scenario)


def test_what_was_committed_for_the_successor_stays() -> None:
    """Beside what goes, and where it replaced an offset of the deleted topic."""

    async def scenario(node: GroupBroker) -> None:
        await commit(node, 8, (0, 5_000, ""), (1, 6_000, ""))
        node.publish(leader=2)
        node.publish(topics=NONE)
        await take_over(node, NEW)
        await commit(node, 8, (0, 3, ""))
        node.publish(leader=2)
        await take_over(node, NEW)
        assert await offsets(node) == {0: 3}

    run_scenario(scenario)


def test_offsets_in_an_open_transaction_go_likewise() -> None:
    """Else the marker would bring the deleted topic's offset back."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        assert await pend(node, 3, 5_000) == [0]
        node.publish(leader=2)
        node.publish(topics=NONE)
        await take_over(node, NEW)
        assert await end(node, 1) == 0
        assert await offsets(node) == {}

    run_scenario(scenario)


def test_an_image_from_before_the_election_is_not_looked_at() -> None:
    """A broker that had yet to hear of the new topic lets its offsets be: it knows all once it is the coordinator."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(topics=NEW)
        await commit(node, 8, (0, 3, ""))
        node.publish(leader=2, topics=OLD)
        await node.pass_time(1)
        await take_over(node, NEW)
        assert await offsets(node) == {0: 3}

    run_scenario(scenario)


def test_a_deletion_that_is_old_news_takes_no_offset_of_the_topic_that_is_there() -> None:
    """A broker that starts applies the history of the topic, and replays offsets meanwhile."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(topics=NEW)
        await commit(node, 8, (0, 3, ""))
        node.publish(leader=2)
        node.publish(leader=1, topics=OLD)
        await take_over(node, NEW)
        assert await offsets(node) == {0: 3}

    run_scenario(scenario)


def test_an_offset_that_does_not_say_its_topics_id_is_believed() -> None:
    """Records from before ids were written, and records with an expiry time."""

    async def scenario(node: GroupBroker) -> None:
        await node.groups.commit(commit_of(None))
        node.publish(leader=2, topics=NEW)
        await take_over(node, NEW)
        assert await offsets(node) == {0: 5}

    run_scenario(scenario)


def test_news_of_a_replacement_and_of_the_own_election_in_one_leave_what_names_no_id() -> None:
    """A broker that lags hears of both at once: an offset without an id is for the topic that is there."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(topics=NEW)
        await node.groups.commit(commit_of(None))
        node.publish(leader=2, topics=OLD)
        await node.pass_time(1)
        node.publish(leader=1, topics=NEW)
        await node.pass_time(1)
        assert await offsets(node) == {0: 5}

    run_scenario(scenario)


def test_a_commit_that_was_under_way_when_its_topic_was_replaced_is_refused() -> None:
    """The result of the handler's lookup is compared once more where the offset is recorded."""

    async def scenario(node: GroupBroker) -> None:
        node.publish(topics=NEW)
        with pytest.raises(UnknownTopicOrPartition):
            await node.groups.commit(commit_of(TOPIC.topic_id))
        assert await node.groups.commit(commit_of(NEW["t"].topic_id)) == (0,)

    run_scenario(scenario)


def commit_of(topic_id: UUID | None) -> CommitOffsets:
    commits = (OffsetCommit("t", 0, CommittedOffset(5, topic_id=topic_id)),)
    return CommitOffsets("g", MemberRef(""), -1, commits)
