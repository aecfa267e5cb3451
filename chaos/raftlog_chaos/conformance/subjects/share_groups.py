"""Share groups (KIP-932): heartbeats, epochs, assignments, and requests that list, set or delete offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields, Member
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session

SHORT: Final = {
    "group.share.heartbeat.interval.ms": "100",
    "group.share.max.size": "1",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "200",
    "group.share.session.timeout.ms": "500",
}
"""Settings with a short session timeout, and groups of at most one member."""


def share_group(s: Session, word: str = "group") -> str:
    """Return a name for a share group. The group and its members are deleted when the history ends."""
    name = s.name(word)
    s.at_end(lambda: _delete(s, name))
    return name


def _delete(s: Session, name: str) -> None:
    found = s.query("ShareGroupDescribe", 1, group_ids=[name])["groups"][0]
    for each in found["members"]:
        s.query("ShareGroupHeartbeat", 1, group_id=name, member_id=each["member_id"], member_epoch=-1)
    s.query("DeleteGroups", 2, groups_names=[name])


class ShareMember:
    """A member of a share group. Its epoch comes from the last response.

    The number of epochs until a group's share states are initialized is not observed, as it may differ.
    """

    def __init__(self, s: Session, group: str, *topics: str, word: str = "a") -> None:
        self.id = word
        self.epoch = 0
        self.group = group
        self._topics = list(topics)
        self._s = s

    def settle(self) -> None:
        """Join, and wait until all partitions are assigned. Their share states are initialized meanwhile."""
        self.epoch = 0

        def has_all() -> bool:
            answer = self._s.query(
                "ShareGroupHeartbeat",
                1,
                group_id=self.group,
                member_id=self.id,
                member_epoch=self.epoch,
                subscribed_topic_names=self._topics,
            )
            self.epoch = answer["member_epoch"] if answer["error_code"] == "NONE" else 0
            given = (answer["assignment"] or {}).get("topic_partitions", ())
            return len(given) == len(self._topics)

        self._s.expect("the member has its partitions", has_all)

    def heartbeat(self, ahead: int = 0) -> None:
        """Send a heartbeat without changes, with the member's epoch plus `ahead`."""
        answer = self._s.query(
            "ShareGroupHeartbeat",
            1,
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch + ahead,
            subscribed_topic_names=None,
        )
        seen = {name: answer[name] for name in ("error_code", "assignment", "heartbeat_interval")}
        if answer["error_code"] == "NONE":
            seen["epoch"] = "the same" if answer["member_epoch"] == self.epoch else "another"
        self._s.observe(f"heartbeat {ahead:+} epochs", seen)

    def leave(self) -> Message:
        """Leave the group."""
        return self._s.ask("ShareGroupHeartbeat", 1, **self._fields(-1, None))

    def join(self) -> Message:
        """Send a first heartbeat."""
        return self._s.ask("ShareGroupHeartbeat", 1, **self._fields(0, self._topics))

    def _fields(self, epoch: int, topics: list[str] | None) -> Fields:
        return {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": epoch,
            "subscribed_topic_names": topics,
        }


def describe(s: Session, *groups: str, **fields: Any) -> Message:
    """Describe share groups."""
    return s.ask("ShareGroupDescribe", 1, group_ids=list(groups), **fields)


@history()
def alone(s: Session) -> None:
    """A member gets all partitions, keeps them while it sends heartbeats, and leaves in epoch -1."""
    member = ShareMember(s, share_group(s), s.topic(partitions=3))
    member.settle()
    member.heartbeat()
    member.leave()
    member.heartbeat()


@history()
def described(s: Session) -> None:
    """A group with a member, without any, one that is missing, and one of another kind."""
    member = ShareMember(s, share_group(s), s.topic(partitions=2))
    member.settle()
    classic = Member(s, s.name("classic"))
    classic.settle()
    found = describe(
        s, member.group, s.name("missing"), classic.group, "", include_authorized_operations=True
    )
    assert found["groups"]
    member.leave()
    s.ask("DescribeGroups", 6, groups=[member.group])
    s.ask("ConsumerGroupDescribe", 1, group_ids=[member.group])
    listed = s.query("ListGroups", 5, types_filter=["share"])["groups"]
    s.observe("listed", [each for each in listed if each["group_id"] == member.group])
    classic.leave()


JOINS: Final[dict[str, Fields]] = {
    "no group": {"group_id": ""},
    "no member": {"member_id": ""},
    "a member of a blank": {"member_id": " "},
    "an empty rack": {"rack_id": ""},
    "a rack": {"rack_id": "rack"},
    "no subscription": {"subscribed_topic_names": None},
    "a subscription to nothing": {"subscribed_topic_names": []},
    "a topic twice": {"subscribed_topic_names": ["x", "x"]},
    "an epoch of 1": {"member_epoch": 1},
    "an epoch of -1": {"member_epoch": -1},
    "an epoch of -2": {"member_epoch": -2},
}
"""Odd fields of a first heartbeat, by their name."""


@history(JOINS)
def join(s: Session, odd: Fields) -> None:
    """A first heartbeat with a field that is odd."""
    group = share_group(s)
    given: Fields = {
        "group_id": group,
        "member_id": "a",
        "member_epoch": 0,
        "subscribed_topic_names": ["a topic that is not there"],
    }
    s.ask("ShareGroupHeartbeat", 1, **(given | odd))


EPOCHS: Final = {"the epoch before": -1, "the next": 1, "far beyond": 1_000}


@history(EPOCHS)
def epoch(s: Session, ahead: int) -> None:
    """A heartbeat in another epoch than the member's."""
    member = ShareMember(s, share_group(s), s.topic(partitions=1))
    member.settle()
    member.heartbeat(ahead)


@history()
def of_another_kind(s: Session) -> None:
    """A group of one kind takes no members of another."""
    share, classic = share_group(s), s.name("classic")
    topic = s.topic()
    member, other = ShareMember(s, share, topic), Member(s, classic)
    member.settle()
    other.settle()
    ShareMember(s, classic, topic).join()
    Member(s, share, "joining").join()
    s.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id=share,
        member_id="c",
        rebalance_timeout=1_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    s.ask("OffsetCommit", 8, group_id=share, topics=[{"name": topic, "partitions": partitions}])
    other.leave()


@history(settings=SHORT)
def full(s: Session) -> None:
    """A group has `group.share.max.size` members at most."""
    topic = s.topic()
    first = ShareMember(s, share_group(s), topic)
    first.settle()
    ShareMember(s, first.group, topic, word="b").join()


@history(settings=SHORT, slow=True)
def silent(s: Session) -> None:
    """A member that is silent for `group.share.session.timeout.ms` is removed."""
    member = ShareMember(s, share_group(s), s.topic())
    member.settle()
    s.wait(
        "the group is empty",
        lambda: (
            s.query("ShareGroupDescribe", 1, group_ids=[member.group])["groups"][0]["group_state"] == "Empty"
        ),
    )
    member.heartbeat()


# --- administrators


def alter(s: Session, group: str, topics: Mapping[str, Mapping[int, int]]) -> Message:
    """Set start offsets by topic and partition."""
    named = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": index, "start_offset": offset} for index, offset in offsets.items()
            ],
        }
        for name, offsets in topics.items()
    ]
    return s.ask("AlterShareGroupOffsets", 0, group_id=group, topics=named)


def offsets(s: Session, group: str, topics: Mapping[str, list[int]] | None, version: int = 1) -> Message:
    """Look where a group is: in these partitions, or in all that it has."""
    named = topics and [{"topic_name": name, "partitions": each} for name, each in topics.items()]
    return s.ask("DescribeShareGroupOffsets", version, groups=[{"group_id": group, "topics": named}])


def forget(s: Session, group: str, *topics: str) -> Message:
    """Delete the offsets of topics."""
    return s.ask(
        "DeleteShareGroupOffsets", 0, group_id=group, topics=[{"topic_name": each} for each in topics]
    )


@history({"v0": 0, "v1": 1})
def offsets_are_set(s: Session, version: int) -> None:
    """Setting offsets makes the group; they are described, and gone with the group."""
    group, topic = share_group(s), s.topic(partitions=2)
    alter(s, group, {topic: {0: 0}})
    s.expect(
        "the offsets are there",
        lambda: s.query("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])[
            "groups"
        ][0]["topics"],
    )
    offsets(s, group, None, version)
    offsets(s, group, {topic: [0, 1]}, version)
    offsets(s, group, {}, version)
    s.ask("ShareGroupDescribe", 1, group_ids=[group])
    s.ask("DeleteGroups", 2, groups_names=[group])
    offsets(s, group, {topic: [0]}, version)


@history()
def offsets_of_what_is_not_there(s: Session) -> None:
    """Of a missing group, a missing topic, and a partition beyond the topic's."""
    group, topic = share_group(s), s.topic()
    offsets(s, group, None)
    offsets(s, group, {topic: [0, 7], s.name("missing"): [0]})
    alter(s, group, {topic: {7: 1}, s.name("missing"): {0: 1}})
    alter(s, "", {topic: {0: 1}})
    forget(s, group, topic)
    forget(s, "", topic)


@history()
def offsets_of_a_group_with_members(s: Session) -> None:
    """They can neither be set nor deleted, nor can the group."""
    topic = s.topic()
    member = ShareMember(s, share_group(s), topic)
    member.settle()
    alter(s, member.group, {topic: {0: 0}})
    forget(s, member.group, topic)
    s.ask("DeleteGroups", 2, groups_names=[member.group])


@history()
def offsets_are_deleted(s: Session) -> None:
    """Those of topics that the group has read, and of no others."""
    topic, other = s.topic(), s.topic("other")
    member = ShareMember(s, share_group(s), topic)
    member.settle()
    member.leave()
    forget(s, member.group, topic, other, s.name("missing"))
    offsets(s, member.group, None)
    forget(s, member.group, topic)


@history()
def offsets_of_a_group_of_another_kind(s: Session) -> None:
    """A classic group has none."""
    topic = s.topic()
    other = Member(s, s.name("classic"))
    other.settle()
    alter(s, other.group, {topic: {0: 0}})
    forget(s, other.group, topic)
    offsets(s, other.group, None)
    other.leave()
