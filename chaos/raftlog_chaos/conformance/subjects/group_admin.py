"""Groups as a whole: described, listed and deleted, with their offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields, Member, group, subscription
from raftlog_chaos.conformance.session import Session


@history({f"v{version}": version for version in range(7)})
def describe(s: Session, version: int) -> None:
    """Groups that are there, empty, gone and without a name; from version 6 on a missing group is an error."""
    name, empty = group(s), group(s, "empty")
    member, other = Member(s, name), Member(s, empty)
    member.settle()
    other.settle()
    other.leave()
    s.ask("DescribeGroups", version, groups=[name, empty, s.name("missing"), "", name])


@history()
def describe_with_rights(s: Session) -> None:
    """The operations that the asker may do are shown if it asks for them."""
    member = Member(s, group(s))
    member.settle()
    s.ask("DescribeGroups", 5, groups=[member.group], include_authorized_operations=True)


@history()
def describe_no_group(s: Session) -> None:
    """Without names no group is described."""
    s.ask("DescribeGroups", 5, groups=[])


FILTERS: Final[dict[str, tuple[int, Fields]]] = {
    **{f"v{version}": (version, {}) for version in range(6)},
    "Stable": (5, {"states_filter": ["Stable"]}),
    "stable": (5, {"states_filter": ["stable"]}),
    "Stable and Empty": (5, {"states_filter": ["Stable", "Empty"]}),
    "PreparingRebalance": (4, {"states_filter": ["PreparingRebalance"]}),
    "CompletingRebalance": (4, {"states_filter": ["CompletingRebalance"]}),
    "Dead": (5, {"states_filter": ["Dead"]}),
    "Assigning": (5, {"states_filter": ["Assigning"]}),
    "no such state": (5, {"states_filter": ["Happy"]}),
    "an empty state": (5, {"states_filter": [""]}),
    "classic": (5, {"types_filter": ["classic"]}),
    "Classic": (5, {"types_filter": ["Classic"]}),
    "consumer": (5, {"types_filter": ["consumer"]}),
    "both": (5, {"types_filter": ["consumer", "classic"]}),
    "no such type": (5, {"types_filter": ["happy"]}),
    "both filters": (5, {"types_filter": ["classic"], "states_filter": ["Empty"]}),
    "filters that contradict": (5, {"types_filter": ["consumer"], "states_filter": ["PreparingRebalance"]}),
}


@history(FILTERS)
def listed(s: Session, row: tuple[int, Fields]) -> None:
    """Groups are listed by state and type, in any case of letters; an unknown type is refused."""
    version, filters = row
    stable, empty, syncing, simple = (group(s, word) for word in ("stable", "empty", "syncing", "simple"))
    Member(s, stable, "stable").settle()
    leaving = Member(s, empty, "empty")
    leaving.settle()
    leaving.leave()
    Member(s, syncing, "syncing").join()
    topic = s.topic()
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    s.ask("OffsetCommit", 8, group_id=simple, topics=[{"name": topic, "partitions": partitions}])
    answer = s.query("ListGroups", version, **filters)
    mine = (stable, empty, syncing, simple)
    found = [each for each in answer["groups"] if each["group_id"] in mine]
    s.observe(f"ListGroups v{version} {filters}", {"error_code": answer["error_code"], "groups": found})


def commit(s: Session, name: str, topic: str) -> None:
    """Commit an offset without being a member."""
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    s.ask("OffsetCommit", 8, group_id=name, topics=[{"name": topic, "partitions": partitions}])


DELETES: Final[dict[str, Callable[[Session, str], Sequence[str]]]] = {
    "an empty group": lambda s, name: [name],
    "twice": lambda s, name: [name, name],
    "a missing group": lambda s, name: [s.name("missing"), name],
    "no name": lambda s, name: [""],
    "no group": lambda s, name: [],
    "a long name": lambda s, name: ["g" * 300],
}


@history(DELETES)
def delete(s: Session, names: Callable[[Session, str], Sequence[str]]) -> None:
    """A group without members is deleted with its offsets."""
    name, topic = group(s), s.topic()
    commit(s, name, topic)
    s.ask("DeleteGroups", 2, groups_names=names(s, name))
    s.ask("DescribeGroups", 5, groups=[name])
    s.ask("OffsetFetch", 7, group_id=name, topics=None)


@history({f"v{version}": version for version in range(3)})
def delete_with_members(s: Session, version: int) -> None:
    """A group with members is not deleted; it is when they have left."""
    member = Member(s, group(s))
    member.join()
    s.ask("DeleteGroups", version, groups_names=[member.group])
    member.sync({member.id: b"all"})
    s.ask("DeleteGroups", version, groups_names=[member.group])
    member.leave()
    s.ask("DeleteGroups", version, groups_names=[member.group])
    s.ask("DeleteGroups", version, groups_names=[member.group])


@history()
def delete_with_a_member_that_has_only_an_id(s: Session) -> None:
    """A member that was given an id and did not come is none."""
    member = Member(s, group(s))
    member.begin_join()
    member.end_join()
    member.describe()
    s.ask("DeleteGroups", 2, groups_names=[member.group])
    member.join()


OFFSETS: Final[dict[str, Callable[[Session, str, str], Fields]]] = {
    "a topic that is read": lambda s, name, topic: wanted(name, topic),
    "an unknown topic": lambda s, name, topic: wanted(name, s.name("missing")),
    "an unknown partition": lambda s, name, topic: wanted(name, topic, 7),
    "an unknown group": lambda s, name, topic: wanted(s.name("missing-group"), topic),
    "no group": lambda s, name, topic: wanted("", topic),
    "no topic": lambda s, name, topic: {"group_id": name, "topics": []},
    "no partition": lambda s, name, topic: wanted(name, topic, None),
    "a partition twice": lambda s, name, topic: wanted(name, topic, 0, 0),
}


def wanted(name: str, topic: str, *partitions: int | None) -> Fields:
    """Return the fields of an OffsetDelete; partition 0 for none, no partition for None."""
    found = [{"partition_index": each} for each in partitions or (0,) if each is not None]
    return {"group_id": name, "topics": [{"name": topic, "partitions": found}]}


@history(OFFSETS)
def delete_offsets(s: Session, fields: Callable[[Session, str, str], Fields]) -> None:
    """Offsets of topics that are not read are deleted; a partition without an offset is no error."""
    name, topic = group(s), s.topic(partitions=2)
    commit(s, name, topic)
    s.ask("OffsetDelete", 0, **fields(s, name, topic))
    s.ask("OffsetFetch", 7, group_id=name, topics=None)
    s.ask("OffsetDelete", 0, **wanted(name, topic))
    s.ask("DescribeGroups", 5, groups=[name])


@history({"read": "consumer", "of another protocol": "connect"})
def delete_offsets_of_members(s: Session, protocol_type: str) -> None:
    """Offsets of a topic that a member reads stay; of groups of another protocol all do while it has members."""
    name, topic, other = group(s), s.topic(), s.topic("other")
    commit(s, name, topic)
    commit(s, name, other)
    member = Member(s, name)
    protocols = [{"name": "range", "metadata": subscription(topic)}]
    member.join(protocol_type=protocol_type, protocols=protocols)
    member.sync({member.id: b"all"}, protocol_type=protocol_type)
    for each in (topic, other):
        s.ask("OffsetDelete", 0, **wanted(name, each))
    s.ask("OffsetFetch", 7, group_id=name, topics=None)
    member.leave()
    s.ask("OffsetDelete", 0, **wanted(name, topic))


@history()
def another_protocol_type_later(s: Session) -> None:
    """A group that all members left takes members of another type."""
    member = Member(s, group(s))
    member.settle()
    member.leave()
    later = Member(s, member.group)
    later.join(protocol_type="connect")
    later.describe()
