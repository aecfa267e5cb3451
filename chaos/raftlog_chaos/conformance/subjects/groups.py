"""Classic groups: members that join, sync, send heartbeats and leave; describing, listing and deleting groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields, Member, group, rebalance, state, subscription, until
from raftlog_chaos.conformance.session import Session

INSTANCE: Final = "instance"
SHORT: Final = {"group.min.session.timeout.ms": "200", "group.max.size": "3"}
"""Settings under which members that stall are noticed at once."""

Act = Callable[[Session, Member], object]


@history({f"v{version}": version for version in range(10)})
def alone(s: Session, version: int) -> None:
    """A member joins, is given what it assigned itself, and leaves; from version 4 on it needs an id first."""
    member = Member(s, group(s), version=version)
    member.join()
    member.heartbeat()
    member.sync({member.id: b"all"})
    member.heartbeat()
    member.describe()
    member.leave()
    member.heartbeat()
    member.describe()


@history({f"v{version}": version for version in (0, 1, 3, 5, 9)})
def a_second_member(s: Session, version: int) -> None:
    """A joining member starts a rebalance; the leader assigns, and a leaving member starts the next one."""
    name = group(s)
    one, two = Member(s, name, "one", version=version), Member(s, name, "two", version=version)
    one.settle()
    two.knock()
    until(s, name, "PreparingRebalance")
    one.heartbeat()
    one.describe()
    one.begin_join()
    rebalance(one, two)
    two.heartbeat()
    one.describe()
    one.leave()
    two.heartbeat()
    two.describe()


JOINS: Final[dict[str, Fields]] = {
    "no group": {"group_id": ""},
    "a long group": {"group_id": "g" * 300},
    "an unknown member": {"member_id": "unknown"},
    "a session of 5999": {"session_timeout": 5999},
    "a session of 6000": {"session_timeout": 6000},
    "a session of 1800000": {"session_timeout": 1_800_000},
    "a session of 1800001": {"session_timeout": 1_800_001},
    "a session of 0": {"session_timeout": 0},
    "a session of -1": {"session_timeout": -1},
    "a rebalance of 0": {"rebalance_timeout": 0},
    "a rebalance of -1": {"rebalance_timeout": -1},
    "no protocol": {"protocols": []},
    "no protocol type": {"protocol_type": ""},
    "neither": {"protocols": [], "protocol_type": ""},
    "a protocol without a name": {"protocols": [{"name": "", "metadata": subscription()}]},
    "another protocol type": {"protocol_type": "connect"},
    "an empty instance": {"group_instance_id": ""},
    "an instance with a slash": {"group_instance_id": "a/b"},
    "an instance of dots": {"group_instance_id": ".."},
    "a long instance": {"group_instance_id": "i" * 250},
    "an instance of 249": {"group_instance_id": "i" * 249},
    "an instance and an unknown member": {"group_instance_id": INSTANCE, "member_id": "unknown"},
    "a reason": {"reason": "for a reason"},
}
"""Odd fields of a request to join, by their name."""


@history(JOINS)
def join(s: Session, odd: Fields) -> None:
    """A request to join that is odd is refused, and makes no group."""
    member = Member(s, group(s))
    member.join(**odd)
    if odd.get("rebalance_timeout", 1) <= 0:
        s.expect("its time to sync has passed", lambda: state(s, member.group) == "Empty")
    if "group_id" not in odd:
        member.describe()


METADATA: Final[dict[str, Sequence[bytes]]] = {
    "a version only": [b"\0\0"],
    "a byte": [b"\0"],
    "a version below 0": [b"\xff\xff\0\0\0\0\xff\xff\xff\xff"],
    "a version that is not known": [b"\x7f\xff\0\0\0\0\xff\xff\xff\xff"],
    "more topics than bytes": [b"\0\0\0\0\0\x02\0\x01a"],
    "topics of -1": [b"\0\0\xff\xff\xff\xff"],
    "words": [b"any words"],
    "nothing": [b""],
    "a protocol twice": [subscription(), subscription()],
}
"""Metadata of a consumer for the protocol `range` that is no subscription, or given twice."""


@history(METADATA)
def metadata(s: Session, given: Sequence[bytes]) -> None:
    """A group takes a consumer's metadata as it is, also if it is no subscription."""
    member = Member(s, group(s))
    member.protocols = [{"name": "range", "metadata": each} for each in given]
    member.knock()
    s.wait("it has joined", lambda: state(s, member.group) == "CompletingRebalance", within_s=1.5)


@history({f"v{version}": version for version in (0, 3, 4, 8)})
def an_unknown_member(s: Session, version: int) -> None:
    """An id that the coordinator did not assign is refused, in an existing group and in a new group."""
    name = group(s)
    Member(s, name, "stranger", version=version).join(member_id="unknown")
    Member(s, name, "one", version=version).settle()
    Member(s, name, "stranger", version=version).join(member_id="unknown")


PROTOCOLS: Final[dict[str, tuple[Sequence[str], Sequence[str], str]]] = {
    "the same": (("range",), ("range",), "consumer"),
    "one in common": (("range", "roundrobin"), ("sticky", "roundrobin"), "consumer"),
    "the first vote counts": (("range", "roundrobin"), ("roundrobin", "range"), "consumer"),
    "none in common": (("range",), ("sticky",), "consumer"),
    "another type": (("range",), ("range",), "connect"),
    "no type": (("range",), ("range",), ""),
    "none": (("range",), (), "consumer"),
}
"""The protocols of two members, and the type of the second."""


@history(PROTOCOLS)
def protocols(s: Session, row: tuple[Sequence[str], Sequence[str], str]) -> None:
    """All members must have a protocol in common; most first choices win."""
    name = group(s)
    mine, others, protocol_type = row
    one, two = Member(s, name, "one", protocols=mine), Member(s, name, "two", protocols=others)
    one.settle()
    two.begin_join(protocol_type=protocol_type)
    if two.end_join()["error_code"] != "MEMBER_ID_REQUIRED":
        one.heartbeat()
        return
    two.begin_join(protocol_type=protocol_type)
    until(s, name, "PreparingRebalance")
    one.begin_join()
    one.end_join()
    two.end_join()
    one.describe()


@history()
def a_leader_that_joins_again(s: Session) -> None:
    """A leader that joins again makes the group rebalance; a follower with the same protocols does not."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle()
    two.knock()
    until(s, name, "PreparingRebalance")
    one.begin_join()
    rebalance(one, two)
    two.join()
    two.sync()
    one.begin_join()
    until(s, name, "PreparingRebalance")
    two.heartbeat()
    two.begin_join()
    rebalance(one, two)


@history()
def a_follower_with_other_metadata(s: Session) -> None:
    """A follower that changes its protocols makes the group rebalance."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle()
    two.knock()
    until(s, name, "PreparingRebalance")
    one.begin_join()
    rebalance(one, two)
    two.begin_join(protocols=[{"name": "range", "metadata": subscription(data=b"other")}])
    until(s, name, "PreparingRebalance")
    one.heartbeat()
    one.begin_join()
    rebalance(one, two)


SYNCS: Final[dict[str, Fields]] = {
    "no group": {"group_id": ""},
    "an unknown group": {"group_id": "a group that is not there"},
    "an unknown member": {"member_id": "unknown"},
    "no member": {"member_id": ""},
    "the generation before": {"generation_id": 0},
    "the generation after": {"generation_id": 2},
    "no generation": {"generation_id": -1},
    "another protocol type": {"protocol_type": "connect"},
    "no protocol type": {"protocol_type": None},
    "another protocol": {"protocol_name": "sticky"},
    "no protocol": {"protocol_name": None},
    "an unknown instance": {"group_instance_id": INSTANCE},
}
"""Odd fields of a leader's SyncGroup."""


@history(SYNCS)
def sync(s: Session, odd: Fields) -> None:
    """A SyncGroup that does not fit the generation is refused; the leader's first one counts."""
    member = Member(s, group(s))
    member.join()
    member.sync({member.id: b"all"}, **odd)
    member.sync({member.id: b"later"})
    member.heartbeat()


@history({"nothing": {}, "another member's": {"other": b"x"}})
def assignments(s: Session, given: Mapping[str, bytes]) -> None:
    """A member that the leader leaves out gets no assignment."""
    member = Member(s, group(s))
    member.join()
    member.sync(given)
    member.describe()


@history()
def an_assignment_twice(s: Session) -> None:
    """The later of two assignments of one member counts."""
    member = Member(s, group(s))
    member.join()
    member.sync(assignments=[{"member_id": member.id, "assignment": each} for each in (b"1", b"2")])


@history()
def a_sync_while_others_join(s: Session) -> None:
    """While members join, a SyncGroup of the generation before is answered with a rebalance."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.join()
    two.knock()
    until(s, name, "PreparingRebalance")
    one.sync({one.id: b"all"})
    one.heartbeat()
    one.begin_join()
    one.end_join()
    two.end_join()
    two.heartbeat()
    two.begin_sync()
    one.leave()
    two.end_sync()


HEARTBEATS: Final[dict[str, Fields]] = {
    "no group": {"group_id": ""},
    "an unknown group": {"group_id": "a group that is not there"},
    "an unknown member": {"member_id": "unknown"},
    "no member": {"member_id": ""},
    "the generation before": {"generation_id": 0},
    "the generation after": {"generation_id": 2},
    "no generation": {"generation_id": -1},
    "an unknown instance": {"group_instance_id": INSTANCE},
    "an empty instance": {"group_instance_id": ""},
}


@history(HEARTBEATS)
def heartbeat(s: Session, odd: Fields) -> None:
    """A heartbeat is of a member and its generation."""
    member = Member(s, group(s))
    member.settle()
    member.heartbeat(**odd)
    member.heartbeat()


LEAVES: Final[dict[str, tuple[int, Fields]]] = {
    "no group": (5, {"group_id": "", "members": [{"member_id": "a"}]}),
    "no group in v2": (2, {"group_id": "", "member_id": "a"}),
    "an unknown group": (5, {"group_id": "a group that is not there", "members": [{"member_id": "a"}]}),
    "an unknown group in v2": (2, {"group_id": "a group that is not there", "member_id": "a"}),
    "an unknown member": (5, {"members": [{"member_id": "unknown"}]}),
    "an unknown member in v2": (2, {"member_id": "unknown"}),
    "no member": (5, {"members": [{"member_id": ""}]}),
    "no member in v2": (2, {"member_id": ""}),
    "no members": (5, {"members": []}),
    "an unknown instance": (5, {"members": [{"member_id": "", "group_instance_id": INSTANCE}]}),
    "two unknown members": (4, {"members": [{"member_id": "x"}, {"member_id": "y"}]}),
}


@history(LEAVES)
def leave(s: Session, row: tuple[int, Fields]) -> None:
    """Members leave independently; an unknown member is an error."""
    version, odd = row
    member = Member(s, group(s))
    member.settle()
    fields: Fields = {"group_id": member.group}
    s.ask("LeaveGroup", version, **(fields | odd))
    member.heartbeat()


@history({f"v{version}": version for version in (3, 4, 5)})
def several_that_leave(s: Session, version: int) -> None:
    """One request takes several members out, also twice the same."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle()
    two.knock()
    until(s, name, "PreparingRebalance")
    one.begin_join()
    rebalance(one, two)
    ids = (two.id, "unknown", one.id, two.id)
    s.ask("LeaveGroup", version, group_id=name, members=[{"member_id": each} for each in ids])
    one.describe()


# --- static members


def static(s: Session, name: str, word: str, version: int = 9) -> Member:
    """Return a static member that has something."""
    member = Member(s, name, word, instance=INSTANCE, version=version)
    member.settle()
    return member


@history({f"v{version}": version for version in (5, 7, 8, 9)})
def a_static_member_that_returns(s: Session, version: int) -> None:
    """It gets a new id in the same generation, and its former id is fenced."""
    name = group(s)
    former = static(s, name, "former", version)
    later = Member(s, name, "later", instance=INSTANCE, version=version)
    later.protocols = former.protocols
    later.join()
    later.sync({later.id: b"again"})
    former.heartbeat()
    later.heartbeat()
    former.sync({})
    former.leave()
    later.describe()


@history()
def a_static_member_that_returns_with_other_metadata(s: Session) -> None:
    """The group rebalances for it."""
    name = group(s)
    static(s, name, "former")
    later = Member(s, name, "later", instance=INSTANCE)
    later.join()
    later.sync({later.id: b"again"})
    later.describe()


@history()
def two_at_once_with_one_instance(s: Session) -> None:
    """The later member fences the earlier member that still joins."""
    name = group(s)
    leader = Member(s, name, "leader")
    leader.settle()
    former = Member(s, name, "former", instance=INSTANCE)
    later = Member(s, name, "later", instance=INSTANCE)
    former.begin_join()
    until(s, name, "PreparingRebalance")
    later.begin_join()
    former.end_join()
    leader.begin_join()
    leader.end_join()
    later.end_join()


STATIC: Final[dict[str, Act]] = {
    "a heartbeat with another id": lambda s, m: m.heartbeat(member_id="other"),
    "a heartbeat without an instance": lambda s, m: m.heartbeat(group_instance_id=None),
    "a heartbeat of another instance": lambda s, m: m.heartbeat(group_instance_id="other"),
    "a sync with another id": lambda s, m: m.sync({}, member_id="other"),
    "a join with another id": lambda s, m: m.join(member_id="other"),
    "a join with its id": lambda s, m: m.join(),
    "a leave by its instance": lambda s, m: s.ask(
        "LeaveGroup", 5, group_id=m.group, members=[{"member_id": "", "group_instance_id": INSTANCE}]
    ),
    "a leave by its id": lambda s, m: s.ask("LeaveGroup", 5, group_id=m.group, members=[{"member_id": m.id}]),
    "a leave with another id": lambda s, m: s.ask(
        "LeaveGroup", 5, group_id=m.group, members=[{"member_id": "other", "group_instance_id": INSTANCE}]
    ),
}


@history(STATIC)
def of_a_static_member(s: Session, act: Act) -> None:
    """An instance belongs to one member id; requests with another id are fenced."""
    member = static(s, group(s), "")
    act(s, member)
    member.heartbeat()
    member.describe()


# --- members that stall


@history(settings=SHORT)
def silence(s: Session) -> None:
    """A member that is silent for its session is taken out, and its id unknown."""
    member = Member(s, group(s))
    member.settle(session_timeout=300)
    until(s, member.group, "Empty")
    member.heartbeat()
    member.sync()
    member.join()


@history(settings=SHORT)
def silence_in_a_rebalance(s: Session) -> None:
    """A member that does not join again in the rebalance timeout is taken out; the others go on."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle(rebalance_timeout=500)
    two.join(rebalance_timeout=500)
    two.sync({two.id: b"all"})
    one.heartbeat()
    two.describe()


@history(settings=SHORT)
def a_leader_that_does_not_assign(s: Session) -> None:
    """A leader that does not sync in the rebalance timeout is taken out; the others are to join again."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle(rebalance_timeout=800)
    two.begin_join(rebalance_timeout=800)
    two.end_join()
    two.begin_join(rebalance_timeout=800)
    until(s, name, "PreparingRebalance")
    one.begin_join(rebalance_timeout=800)
    one.end_join()
    two.end_join()
    two.sync()
    one.heartbeat()
    two.heartbeat()


@history(settings=SHORT)
def a_member_that_has_only_an_id(s: Session) -> None:
    """A rebalance waits for a member that was given an id, until its session ends; then the id is unknown."""
    name = group(s)
    one, two = Member(s, name, "one"), Member(s, name, "two")
    one.settle()
    two.begin_join(session_timeout=400)
    two.end_join()
    one.begin_join()
    until(s, name, "PreparingRebalance")
    one.end_join()
    two.begin_join()
    two.end_join()


@history(settings=SHORT)
def a_static_member_that_is_silent(s: Session) -> None:
    """A static member is taken out after its session too, and its instance free."""
    name = group(s)
    member = Member(s, name, "former", instance=INSTANCE)
    member.settle(session_timeout=300)
    until(s, name, "Empty")
    member.heartbeat()
    Member(s, name, "later", instance=INSTANCE).join()


@history({"v3": 3, "v9": 9}, settings=SHORT)
def a_full_group(s: Session, version: int) -> None:
    """A group takes no more members than `group.max.size`."""
    name = group(s)
    one, *others = [Member(s, name, str(number), version=version) for number in range(3)]
    one.settle()
    for each in others:
        each.knock()
    s.wait("all are there", lambda: len(members_of(s, name)) == 3)
    one.begin_join()
    for each in (*others[::-1], one):
        each.end_join()
    last = Member(s, name, "last", version=version)
    last.join()
    one.heartbeat()
    others[0].leave()
    last.knock()
    s.wait("it is there", lambda: len(members_of(s, name)) == 3)


def members_of(s: Session, name: str) -> Sequence[Any]:
    """Look at the members of a group."""
    found: Sequence[Any] = s.query("DescribeGroups", 5, groups=[name])["groups"][0]["members"]
    return found
