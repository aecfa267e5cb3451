"""Groups in which members of both protocols meet, and groups that change their protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Consumer, Fields, Member, describe, group, subscription
from raftlog_chaos.conformance.session import Session
from raftlog_chaos.conformance.subjects.consumer_groups import shares_of


def ask_for_an_id(classic: Member) -> None:
    """Send a first JoinGroup alone."""
    classic.begin_join()
    classic.end_join()


CLASSIC: Final[dict[str, Callable[[Session, Member, Consumer], object]]] = {
    "JoinGroup": lambda s, classic, one: classic.join(),
    "JoinGroup without an id": lambda s, classic, one: ask_for_an_id(classic),
    "JoinGroup with its id": lambda s, classic, one: classic.join(member_id=one.id),
    "Heartbeat": lambda s, classic, one: classic.heartbeat(member_id=one.id, generation_id=one.epoch),
    "SyncGroup": lambda s, classic, one: classic.sync({}, member_id=one.id, generation_id=one.epoch),
    "LeaveGroup": lambda s, classic, one: s.ask(
        "LeaveGroup", 5, group_id=one.group, members=[{"member_id": one.id}]
    ),
}


@history(CLASSIC)
def classic_requests(s: Session, act: Callable[[Session, Member, Consumer], object]) -> None:
    """Requests of the classic protocol to a group of the consumer protocol."""
    topic = s.topic()
    one = Consumer(s, group(s), topics=[topic])
    one.join()
    one.confirm()
    act(s, Member(s, one.group), one)
    one.heartbeat()
    describe(s, one.group)


@history({"a consumer's": subscription, "anything": lambda topic: b"\0\0"})
def a_classic_member_that_joins(s: Session, metadata: Callable[[str], bytes]) -> None:
    """A classic member with a consumer's metadata takes part in a consumer group."""
    topic = s.topic(partitions=2)
    one = Consumer(s, group(s), topics=[topic])
    one.join()
    one.confirm()
    classic = Member(s, one.group)
    protocols = [{"name": "range", "metadata": metadata(topic)}]
    answer = classic.join(protocols=protocols)
    if answer["error_code"] == "NONE":
        one.heartbeat()
        one.confirm()
        classic.sync()
        classic.heartbeat()
        describe(s, one.group)
        classic.leave()
        one.heartbeat()
    describe(s, one.group)


@history()
def the_last_consumer_that_leaves(s: Session) -> None:
    """A group in which only classic members are left becomes a classic group."""
    topic = s.topic(partitions=2)
    one = Consumer(s, group(s), topics=[topic])
    one.join()
    one.confirm()
    classic = Member(s, one.group)
    protocols = [{"name": "range", "metadata": subscription(topic)}]
    classic.join(protocols=protocols)
    one.leave()
    s.ask("DescribeGroups", 5, groups=[one.group])
    classic.heartbeat()
    classic.join(protocols=protocols)
    classic.sync({classic.id: b"all"})
    describe(s, one.group)


@history()
def a_consumer_that_joins_classic_members(s: Session) -> None:
    """A classic group of consumers becomes a consumer group when a member of that protocol joins."""
    topic = s.topic(partitions=2)
    classic = Member(s, group(s))
    protocols = [{"name": "range", "metadata": subscription(topic)}]
    classic.join(protocols=protocols)
    classic.sync({classic.id: b"\0\0\0\0\0\0\xff\xff\xff\xff"})
    one = Consumer(s, classic.group, topics=[topic])
    one.join_unseen()
    s.observe("the shares", shares_of(s, one.group))
    classic.heartbeat()
    classic.join(protocols=protocols)
    s.observe("the shares", shares_of(s, one.group))


REFUSED: Final = {
    "connect": {"protocol_type": "connect"},
    "metadata that cannot be read": {"protocols": [{"name": "range", "metadata": b"\0\0"}]},
    "no metadata": {"protocols": [{"name": "range", "metadata": b""}]},
}


@history(REFUSED)
def a_classic_group_that_cannot_change(s: Session, odd: Fields) -> None:
    """A classic group of anything else stays what it is while it has members."""
    topic = s.topic()
    classic = Member(s, group(s))
    classic.join(**odd)
    classic.sync({classic.id: b"all"}, protocol_type=odd.get("protocol_type", "consumer"))
    one = Consumer(s, classic.group, topics=[topic])
    one.join()
    classic.heartbeat()
    classic.leave()
    one.join()
    describe(s, one.group)


@history()
def an_empty_group_that_changes(s: Session) -> None:
    """An empty group takes members of either protocol, and keeps its offsets."""
    topic = s.topic()
    classic = Member(s, group(s))
    classic.settle()
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    classic.leave()
    s.ask("OffsetCommit", 8, group_id=classic.group, topics=[{"name": topic, "partitions": partitions}])
    one = Consumer(s, classic.group, topics=[topic])
    one.join()
    one.leave()
    s.ask("OffsetFetch", 7, group_id=one.group, topics=None)
    later = Member(s, one.group)
    later.settle()
    s.ask("OffsetFetch", 7, group_id=one.group, topics=None)
    describe(s, one.group)
