"""Members of the consumer protocol that leave, and static members, which come back."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Consumer, Fields, describe, group
from raftlog_chaos.conformance.session import Session

INSTANCE: Final = "instance"

LEAVES: Final[dict[str, Fields]] = {
    "-1": {"member_epoch": -1},
    "-2": {"member_epoch": -2},
    "an unknown member": {"member_epoch": -1, "member_id": "unknown"},
    "an unknown member that returns": {"member_epoch": -2, "member_id": "unknown"},
    "an unknown instance": {"member_epoch": -2, "instance_id": "other"},
    "another member of the instance": {"member_epoch": -1, "member_id": "other", "instance_id": INSTANCE},
    "another member of the instance that returns": {
        "member_epoch": -2,
        "member_id": "other",
        "instance_id": INSTANCE,
    },
    "without its instance": {"member_epoch": -1, "instance_id": None},
}


@history(LEAVES)
def leave_of_a_static_member(s: Session, odd: Fields) -> None:
    """-1 takes a static member out; with -2 its partitions wait for its return."""
    topic = s.topic(partitions=2)
    member = Consumer(s, group(s), "former", topics=[topic], instance=INSTANCE)
    member.join()
    member.confirm()
    joined = member.epoch
    member.heartbeat(**odd)
    describe(s, member.group)
    later = Consumer(s, member.group, "later", topics=[topic], instance=INSTANCE)
    later.join()
    later.confirm()
    member.epoch = joined
    member.heartbeat()
    describe(s, member.group)


@history()
def an_instance_that_is_in_use(s: Session) -> None:
    """An instance that has not left is not taken over."""
    topic = s.topic()
    member = Consumer(s, group(s), "former", topics=[topic], instance=INSTANCE)
    member.join()
    later = Consumer(s, member.group, "later", topics=[topic], instance=INSTANCE)
    later.join()
    member.heartbeat()
    member.heartbeat(member_id="later")
    member.heartbeat(instance_id=None)
    member.heartbeat(instance_id="other")


@history()
def a_static_member_that_returns_changed(s: Session) -> None:
    """A static member that returns with another subscription raises the epoch."""
    topic, other = s.topic(), s.topic("other")
    member = Consumer(s, group(s), "former", topics=[topic], instance=INSTANCE)
    member.join()
    member.confirm()
    member.leave(-2)
    later = Consumer(s, member.group, "later", topics=[other], instance=INSTANCE)
    later.join()
    later.confirm()
    describe(s, member.group)


@history()
def a_static_member_with_its_own_id(s: Session) -> None:
    """A static member returns with its former id too."""
    topic = s.topic()
    member = Consumer(s, group(s), "former", topics=[topic], instance=INSTANCE)
    member.join()
    member.leave(-2)
    member.join()
    member.confirm()
    describe(s, member.group)


@history()
def left_and_joined_again(s: Session) -> None:
    """A member that left joins again with its id, in the group's next epoch."""
    topic = s.topic(partitions=2)
    member = Consumer(s, group(s), topics=[topic])
    member.join()
    member.leave()
    member.leave()
    member.join()
    member.confirm()
    describe(s, member.group)
