"""AlterPartitionReassignments and ListPartitionReassignments: the requests to the controller, and the responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from raftlog.base.errors import RequestTimedOut
from raftlog.broker.context import RequestContext
from raftlog.metadata.controller_api import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    OngoingReassignments,
    PartitionResult,
    PartitionResults,
    Reassignment,
)
from raftlog.metadata.image import PartitionState
from raftlog.protocol.message_builders import request_builders
from tests.broker.handlers.one_broker import HandlerSetup, topic_state, versions, with_topics
from tests.broker.rows import row_of

ALTER, LIST = 45, 46


def topics(version: int, **wanted: dict[int, tuple[int, ...] | None]) -> tuple[Any, ...]:
    make = request_builders(ALTER, version)
    return tuple(
        make.ReassignableTopic(
            name=name,
            partitions=tuple(
                make.ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in partitions.items()
            ),
        )
        for name, partitions in wanted.items()
    )


@pytest.mark.parametrize("version", versions(ALTER))
async def test_each_reassignment_has_its_own_result(version: int) -> None:
    """Whether the replication factor may change is a matter of version 1 (KIP-860); before, it may."""
    cluster = HandlerSetup()
    moving = topic_state("a", 1, PartitionState((3, 2, 1), (1, 2), 1, 4, 1, (3,), (1,)))
    cluster.image = with_topics(cluster.image, moving)
    results = (PartitionResult("a", 0), PartitionResult("b", 1, 85, "nothing moves"))
    cluster.answers[AlterReassignments] = PartitionResults(results)
    response = await cluster.call(
        ALTER,
        version,
        timeout=1000,
        topics=topics(version, a={0: (3, 2)}, b={1: None}),
        allow_replication_factor_change=False,
    )
    assert (response.error_code, response.error_message) == (0, None)
    assert [
        (
            topic.name,
            [(each.partition_index, each.error_code, each.error_message) for each in topic.partitions],
        )
        for topic in response.responses
    ] == [("a", [(0, 0, None)]), ("b", [(1, 85, "nothing moves")])]
    wanted = (Reassignment("a", 0, (3, 2)), Reassignment("b", 1, None))
    assert cluster.asked == [AlterReassignments(wanted, version == 0)]


async def test_answer_waits_until_this_broker_knows() -> None:
    """The next request goes to a broker that knows of it."""
    cluster = HandlerSetup()

    def begin(request: AlterReassignments) -> PartitionResults:
        state = PartitionState((3, 2, 1), (1, 2), 1, 4, 1, (3,), (1,))
        image = with_topics(cluster.image, topic_state("a", 1, state))
        cluster.image = msgspec.structs.replace(image, offset=51)
        return PartitionResults((PartitionResult("a", 0),))

    cluster.answers[AlterReassignments] = begin
    await cluster.call(ALTER, 1, timeout=1000, topics=topics(1, a={0: (3, 2)}))
    state = cluster.image.partition("a", 0)
    assert state is not None and state.target_replicas == (3, 2)


def test_failure_of_the_whole_request_is_reported_as_such() -> None:
    """No majority, for instance."""
    failed = RequestTimedOut("no majority")
    request = RequestContext(ALTER, 1, 7, None, "PLAINTEXT", "10.0.0.9")
    altered = row_of(ALTER).error_response(request, None, failed)
    listed = row_of(LIST).error_response(replace(request, api_key=LIST, api_version=0), None, failed)
    assert (altered.error_code, altered.error_message, altered.responses) == (7, "no majority", ())
    assert (listed.error_code, listed.error_message, listed.topics) == (7, "no majority", ())


async def test_reassignments_are_listed_by_topic() -> None:
    """All, or the requested partitions."""
    cluster = HandlerSetup()
    ongoing = (
        OngoingReassignment("a", 0, (3, 2, 1), (3,), (1,)),
        OngoingReassignment("a", 2, (1, 2), (2,), ()),
    )
    cluster.answers[ListReassignments] = OngoingReassignments(ongoing)
    response = await cluster.call(LIST, 0, timeout=1000, topics=None)
    assert [
        (
            topic.name,
            [
                (each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
                for each in topic.partitions
            ],
        )
        for topic in response.topics
    ] == [("a", [(0, (3, 2, 1), (3,), (1,)), (2, (1, 2), (2,), ())])]
    make = request_builders(LIST, 0)
    some = (make.ListPartitionReassignmentsTopics(name="a", partition_indexes=(2, 5)),)
    await cluster.call(LIST, 0, timeout=1000, topics=some)
    assert cluster.asked == [ListReassignments(None), ListReassignments((("a", 2), ("a", 5)))]
