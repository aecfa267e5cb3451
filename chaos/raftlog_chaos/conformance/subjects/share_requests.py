"""Requests of share groups in detail (KIP-932): which check comes first, and which partitions an answer names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session
from raftlog_chaos.conformance.subjects.share_groups import ShareMember, share_group
from raftlog_chaos.conformance.subjects.share_sessions import (
    ACCEPT,
    FINAL,
    GAP,
    MADE_UP_ID,
    REJECT,
    RELEASE,
    RENEW,
    SHORT_WAIT_MS,
    WAIT_MS,
    Range,
    opened,
    other,
    ready,
)

MISSING: Final = 99
"""A partition that no topic has."""

PASSED: Final[dict[str, tuple[Range, ...]]] = {
    "again": ((0, 1, [ACCEPT]),),
    "twice": ((0, 1, [ACCEPT]), (0, 1, [ACCEPT])),
    "overlapping": ((0, 1, [ACCEPT]), (1, 3, [ACCEPT])),
    "out of order": ((1, 1, [ACCEPT]), (0, 0, [ACCEPT])),
    "backwards": ((1, 0, [ACCEPT]),),
    "in part": ((1, 3, [RELEASE]),),
    "of another type": ((0, 1, [REJECT]),),
}
"""What is acknowledged after offsets 0 and 1 were accepted, by its name."""


@history(PASSED)
def passed(s: Session, acknowledged: tuple[Range, ...]) -> None:
    """Offsets before the start offset are acknowledged without effect, in batches that are in order."""
    member = opened(s)
    member.acknowledge((0, 1, [ACCEPT]))
    member.acknowledge(*acknowledged)
    other(s, member).fetch(max_wait=100)


ORDERS: Final[dict[str, tuple[Range, ...]]] = {
    "by one offset": ((0, 2, [ACCEPT]), (2, 4, [ACCEPT])),
    "by two offsets": ((0, 2, [ACCEPT]), (1, 4, [ACCEPT])),
    "a range in another": ((0, 4, [ACCEPT]), (1, 1, [ACCEPT])),
    "the last offset of a range": ((0, 4, [ACCEPT]), (4, 4, [ACCEPT])),
    "the same range of two": ((0, 1, [ACCEPT]), (0, 1, [ACCEPT])),
    "a gap and a gap": ((0, 0, [GAP]), (0, 0, [GAP])),
    "released twice": ((0, 0, [RELEASE]), (0, 0, [RELEASE])),
    "of other types": ((0, 0, [RELEASE]), (0, 0, [ACCEPT])),
    "then too far": ((0, 1, [ACCEPT]), (1, 9, [ACCEPT])),
    "too far, then out of order": ((0, 9, [ACCEPT]), (1, 1, [ACCEPT])),
    "below zero": ((-2, 1, [ACCEPT]),),
}
"""Two ranges of a member that holds offsets 0 to 4, by how they overlap."""


@history(ORDERS)
def overlap(s: Session, acknowledged: tuple[Range, ...]) -> None:
    """Ranges that share one offset find its state; others that overlap are malformed."""
    member = opened(s)
    member.acknowledge(*acknowledged)
    member.fetch(adds=False)


@history({"accepted": ACCEPT, "renewed": RENEW})
def overlap_of_renewals(s: Session, type_: int) -> None:
    """An offset that is renewed and then acknowledged in one request."""
    member = opened(s)
    member.acknowledge((0, 2, [RENEW]), (2, 4, [type_]), is_renew_ack=True)
    member.acknowledge((2, 2, [ACCEPT]))


FIRST_ERRORS: Final[dict[str, tuple[Range, ...]]] = {
    "not held, then too far": ((0, 0, [ACCEPT]), (3, 9, [ACCEPT])),
    "not held, then malformed": ((0, 0, [ACCEPT]), (3, 3, [])),
    "held, then not held": ((1, 1, [ACCEPT]), (2, 2, [ACCEPT])),
}
"""Ranges of a member that holds 1 and 3, by the errors in them."""


@history(FIRST_ERRORS)
def first_error(s: Session, acknowledged: tuple[Range, ...]) -> None:
    """Malformed ranges are found before any record is looked at, and of others the first error counts."""
    member = opened(s)
    member.acknowledge((0, 0, [ACCEPT]), (2, 2, [RELEASE]))
    member.acknowledge((4, 4, [RELEASE]))
    member.acknowledge(*acknowledged)
    member.acknowledge((1, 1, [ACCEPT]))


@history()
def nothing_in_flight(s: Session) -> None:
    """Acknowledgements at and behind the end, before anything is acquired and after everything is accepted."""
    member = ready(s)
    member.fetch(max_bytes=0, max_wait=100)
    member.acknowledge((0, 0, [ACCEPT]))
    member.acknowledge((0, 4, [ACCEPT]))
    member.fetch(adds=False, max_wait=WAIT_MS)
    member.acknowledge((0, 4, [ACCEPT]))
    member.acknowledge((4, 4, [ACCEPT]))
    member.acknowledge((5, 5, [ACCEPT]))
    member.acknowledge((4, 5, [ACCEPT]))


# --- partitions


def _named(index: int, *ranges: Range) -> Message:
    batches = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
        for first, last, types in ranges
    ]
    return {"partition_index": index, "acknowledgement_batches": batches}


MALFORMED: Final[Range] = (1, 0, [ACCEPT])
GOOD: Final[Range] = (0, 0, [ACCEPT])

NAMED: Final[dict[str, tuple[bool, Sequence[Message]]]] = {
    "without batches": (True, [_named(0)]),
    "missing": (True, [_named(MISSING, GOOD)]),
    "missing, without batches": (True, [_named(MISSING)]),
    "missing, malformed": (True, [_named(MISSING, MALFORMED)]),
    "below zero": (True, [_named(-1, GOOD)]),
    "of a missing topic, malformed": (False, [_named(0, MALFORMED)]),
    "of a missing topic, without batches": (False, [_named(0)]),
    "twice": (True, [_named(0, (0, 0, [ACCEPT])), _named(0, (1, 1, [ACCEPT]))]),
    "twice, first malformed": (True, [_named(0, MALFORMED), _named(0, (1, 1, [ACCEPT]))]),
    "once with and once without batches": (True, [_named(0, GOOD), _named(0)]),
    "good and missing": (True, [_named(0, GOOD), _named(MISSING)]),
}
"""Partitions of a request whose member holds offsets 0 to 4 of partition 0: of its topic, or of a made-up one."""


@history(
    {
        f"{name} of {api}": (*row, api)
        for name, row in NAMED.items()
        for api in ("acknowledge", "fetch")
        if row[0] or api == "acknowledge"
    }
)
def partition(s: Session, row: tuple[bool, Sequence[Message], str]) -> None:
    """Partitions with and without acknowledgements, that are there or not, and that are named twice."""
    is_there, partitions, api = row
    member = opened(s)
    topics = [{"topic_id": s.topic_id(member.topic) if is_there else MADE_UP_ID, "partitions": partitions}]
    if api == "acknowledge":
        member.acknowledge(topics=topics)
    else:
        member.fetch(topics=topics, max_wait=100)
    member.acknowledge((1, 2, [ACCEPT]))


@history()
def at_the_end_of_a_session(s: Session) -> None:
    """The last request of a session names the partitions that it acknowledges."""
    member = opened(s)
    member.acknowledge(epoch=FINAL)
    member.fetch(epoch=0, max_wait=100)
    member.fetch(epoch=FINAL)


@history({"adds": False, "adds and acknowledges": True})
def fetch_at_the_end(s: Session, acknowledges: bool) -> None:
    """A ShareFetch that ends its session and names partitions."""
    member = opened(s)
    acknowledged = (GOOD,) if acknowledges else ()
    member.fetch(*acknowledged, epoch=FINAL, max_wait=100)
    other(s, member).fetch(max_wait=WAIT_MS)


@history()
def forgotten_and_named(s: Session) -> None:
    """A partition that a fetch forgets and names."""
    member = ready(s)
    member.fetch(max_wait=WAIT_MS)
    member.acknowledge((0, 4, [RELEASE]))
    member.fetch(forgets=True, max_wait=100)
    member.fetch(adds=False, max_wait=100)


@history()
def nothing_is_named(s: Session) -> None:
    """A first fetch without partitions, and the next that adds one."""
    member = ready(s)
    member.fetch(adds=False, max_wait=100)
    member.acknowledge(GOOD)
    member.fetch(max_wait=WAIT_MS)


# --- limits


LIMITS: Final[dict[str, Message]] = {
    "fewer bytes than none": {"max_bytes": -1},
    "no bytes and no wait": {"max_bytes": 0, "max_wait": 0},
    "no bytes at least or at most": {"max_bytes": 0, "min_bytes": 0},
    "fewer bytes at least than none": {"min_bytes": -1},
    "more bytes at least than there are": {"min_bytes": 1 << 20},
    "more bytes at least than at most": {"min_bytes": 1 << 20, "max_bytes": 100},
    "a wait below zero": {"max_wait": -1},
    "batches below none": {"batch_size": -1},
    "no records in the exact mode": {"max_records": 0, "share_acquire_mode": 1},
}


@history(LIMITS)
def limit(s: Session, fields: Message) -> None:
    """Limits at their ends, in a later fetch of a session, and what they leave for another member."""
    member = ready(s)
    member.fetch(adds=False, max_wait=0)
    given: Fields = {"max_wait": SHORT_WAIT_MS} | fields
    member.fetch(**given)
    other(s, member).fetch(max_wait=SHORT_WAIT_MS)


RENEWALS: Final[dict[str, Message]] = {
    "no bytes": {"max_bytes": 0, "min_bytes": 1, "max_records": 0},
    "no records": {"max_bytes": 1, "min_bytes": 0, "max_records": 0},
    "a wait": {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait": 1},
    "nothing": {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait": 0},
}


@history(RENEWALS)
def renewing_fetch(s: Session, fields: Message) -> None:
    """A fetch that renews asks for nothing else; which epoch it takes shows the next request."""
    member = opened(s)
    member.fetch((0, 4, [RENEW]), adds=False, is_renew_ack=True, **fields)
    member.acknowledge(GOOD)


WRONG_TWICE: Final[dict[str, Message]] = {
    "a mode": {"share_acquire_mode": 9},
    "an epoch and a renewal": {"share_session_epoch": 7, "is_renew_ack": True},
    "no member and a renewal": {"member_id": "", "is_renew_ack": True},
    "a renewal and a mode": {"share_acquire_mode": 9, "is_renew_ack": True},
    "an epoch and a mode": {"share_session_epoch": 7, "share_acquire_mode": 9},
    "an epoch and no member": {"share_session_epoch": 7, "member_id": ""},
    "an epoch and no session": {"share_session_epoch": 7, "member_id": "z"},
}


@history(WRONG_TWICE)
def wrong_twice(s: Session, fields: Message) -> None:
    """Which of two errors a fetch is answered with."""
    member = opened(s)
    member.fetch(adds=False, **fields)
    member.acknowledge(GOOD)


# --- members


def _beat(group: str, **fields: Any) -> Fields:
    """Return the fields of a heartbeat of member a without changes."""
    given = {"group_id": group, "member_id": "a", "member_epoch": 0, "subscribed_topic_names": None}
    return given | fields


BEATS: Final[dict[str, Fields]] = {
    "a stranger in epoch 1": {"member_id": "b", "member_epoch": 1},
    "a stranger leaves": {"member_id": "b", "member_epoch": -1},
    "a stranger joins without topics": {"member_id": "b"},
    "a stranger joins with an empty subscription": {"member_id": "b", "subscribed_topic_names": []},
    "a member joins again": {"subscribed_topic_names": []},
    "a member in epoch -2": {"member_epoch": -2},
    "a member without an id leaves": {"member_id": "", "member_epoch": -1},
}


@history(BEATS)
def heartbeat(s: Session, fields: Fields) -> None:
    """Heartbeats to a group that has a member."""
    member = ShareMember(s, share_group(s), s.topic())
    member.settle()
    answer = s.query("ShareGroupHeartbeat", 1, **_beat(member.group, **fields))
    s.observe("the heartbeat", {name: answer[name] for name in ("error_code", "heartbeat_interval")})


@history()
def leaves_twice(s: Session) -> None:
    """A member leaves, and leaves again; a group that is not there is left."""
    member = ShareMember(s, share_group(s), s.topic())
    member.settle()
    member.leave()
    member.leave()
    s.ask("ShareGroupHeartbeat", 1, **_beat(s.name("missing"), member_epoch=-1))


# --- administrators


def _read_group(s: Session) -> tuple[str, str]:
    """Return a group without members that has read a topic, and the topic, which has two partitions."""
    topic = s.topic(partitions=2)
    s.produce(topic, s.batch(b"0", b"1", b"2"))
    member = ShareMember(s, share_group(s), topic)
    member.settle()
    member.leave()
    return member.group, topic


ALTERED: Final[dict[str, list[tuple[str, list[tuple[int, int]]]]]] = {
    "nothing": [],
    "no partitions": [("topic", [])],
    "below zero": [("topic", [(0, -1)])],
    "far below zero": [("topic", [(0, -2)])],
    "beyond the end": [("topic", [(0, 1_000)])],
    "a partition twice": [("topic", [(0, 1), (0, 2)])],
    "a topic twice": [("topic", [(0, 1)]), ("topic", [(1, 1)])],
    "a partition that is missing": [("topic", [(0, 1), (MISSING, 1)])],
    "a partition below zero": [("topic", [(-1, 1)])],
    "no topic name": [("", [(0, 1)])],
    "another topic": [("missing", [(0, 1)]), ("topic", [(0, 2)])],
}


@history(ALTERED)
def offsets_altered(s: Session, rows: list[tuple[str, list[tuple[int, int]]]]) -> None:
    """Start offsets that are odd, and where the group is after."""
    group, topic = _read_group(s)
    names = {"topic": topic, "missing": s.name("missing"), "": ""}
    s.ask(
        "AlterShareGroupOffsets",
        0,
        group_id=group,
        topics=[
            {
                "topic_name": names[name],
                "partitions": [{"partition_index": index, "start_offset": offset} for index, offset in parts],
            }
            for name, parts in rows
        ],
    )
    s.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])


DESCRIBED: Final[dict[str, list[tuple[str, list[int]]]]] = {
    "no partitions": [("topic", [])],
    "a partition twice": [("topic", [0, 0])],
    "a topic twice": [("topic", [0]), ("topic", [1])],
    "no topic name": [("", [0])],
    "a topic that is missing": [("missing", [0, 1]), ("topic", [0])],
}


@history(DESCRIBED)
def offsets_described(s: Session, rows: list[tuple[str, list[int]]]) -> None:
    """Each partition that is named has an answer."""
    group, topic = _read_group(s)
    names = {"topic": topic, "missing": s.name("missing"), "": ""}
    topics = [{"topic_name": names[name], "partitions": parts} for name, parts in rows]
    s.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": topics}])


@history({"a missing group": False, "no group": True})
def offsets_of_no_group(s: Session, is_empty: bool) -> None:
    """Partitions of a group that is not there, and of a group and itself."""
    group, topic = "" if is_empty else s.name("missing"), s.topic()
    topics = [{"topic_name": topic, "partitions": [0]}]
    s.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": topics}])
    s.ask("DescribeShareGroupOffsets", 1, groups=[])


DELETED: Final[dict[str, list[str]]] = {
    "nothing": [],
    "a topic twice": ["topic", "topic"],
    "no topic name": [""],
    "a topic that is missing": ["missing", "topic"],
    "a topic that was not read": ["other"],
}


@history(DELETED)
def offsets_deleted(s: Session, rows: list[str]) -> None:
    """Topics that are odd, and where the group is after."""
    group, topic = _read_group(s)
    names = {"topic": topic, "missing": s.name("missing"), "other": s.topic("other"), "": ""}
    s.ask("DeleteShareGroupOffsets", 0, group_id=group, topics=[{"topic_name": names[each]} for each in rows])
    s.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])
