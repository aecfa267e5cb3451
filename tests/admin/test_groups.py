"""Claims about lags where some leaders do not answer. The brokers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace as Answer
from typing import Any
from uuid import UUID

import pytest

from raftlog.admin.caller import NOBODY
from raftlog.admin.errors import ApiError
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.groups import (
    all_of,
    get_group,
    get_lag,
    get_lag_summary,
    list_assignments,
    list_lags,
)
from raftlog.admin.kafka_rest.shared import Page
from raftlog.admin.limits import Limits
from raftlog.admin.native.group_lines import GroupsPage, TopicOfGroup, list_group_lines
from raftlog.admin.route import Call
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.protocol.apis import ApiKey

TOPIC_ID = UUID(int=1)
ASSIGNMENT = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\0"
END = 10


class Brokers:
    """One group, `g`, with a member that reads t-0; every leader's log ends at END."""

    def __init__(self, committed: Iterable[tuple[str, int]], protocol_type: str = "consumer") -> None:
        self._committed = list(committed)
        self._member = Answer(
            member_id="m", group_instance_id=None, client_id="c", member_assignment=ASSIGNMENT
        )
        self._group = Answer(
            group_id="g",
            error_code=0,
            group_state="Stable",
            protocol_type=protocol_type,
            protocol_data="range",
            members=(self._member,),
        )

    async def ask(self, api_key: int, message: Any, *, broker_id: int | None = None) -> Any:
        """Answer as a broker would."""
        if api_key == ApiKey.FIND_COORDINATOR:
            return Answer(error_code=0, error_message=None, node_id=1)
        if api_key == ApiKey.LIST_GROUPS:
            return Answer(error_code=0, groups=(Answer(group_id="g"),))
        if api_key == ApiKey.DESCRIBE_GROUPS:
            return Answer(groups=(self._group,))
        if api_key == ApiKey.OFFSET_FETCH:
            return Answer(
                error_code=0, topics=[_topic(*each, committed_offset=4) for each in self._committed]
            )
        assert api_key == ApiKey.LIST_OFFSETS
        asked = [(topic.name, each.partition_index) for topic in message.topics for each in topic.partitions]
        return Answer(topics=[_topic(*each, offset=END) for each in asked])


def _topic(name: str, partition: int, **found: int) -> Answer:
    return Answer(name=name, partitions=[Answer(partition_index=partition, error_code=0, **found)])


def call(brokers: Brokers, **path: Any) -> Call:
    """A request to a node that knows topic t: broker 1 leads t-0, and t-1 has no leader."""
    states = (PartitionState((1, 2), (1,), 1, 3), PartitionState((2,), (2,), NO_BROKER, 3))
    live: Any = {1: Answer(broker_id=1, fenced=False)}
    image = MetadataImage(
        offset=9,
        cluster_id="x",
        brokers=live,
        topics={"t": TopicState("t", TOPIC_ID, states)},
        topic_names={TOPIC_ID: "t"},
    )
    view = NodeView(NodeConfig(node_id=1), lambda: image, list, lambda: 0.0)
    asker: Any = brokers
    nothing: Any = None
    names = {"cluster_id": "x", "consumer_group_id": "g", **path}
    return Call(view, asker, "http://h", names, Page(), nothing, nothing, "id", Limits(), NOBODY)


def test_unknown_lag_is_counted_and_not_taken_for_none() -> None:
    """A sum that silently leaves a partition out looks like good news. A deleted topic is no lag at all."""
    asked = call(Brokers([("t", 0), ("t", 1), ("gone", 0)]))
    summary = asyncio.run(get_lag_summary(asked))
    assert (summary.total_lag, summary.max_lag_partition_id, summary.unknown_partitions) == (6, 0, 1)
    assert summary.max_lag_consumer_id == "m"
    (only,) = asyncio.run(list_lags(asked)).data
    assert (only.partition_id, only.lag, only.consumer_id) == (0, 6, "m")


def test_uncommitted_partitions_are_counted_beside_the_lag() -> None:
    """The partitions are unread, or a member reads them and has committed no offset: the sum leaves them out."""
    assert asyncio.run(get_lag_summary(call(Brokers([("t", 0)])))).uncommitted_partitions == 1
    both = asyncio.run(get_lag_summary(call(Brokers([("t", 0), ("t", 1), ("gone", 0)]))))
    assert both.uncommitted_partitions == 0


def lines_of(committed: Iterable[tuple[str, int]], query: GroupsPage) -> Any:
    """Return a page of groups, and its next."""
    asked = call(Brokers(committed))
    asked.query = query
    found = asyncio.run(list_group_lines(asked))
    return found.data, found.next


def test_line_of_a_group_has_its_members_topics_and_lag() -> None:
    """Lag is of partitions with a leader; a deleted topic is no topic of the group. A topic selects its readers."""
    ((line,), following) = lines_of([("t", 0), ("t", 1), ("gone", 0)], GroupsPage())
    assert (line.consumer_group_id, line.members, line.coordinator_id, line.lag) == ("g", 1, 1, 6)
    assert line.topics == [TopicOfGroup("t", assigned_partitions=1, committed_partitions=2, lag=6)]
    assert following is None
    ((unread,), _) = lines_of([("t", 1)], GroupsPage(topic="t"))
    assert (unread.lag, unread.topics[0].lag) == (None, None)
    assert lines_of([("t", 0)], GroupsPage(topic="other")) == ([], None)
    assert lines_of([("t", 0)], GroupsPage(after="g")) == ([], None)


def test_groups_of_a_coordinator_that_leaves_are_left_out() -> None:
    """It listed and described them, and then its connection ended: the page has the other groups."""

    class Leaving(Brokers):
        async def ask(self, api_key: int, message: Any, *, broker_id: int | None = None) -> Any:
            if api_key == ApiKey.OFFSET_FETCH:
                raise BrokerUnreachable("broker 1 is unreachable")
            return await super().ask(api_key, message, broker_id=broker_id)

    asked = call(Leaving([("t", 0)]))
    asked.query = GroupsPage()
    assert asyncio.run(list_group_lines(asked)).data == []


@pytest.mark.parametrize(
    ("topic", "partition", "status"), [("t", 1, 503), ("gone", 0, 404), ("t", 7, 404), ("t", 0, None)]
)
def test_lag_of_one_partition_waits_for_its_leader(topic: str, partition: int, status: int | None) -> None:
    """503 passes, 404 does not."""
    asked = call(Brokers([("t", 0), ("t", 1), ("gone", 0)]), topic_name=topic, partition_id=partition)
    if status is None:
        assert asyncio.run(get_lag(asked)).lag == 6
        return
    with pytest.raises(ApiError) as caught:
        asyncio.run(get_lag(asked))
    assert caught.value.status == status


@pytest.mark.parametrize(("committed", "status"), [([("t", 1)], 503), ([("gone", 0)], 404), ([], 404)])
def test_summary_of_nothing_says_whether_that_may_pass(committed: list[tuple[str, int]], status: int) -> None:
    """The partition has no leader now, or the group reads no topic."""
    with pytest.raises(ApiError) as caught:
        asyncio.run(get_lag_summary(call(Brokers(committed))))
    assert caught.value.status == status


def test_assignment_of_another_protocol_is_not_read_as_one_of_consumers() -> None:
    """Kafka Connect's bytes may look like partitions."""
    mine = asyncio.run(list_assignments(call(Brokers([]), consumer_id="m")))
    assert [(each.topic_name, each.partition_id) for each in mine.data] == [("t", 0)]
    assert asyncio.run(list_assignments(call(Brokers([], "connect"), consumer_id="m"))).data == []


class ConsumerBrokers(Brokers):
    """The same group with the consumer protocol: DescribeGroups does not know it."""

    async def ask(self, api_key: int, message: Any, *, broker_id: int | None = None) -> Any:
        """Answer as a broker would."""
        if api_key == ApiKey.DESCRIBE_GROUPS:
            dead = [
                Answer(group_id=each, error_code=0, group_state="Dead", members=()) for each in message.groups
            ]
            return Answer(groups=dead)
        if api_key != ApiKey.CONSUMER_GROUP_DESCRIBE:
            return await super().ask(api_key, message, broker_id=broker_id)
        topic = Answer(topic_name="t", partitions=(0,))
        member = Answer(
            member_id="m", instance_id="one", client_id="c", assignment=Answer(topic_partitions=(topic,))
        )
        group = Answer(
            group_id="g", error_code=0, group_state="Reconciling", assignor_name="uniform", members=(member,)
        )
        assert message.group_ids == ("g",)
        return Answer(groups=(group,))


def test_consumer_groups_are_reported_like_classic_groups() -> None:
    """Of KIP-848, described by an API of their own: state, assignor, members, what they read and how far."""
    brokers = ConsumerBrokers([("t", 0)])
    found = asyncio.run(get_group(call(brokers)))
    assert (found.state, found.partition_assignor, found.is_simple) == ("RECONCILING", "uniform", False)
    (assigned,) = asyncio.run(list_assignments(call(brokers, consumer_id="m"))).data
    assert (assigned.topic_name, assigned.partition_id) == ("t", 0)
    (lag,) = asyncio.run(list_lags(call(brokers))).data
    assert (lag.consumer_id, lag.instance_id, lag.lag) == ("m", "one", 6)


def test_groups_that_an_answer_had_no_room_for_are_asked_for_again() -> None:
    """As long as each response has some of the groups: a coordinator that is loading is not asked for ever."""
    asked: list[tuple[str, ...]] = []

    def told(group_id: str, code: int) -> Answer:
        return Answer(group_id=group_id, error_code=code)

    async def ask(ids: tuple[str, ...]) -> tuple[Any, ...]:
        asked.append(ids)
        return (told(ids[0], 14 if ids[0] == "c" else 0), *(told(each, 14) for each in ids[1:]))

    answers = asyncio.run(all_of(("a", "b", "c", "d"), ask))
    assert asked == [("a", "b", "c", "d"), ("b", "c", "d"), ("c", "d")]
    assert [(each.group_id, each.error_code) for each in answers] == [
        ("a", 0),
        ("b", 0),
        ("c", 14),
        ("d", 14),
    ]
