"""Committed offsets: commits and fetches of every version, of members of both protocols and of none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Consumer, Fields, Member, group, subscription, until
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session

MADE_UP: Final = "00000000-0000-0000-0000-00000000002a"
MAX64: Final = 2**63 - 1


def commit(s: Session, name: str, topic: str, *offsets: int, version: int = 8, **fields: Any) -> Message:
    """Commit offsets for partitions from 0 on; `fields` are the request's."""
    partitions = [{"partition_index": at, "committed_offset": each} for at, each in enumerate(offsets)]
    topics = [{"name": topic, "topic_id": s.topic_id(topic), "partitions": partitions}]
    return s.ask("OffsetCommit", version, **({"group_id": name, "topics": topics} | fields))


def fetch(s: Session, name: str, *, version: int = 7, **fields: Any) -> Message:
    """Fetch all offsets of a group; `fields` are the request's."""
    return s.ask("OffsetFetch", version, group_id=name, topics=None, **fields)


@history({f"v{version}": version for version in range(2, 11)})
def committed(s: Session, version: int) -> None:
    """A commit from outside a group is stored, with its metadata and epoch as far as the version has them."""
    name, topic = group(s), s.topic(partitions=2)
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "mine"},
        {
            "partition_index": 1,
            "committed_offset": 7,
            "committed_leader_epoch": 3,
            "committed_metadata": None,
        },
        {"partition_index": 2, "committed_offset": 9},
    ]
    topics: list[Fields] = [
        {"name": topic, "topic_id": s.topic_id(topic), "partitions": partitions},
        {"name": s.name("missing"), "topic_id": MADE_UP, "partitions": partitions[:1]},
    ]
    s.ask("OffsetCommit", version, group_id=name, topics=topics)
    fetch(s, name)


@history({f"v{version}": version for version in range(1, 11)})
def fetched(s: Session, version: int) -> None:
    """Offsets are fetched by partition; what is not there is -1, and no error."""
    name, topic = group(s), s.topic(partitions=2)
    commit(s, name, topic, 5)
    topics: list[Fields] = [
        {"name": topic, "partition_indexes": [1, 0, 7]},
        {"name": s.name("missing"), "partition_indexes": [0]},
    ]
    if version >= 10:
        topics = [
            {"topic_id": s.topic_id(topic), "partition_indexes": [1, 0, 7]},
            {"topic_id": MADE_UP, "partition_indexes": [0]},
        ]
    asked: Fields = {"group_id": name, "topics": topics}
    missing: Fields = {"group_id": s.name("missing-group"), "topics": topics[:1]}
    if version < 8:
        s.ask("OffsetFetch", version, **asked)
        s.ask("OffsetFetch", version, **missing)
    else:
        s.ask("OffsetFetch", version, groups=[asked, missing])


@history({f"v{version}": version for version in range(1, 11)})
def fetched_all(s: Session, version: int) -> None:
    """Without topics all offsets are fetched from version 2 on, and with an empty list none."""
    name, topic, other = group(s), s.topic(partitions=3), s.topic("other")
    commit(s, name, topic, 5, 6)
    commit(s, name, other, 0)
    given: tuple[list[str] | None, ...] = (None, []) if version > 1 else ([],)
    for topics in given:
        if version < 8:
            s.ask("OffsetFetch", version, group_id=name, topics=topics)
        else:
            s.ask("OffsetFetch", version, groups=[{"group_id": name, "topics": topics}])


FETCHES: Final[dict[str, Callable[[Session, str, str], tuple[int, Fields]]]] = {
    "no group": lambda s, name, topic: (7, {"group_id": "", "topics": None}),
    "no group in v9": lambda s, name, topic: (9, {"groups": [{"group_id": "", "topics": None}]}),
    "no groups": lambda s, name, topic: (9, {"groups": []}),
    "a group twice": lambda s, name, topic: (9, {"groups": [{"group_id": name, "topics": None}] * 2}),
    "require_stable": lambda s, name, topic: (7, {"group_id": name, "topics": None, "require_stable": True}),
    "a partition of -1": lambda s, name, topic: (7, of(name, topic, -1)),
    "a partition twice": lambda s, name, topic: (7, of(name, topic, 0, 0)),
    "no partition": lambda s, name, topic: (7, of(name, topic)),
    "a topic without a name": lambda s, name, topic: (7, of(name, "", 0)),
    "a name that no topic can have": lambda s, name, topic: (7, of(name, "a topic/", 0)),
    "a long group": lambda s, name, topic: (7, of("g" * 300, topic, 0)),
    "a topic's id of zeros": lambda s, name, topic: (10, by_id(name, None)),
    "a member that is none": lambda s, name, topic: (
        9,
        {"groups": [{"group_id": name, "member_id": "x", "member_epoch": 0, "topics": None}]},
    ),
    "a member in epoch -1": lambda s, name, topic: (
        9,
        {"groups": [{"group_id": name, "member_id": "x", "member_epoch": -1, "topics": None}]},
    ),
}


def of(name: str, topic: str, *partitions: int) -> Fields:
    """Return the fields of an OffsetFetch before version 8."""
    return {"group_id": name, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}


def by_id(name: str, topic_id: str | None) -> Fields:
    """Return the fields of an OffsetFetch that names a topic by its id."""
    return {"groups": [{"group_id": name, "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}]}


@history(FETCHES)
def fetch_of(s: Session, asked: Callable[[Session, str, str], tuple[int, Fields]]) -> None:
    """An odd fetch of offsets."""
    name, topic = group(s), s.topic(partitions=2)
    commit(s, name, topic, 5, 6)
    version, fields = asked(s, name, topic)
    s.ask("OffsetFetch", version, **fields)


COMMITS: Final[dict[str, Fields]] = {
    "no group": {"group_id": ""},
    "a long group": {"group_id": "g" * 300},
    "a generation": {"generation_id_or_member_epoch": 0},
    "a generation of 5": {"generation_id_or_member_epoch": 5},
    "a generation of -2": {"generation_id_or_member_epoch": -2},
    "a member": {"member_id": "unknown"},
    "a member and a generation": {"member_id": "unknown", "generation_id_or_member_epoch": 1},
    "an instance": {"group_instance_id": "instance"},
    "an instance and a generation": {"group_instance_id": "instance", "generation_id_or_member_epoch": 1},
    "no topics": {"topics": []},
    "a topic without partitions": {"topics": [{"name": "topic", "partitions": []}]},
    "a topic without a name": {"topics": [{"name": "", "partitions": [{"committed_offset": 1}]}]},
    "a name that no topic can have": {"topics": [{"name": "a/", "partitions": [{"committed_offset": 1}]}]},
    "the topic of committed offsets": {
        "topics": [{"name": "__consumer_offsets", "partitions": [{"committed_offset": 1}]}]
    },
}
"""Odd fields of a commit to a group that does not exist."""


@history(COMMITS)
def commit_of(s: Session, odd: Fields) -> None:
    """A commit from outside a membership creates a missing group."""
    name, topic = group(s), s.topic()
    commit(s, name, topic, 5, **odd)
    fetch(s, name)
    s.ask("DescribeGroups", 5, groups=[name])


@history({f"v{version}": version for version in (2, 5, 7, 8)})
def a_generation_in_an_empty_group(s: Session, version: int) -> None:
    """A generation in a group without members is that of a member that is gone."""
    name, topic = group(s), s.topic()
    commit(s, name, topic, 5)
    commit(s, name, topic, 6, version=version, generation_id_or_member_epoch=1, member_id="gone")
    commit(s, name, topic, 7, version=version, generation_id_or_member_epoch=0, member_id="")
    fetch(s, name)


VALUES: Final[dict[str, Fields]] = {
    "0": {"committed_offset": 0},
    "-1": {"committed_offset": -1},
    "-2": {"committed_offset": -2},
    "the largest": {"committed_offset": MAX64},
    "the smallest": {"committed_offset": -MAX64 - 1},
    "an epoch of 0": {"committed_offset": 1, "committed_leader_epoch": 0},
    "an epoch of -2": {"committed_offset": 1, "committed_leader_epoch": -2},
    "the largest epoch": {"committed_offset": 1, "committed_leader_epoch": 2**31 - 1},
    "metadata of null": {"committed_offset": 1, "committed_metadata": None},
    "metadata of 4096": {"committed_offset": 1, "committed_metadata": "m" * 4096},
    "metadata of 4097": {"committed_offset": 1, "committed_metadata": "m" * 4097},
    "metadata of 4096 umlauts": {"committed_offset": 1, "committed_metadata": "ä" * 4096},
    "metadata of 4097 umlauts": {"committed_offset": 1, "committed_metadata": "ä" * 4097},
    "a partition of -1": {"committed_offset": 1, "partition_index": -1},
    "a partition of 7": {"committed_offset": 1, "partition_index": 7},
}
"""Offsets and their metadata, beside a valid offset."""


@history(VALUES)
def value(s: Session, odd: Fields) -> None:
    """A commit is given back as it came; metadata that is too long is refused, and the offsets beside it are not."""
    name, topic = group(s), s.topic(partitions=2)
    right = {"partition_index": 1, "committed_offset": 9}
    partitions = [{"partition_index": 0, **odd}, right]
    s.ask("OffsetCommit", 8, group_id=name, topics=[{"name": topic, "partitions": partitions}])
    fetch(s, name)


ORDERS: Final[dict[str, Sequence[int]]] = {"up": (1, 2), "down": (2, 1), "again": (2, 2), "to 0": (2, 0)}


@history(ORDERS)
def order(s: Session, offsets: Sequence[int]) -> None:
    """The latest commit counts, also if it goes back."""
    name, topic = group(s), s.topic()
    for offset in offsets:
        commit(s, name, topic, offset)
        fetch(s, name)


@history()
def a_partition_twice_in_one_commit(s: Session) -> None:
    """The later one counts."""
    name, topic = group(s), s.topic()
    partitions = [{"partition_index": 0, "committed_offset": each} for each in (7, 3)]
    s.ask("OffsetCommit", 8, group_id=name, topics=[{"name": topic, "partitions": partitions}])
    fetch(s, name)


@history()
def a_topic_twice_in_one_commit(s: Session) -> None:
    """The later one counts."""
    name, topic = group(s), s.topic()
    topics: list[Fields] = [
        {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": each}]} for each in (7, 3)
    ]
    s.ask("OffsetCommit", 8, group_id=name, topics=topics)
    fetch(s, name)


@history({"v9": 9, "v10": 10})
def a_topic_that_is_deleted(s: Session, version: int) -> None:
    """Its offsets go with it, and a successor of its name has none."""
    name, topic, other = group(s), s.topic(), s.topic("other")
    commit(s, name, topic, 5)
    commit(s, name, other, 6)
    topic_id = s.topic_id(topic)
    s.query("DeleteTopics", 5, topic_names=[topic], timeout=10_000)
    s.wait("its offsets are gone", lambda: len(offsets_of(s, name)) == 1)
    commit(s, name, topic, 7, version=version)
    made = {"name": topic, "num_partitions": 1, "replication_factor": -1}
    s.query("CreateTopics", 7, topics=[made], timeout=10_000)
    wanted = {"group_id": name, "topics": [{"name": topic, "topic_id": topic_id, "partition_indexes": [0]}]}
    s.ask("OffsetFetch", version, groups=[wanted])


def offsets_of(s: Session, name: str) -> Sequence[Any]:
    """Look at the topics for which a group has offsets."""
    found: Sequence[Any] = s.query("OffsetFetch", 7, group_id=name, topics=None)["topics"]
    return found


# --- members of classic groups

CLASSIC: Final[dict[str, Fields]] = {
    "its own generation": {},
    "the generation before": {"generation_id_or_member_epoch": 0},
    "the generation after": {"generation_id_or_member_epoch": 2},
    "no generation": {"generation_id_or_member_epoch": -1},
    "neither generation nor member": {"generation_id_or_member_epoch": -1, "member_id": ""},
    "no member": {"member_id": ""},
    "an unknown member": {"member_id": "unknown"},
    "an unknown instance": {"group_instance_id": "instance"},
}


@history(CLASSIC)
def of_a_classic_member(s: Session, odd: Fields) -> None:
    """A member commits in its generation; while a group has members, no other client commits."""
    topic = s.topic()
    member = Member(s, group(s))
    member.settle()
    fields: Fields = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    commit(s, member.group, topic, 5, **(fields | odd))
    fetch(s, member.group)


@history({"v2": 2, "v6": 6, "v9": 9, "v10": 10})
def of_a_classic_member_in_old_versions(s: Session, version: int) -> None:
    """All versions know members of classic groups."""
    topic = s.topic()
    member = Member(s, group(s))
    member.settle()
    fields: Fields = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    commit(s, member.group, topic, 5, version=version, **fields)
    commit(s, member.group, topic, 6, version=version, **(fields | {"member_id": "other"}))
    fetch(s, member.group)


@history()
def in_a_rebalance(s: Session) -> None:
    """While others join a member still commits; while assignments are awaited it does not."""
    topic, name = s.topic(), group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle()
    two.knock()
    until(s, name, "PreparingRebalance")
    former: Fields = {"generation_id_or_member_epoch": 1, "member_id": one.id}
    commit(s, name, topic, 5, **former)
    commit(s, name, topic, 6, **(former | {"member_id": two.id}))
    one.begin_join()
    one.end_join()
    two.end_join()
    commit(s, name, topic, 7, **former)
    commit(s, name, topic, 8, **(former | {"generation_id_or_member_epoch": 2}))
    one.sync({one.id: b"all"})
    commit(s, name, topic, 9, **(former | {"generation_id_or_member_epoch": 2}))
    fetch(s, name)


@history()
def of_a_static_member_that_is_fenced(s: Session) -> None:
    """A member that was fenced by its instance's new member commits no more."""
    topic, name = s.topic(), group(s)
    former = Member(s, name, "former", instance="instance")
    former.settle()
    later = Member(s, name, "later", instance="instance")
    later.protocols = former.protocols
    later.join()
    fields: Fields = {"generation_id_or_member_epoch": 1, "group_instance_id": "instance"}
    commit(s, name, topic, 5, **fields, member_id=former.id)
    commit(s, name, topic, 6, **fields, member_id=later.id)
    commit(s, name, topic, 7, generation_id_or_member_epoch=1, member_id=later.id)
    commit(s, name, topic, 8, **fields, member_id="")
    fetch(s, name)


@history()
def of_a_member_that_left(s: Session) -> None:
    """Its generation is over; commits from outside are taken again."""
    topic = s.topic()
    member = Member(s, group(s))
    member.settle()
    member.leave()
    fields: Fields = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    commit(s, member.group, topic, 5, **fields)
    commit(s, member.group, topic, 6)
    fetch(s, member.group)


# --- members of consumer groups

CONSUMER: Final[dict[str, tuple[int, Fields]]] = {
    **{f"its own epoch in v{version}": (version, {}) for version in (8, 9, 10)},
    "the epoch after": (9, {"after": 1}),
    "an epoch of 0": (9, {"generation_id_or_member_epoch": 0}),
    "no epoch": (9, {"generation_id_or_member_epoch": -1}),
    "no epoch in v8": (8, {"generation_id_or_member_epoch": -1}),
    "neither epoch nor member": (9, {"generation_id_or_member_epoch": -1, "member_id": ""}),
    "neither epoch nor member in v8": (8, {"generation_id_or_member_epoch": -1, "member_id": ""}),
    "no member": (9, {"member_id": ""}),
    "an unknown member": (9, {"member_id": "unknown"}),
    "an instance": (9, {"group_instance_id": "instance"}),
}


@history(CONSUMER)
def of_a_consumer(s: Session, row: tuple[int, Fields]) -> None:
    """A member commits in its epoch, from version 9 on; while a group has members, no other client commits."""
    version, odd = row
    topic = s.topic()
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    fields: Fields = {"generation_id_or_member_epoch": member.epoch, "member_id": member.id}
    given = fields | odd
    given["generation_id_or_member_epoch"] += given.pop("after", 0)
    commit(s, member.group, topic, 5, version=version, **given)
    fetch(s, member.group)


READS: Final[dict[str, Fields]] = {
    "its own epoch": {},
    "an epoch of 0": {"member_epoch": 0},
    "the epoch after": {"after": 1},
    "no epoch": {"member_epoch": -1},
    "an unknown member": {"member_id": "unknown"},
    "an unknown member without an epoch": {"member_id": "unknown", "member_epoch": -1},
    "no member": {"member_id": None},
    "an empty member": {"member_id": ""},
    "neither": {"member_id": None, "member_epoch": -1},
}


@history(READS)
def read_by_a_consumer(s: Session, odd: Fields) -> None:
    """A member reads committed offsets in its epoch; any client reads them without an epoch."""
    topic = s.topic()
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    fields: Fields = {"generation_id_or_member_epoch": member.epoch, "member_id": member.id}
    commit(s, member.group, topic, 5, version=9, **fields)
    asked: Fields = {"group_id": member.group, "member_id": member.id, "member_epoch": member.epoch} | odd
    asked["member_epoch"] += asked.pop("after", 0)
    s.ask("OffsetFetch", 9, groups=[asked | {"topics": None}])


@history()
def of_a_consumer_whose_epoch_rises(s: Session) -> None:
    """A member that does not know the new epoch yet commits in its own epoch."""
    topic, name = s.topic(partitions=2), group(s)
    one, two = Consumer(s, name, "a", topics=[topic]), Consumer(s, name, "b", topics=[topic])
    one.join()
    one.confirm()
    two.join()
    fields: Fields = {"generation_id_or_member_epoch": one.epoch, "member_id": one.id}
    commit(s, name, topic, 5, version=9, **fields)
    one.heartbeat()
    commit(s, name, topic, 6, version=9, **fields)
    one.confirm()
    commit(s, name, topic, 7, version=9, generation_id_or_member_epoch=one.epoch, member_id=one.id)
    fetch(s, name)


@history()
def of_a_consumer_that_left(s: Session) -> None:
    """Its epoch is over; commits from outside are taken again."""
    topic = s.topic()
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    joined = member.epoch
    member.leave()
    fields: Fields = {"generation_id_or_member_epoch": joined, "member_id": member.id}
    commit(s, member.group, topic, 5, version=9, **fields)
    commit(s, member.group, topic, 6)
    commit(s, member.group, topic, 7, version=9)
    fetch(s, member.group)


@history()
def of_a_classic_member_in_a_consumer_group(s: Session) -> None:
    """It commits in its generation, and is refused with the classic protocol's errors."""
    topic = s.topic(partitions=2)
    one = Consumer(s, group(s), topics=[topic])
    one.join()
    one.confirm()
    classic = Member(s, one.group)
    classic.join(protocols=[{"name": "range", "metadata": subscription(topic)}])
    fields: Fields = {"generation_id_or_member_epoch": classic.generation, "member_id": classic.id}
    commit(s, one.group, topic, 5, **fields)
    commit(s, one.group, topic, 6, **(fields | {"generation_id_or_member_epoch": classic.generation + 1}))
    commit(s, one.group, topic, 7, version=9, **fields)
    fetch(s, one.group)


# --- what keeps offsets

KEPT: Final[dict[str, Fields]] = {
    "v2 with a retention": {"retention_time": 1},
    "v4 without one": {"retention_time": -1},
}


@history(KEPT)
def retention_of_a_commit(s: Session, fields: Fields) -> None:
    """Old versions name a retention, after which an offset expires at the coordinator's next look."""
    name, topic = group(s), s.topic()
    commit(s, name, topic, 5, version=2 if fields["retention_time"] == 1 else 4, **fields)
    fetch(s, name)
