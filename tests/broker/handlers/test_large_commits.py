"""Commits of very many offsets: how many one request may have, and that the loop has its turns meanwhile."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from raftlog.base.errors import (
    InvalidCommitOffsetSize,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.broker.handlers import txn_offset_commit
from raftlog.broker.handlers.shared import commit_response
from raftlog.metadata.image import TopicState
from tests.broker.coordination.group_broker import TOPIC, GroupBroker
from tests.broker.handlers.test_groups import commit, run_scenario
from tests.broker.handlers.test_transaction_markers import transactional
from tests.broker.loop_turns import count_loop_turns

COUNT = 5 * PARTS_AT_ONCE
ROWS = [(number % 3, number, None) for number in range(COUNT)]


async def pend(node: GroupBroker, version: int) -> list[int]:
    """Commit all rows in a transaction; the error codes."""
    partitions = [
        {
            "_": "TxnOffsetCommitRequestPartition",
            "partition_index": index,
            "committed_offset": offset,
            "committed_metadata": "",
        }
        for index, offset, _ in ROWS
    ]
    answer = await node.call(
        txn_offset_commit,
        version,
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        topics=[{"_": "TxnOffsetCommitRequestTopic", "name": "t", "partitions": partitions}],
    )
    return [each.error_code for each in answer.topics[0].partitions]


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_request_commits_so_many_offsets_at_most(
    monkeypatch: pytest.MonkeyPatch, is_transactional: bool
) -> None:
    """INVALID_COMMIT_OFFSET_SIZE for each offset if there is one too many, and no offset is kept; up to the limit all
    are.
    """

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        for most, code in ((COUNT - 1, InvalidCommitOffsetSize.code), (COUNT, 0)):
            monkeypatch.setattr(commit_response, "MAX_OFFSETS", most)
            asked = pend(node, 3) if is_transactional else commit(node, 8, *ROWS)
            codes, turns = await count_loop_turns(asked)
            assert codes == [code] * COUNT
            assert turns >= COUNT // PARTS_AT_ONCE
            group = await node.groups.read("g")
            kept = len(group.pending) if is_transactional else len(group.offsets)
            assert bool(kept) is (code == 0)

    run_scenario(scenario)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_large_commit_to_the_wrong_coordinator_is_refused_in_several_turns(is_transactional: bool) -> None:
    """Of each partition, as long as the answer then is."""

    async def scenario(node: GroupBroker) -> None:
        transactional(node)
        node.publish(leader=2)
        codes, turns = await count_loop_turns(pend(node, 3) if is_transactional else commit(node, 8, *ROWS))
        assert codes == [NotCoordinator.code] * COUNT
        assert turns >= COUNT // PARTS_AT_ONCE

    run_scenario(scenario)


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("successor", [{}, {"t": TopicState("t", UUID(int=99), TOPIC.partitions)}])
def test_a_topic_that_is_deleted_while_its_commits_are_gone_through_gets_none(
    version: int, successor: dict[str, TopicState]
) -> None:
    """A new topic with its name would be read from the old topic's positions: records would be skipped."""

    async def scenario(node: GroupBroker) -> None:
        committing = asyncio.ensure_future(commit(node, version, *ROWS))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.publish(topics=successor)
        assert await committing == [UnknownTopicOrPartition.code] * COUNT
        assert not (await node.groups.read("g")).offsets

    run_scenario(scenario)
