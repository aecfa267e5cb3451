"""The words of drawn histories about several members of one group of the classic protocol.

Requests to join and to sync wait for other members. A word sends a request, and then takes each answer that is due. A
request that is not answered by then waits rightly, by the group's state. So no answer depends on which side is faster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from raftlog.testing.progress import patient
from raftlog_chaos.conformance.generation.plan import OF_TOPICS, Step, Theme, Word, mostly
from raftlog_chaos.conformance.generation.scene import CLASSIC_GROUP, Scene
from raftlog_chaos.conformance.members import Fields, Member, subscription
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session

MEMBERS: Final[Mapping[str, str | None]] = {
    "one": None,
    "two": None,
    "three": None,
    "static": "instance",
    "static again": "instance",
}
"""Members and their group instance ids. Two have the same id: the later member replaces the other."""
SESSION_MS: Final = 60_000
INSTANCES: Final = 5
"""The first version of JoinGroup with group instance ids."""
SEVERAL: Final = 3
"""The first version of LeaveGroup that can name an instance."""
WAITS_IN: Final = {"JoinGroup": "PreparingRebalance", "SyncGroup": "CompletingRebalance"}
"""The state of a group in which a request waits."""
DUE_S: Final = 10.0
PAUSE_S: Final = 0.01
CALM: Final = 4
"""So often in a row all unanswered requests must be seen to wait rightly."""
NO_MEMBERS: Final = {"Empty": "no members", "Dead": "no members"}
"""A member id that was given out makes an empty group in Kafka, and none here."""


class Waiting(Member):
    """A member with requests that may wait."""

    word = ""
    pending = ""
    """The API of its request that has no answer yet."""
    is_refused = False
    """The coordinator refuses that request at once."""
    is_inside = False
    """The group has it, as far as was seen."""
    leader = ""
    protocol: str | None = "range"


class ClassicWords(Scene):
    """Members that join, sync, send heartbeats, commit and leave, in all orders."""

    def __init__(self, s: Session, topic: str, partitions: int) -> None:
        super().__init__(s, topic, partitions)
        self._members: dict[str, Waiting] = {}
        self._static_ids: set[str] = set()
        self._leader = ""
        self._shares = 0

    # --- requests that wait

    def classic_rebalance(self, *, newcomers: list[str], version: int, last: str, syncing: str) -> None:
        """Have members join, and all others again that must, and then sync."""
        joining: Fields = {"version": version, "protocols": ["range"], "data": "", "claim": "none"}
        for each in newcomers:
            self.classic_join(member=each, **joining)
        for each in sorted(MEMBERS, key=lambda each: each == last):
            if self._has_joined(each) and self._described()["group_state"] == "PreparingRebalance":
                self.classic_join(member=each, **joining)
        leading = [each for each in MEMBERS if self._has_joined(each) and self._leads(self._members[each])]
        others = [each for each in MEMBERS if self._has_joined(each) and each not in leading]
        orders = {"leader first": leading + others, "leader last": others + leading, "without leader": others}
        for each in orders[syncing]:
            self.classic_sync(member=each, generation="own")

    def _has_joined(self, member: str) -> bool:
        return member in self._members and self._members[member].is_inside

    def classic_join(self, *, member: str, version: int, protocols: list[str], data: str, claim: str) -> None:
        """Send JoinGroup, with the coordinator's member id if it requires an id."""
        joining = self._member_of(member, version)
        joining.protocols = [
            {"name": each, "metadata": subscription(self.topic, data=data.encode())} for each in protocols
        ]
        if claim == "unknown":
            self._join_as_stranger(joining, version)
        elif not joining.pending:
            is_required = self._join(joining, joining.id if claim == "own" or joining.is_inside else "")
            if is_required:
                self._join(joining, joining.id)

    def _join(self, joining: Waiting, member_id: str) -> bool:
        """Return whether the answer came and requires the member's id."""
        joining.id = member_id
        joining.begin_join(session_timeout=SESSION_MS, rebalance_timeout=SESSION_MS)
        joining.pending, joining.is_refused = "JoinGroup", False
        if joining.instance and not member_id:
            for each in self._members.values():
                each.is_inside &= each.instance != joining.instance
        self._take_answers()
        return not joining.pending and not joining.is_inside and bool(joining.id) and not member_id

    def _join_as_stranger(self, joining: Waiting, version: int) -> None:
        self.s.ask(
            "JoinGroup",
            max(version, INSTANCES),
            group_id=joining.group,
            session_timeout=SESSION_MS,
            rebalance_timeout=SESSION_MS,
            member_id="unknown",
            group_instance_id=joining.instance,
            protocol_type="consumer",
            protocols=[{"name": each, "metadata": subscription(self.topic)} for each in ("range", "sticky")],
        )

    def classic_sync(self, *, member: str, generation: str) -> None:
        """Send a request to sync; the leader's has a share for each member."""
        syncing = self._members.get(self._present(member))
        if syncing is None or syncing.pending or not syncing.id:
            return
        self._shares += 1
        inside = [each for each in self._members.values() if each.is_inside]
        shares = {each.id: f"share {self._shares} of {each.word}".encode() for each in inside}
        syncing.begin_sync(
            shares if self._leads(syncing) else {},
            generation_id=_generation(syncing, generation),
            protocol_name=syncing.protocol,
        )
        syncing.pending, syncing.is_refused = "SyncGroup", generation != "own"
        self._take_answers()

    def _take_answers(self) -> None:
        """Take each answer that is due, in the order of the members' names, and see which members are in the group."""
        sent = [each for each in self._members.values() if each.pending]
        deadline, calm = time.monotonic() + patient(DUE_S), 0
        while calm < CALM and time.monotonic() < deadline:
            missing = [each for each in sent if not self.s.has_answer(on=each.word)]
            if not missing:
                break
            state = self._described()["group_state"]
            calm = 0 if any(self._is_due(each, state) for each in missing) else calm + 1
            time.sleep(PAUSE_S)
        found = self._described()
        self.s.observe("the group", {"state": NO_MEMBERS.get(found["group_state"], found["group_state"])})
        self._name_static_members(found["members"])
        for each in sorted(sent, key=lambda each: each.word):
            if self.s.has_answer(on=each.word):
                self._take_answer(each)
        inside = {each["member_id"] for each in found["members"]}
        for each in self._members.values():
            each.is_inside = each.id in inside

    def _described(self) -> Message:
        """Look at the group."""
        answer = self.s.query("DescribeGroups", 5, groups=[self.name(CLASSIC_GROUP)])
        return dict(answer["groups"][0])

    def _is_due(self, each: Waiting, state: str) -> bool:
        if each.is_refused or state != WAITS_IN[each.pending]:
            return True
        if each.pending == "SyncGroup":
            return self._leads(each)
        return all(other.pending == "JoinGroup" for other in self._members.values() if other.is_inside)

    def _take_answer(self, each: Waiting) -> None:
        answer = each.end_sync() if each.pending == "SyncGroup" else each.end_join()
        each.pending = ""
        if answer.get("error_code") == "NONE" and "leader" in answer:
            each.leader = self._leader = answer["leader"]
            each.protocol = answer.get("protocol_name")

    def _name_static_members(self, found: Sequence[Message]) -> None:
        """Have the ids of static members shown in the order in which they are given out.

        A static member is given no id before it joins, so a list of members may be the first to show it.
        """
        for each in found:
            if each["group_instance_id"] and each["member_id"] not in self._static_ids:
                self._static_ids.add(each["member_id"])
                self.s.call(each["member_id"], f"static-member-{len(self._static_ids)}")

    def _leads(self, each: Waiting) -> bool:
        return bool(each.id) and each.leader == each.id

    def _member_of(self, member: str, version: int) -> Waiting:
        if member not in self._members:
            instance = MEMBERS[member]
            number = max(version, INSTANCES) if instance else version
            made = Waiting(self.s, self.name(CLASSIC_GROUP), member, version=number, instance=instance)
            made.word = member
            self._members[member] = made
        return self._members[member]

    # --- requests that do not

    def classic_heartbeat(self, *, member: str, version: int, generation: str, claim: str) -> None:
        """Send a heartbeat."""
        self.s.ask(
            "Heartbeat",
            version,
            group_id=self.name(CLASSIC_GROUP),
            **self.as_member(member, generation, claim),
        )

    def classic_commit(
        self, *, member: str, version: int, generation: str, claim: str, offset: int, partition: int
    ) -> None:
        """Commit an offset as a member."""
        self.groups.add(CLASSIC_GROUP)
        fields = self.as_member(member, generation, claim)
        self.s.ask(
            "OffsetCommit",
            version,
            group_id=self.name(CLASSIC_GROUP),
            generation_id_or_member_epoch=fields.pop("generation_id"),
            topics=self.offsets_by_id(partition, offset),
            **fields,
        )

    def as_member(self, member: str, generation: str, claim: str) -> Fields:
        """Return the fields in which a request says which member sends it."""
        found = self._members.get(self._present(member))
        return {
            "generation_id": _generation(found, generation) if found else -1,
            "member_id": found.id if found and claim == "own" else "unknown" if claim == "unknown" else "",
            "group_instance_id": found.instance if found else MEMBERS[member],
        }

    def _present(self, member: str) -> str:
        """Return a member that has joined before; if it has not, another member of the group."""
        has_joined = member in self._members and self._members[member].id
        inside = (name for name, each in self._members.items() if each.is_inside)
        return member if has_joined else next(inside, member)

    def classic_leave(self, *, member: str, version: int, by: str) -> None:
        """Leave, by the member's id, its instance's or both. A waiting member stays: Kafka drops its SyncGroup.

        After a leader left, chance decides which of the others leads. So the leader leaves last, and another member in
        its place.
        """
        name = self._may_leave(self._present(member))
        leaving = self._members.get(name)
        if any(each.pending for each in self._members.values() if each.instance or each is leaving):
            return
        member_id = leaving.id if leaving else ""
        by_instance = MEMBERS[name] is not None and by != "id" and version >= SEVERAL
        one = {
            "member_id": "" if by_instance and by == "instance" else member_id,
            "group_instance_id": MEMBERS[name] if by_instance else None,
        }
        group = self.name(CLASSIC_GROUP)
        self.s.ask("LeaveGroup", version, group_id=group, member_id=member_id, members=[one])
        self._take_answers()

    def _may_leave(self, member: str) -> str:
        there = [
            name for name, each in self._members.items() if each.is_inside or each.pending == "JoinGroup"
        ]
        leaders = self._static_ids if self._leader in self._static_ids else {self._leader}
        leading = [name for name in there if self._members[name].id in leaders]
        others = [name for name in there if name not in leading]
        return others[0] if member in leading and others else member

    def classic_describe(self, *, version: int) -> None:
        """Describe the group."""
        answer = self.s.ask("DescribeGroups", version, groups=[self.name(CLASSIC_GROUP)])
        self.s.remark(f"of a group that is {answer['groups'][0]['group_state']}")

    def classic_delete(self) -> None:
        """Delete the group, if it is empty."""
        self.delete_group(CLASSIC_GROUP)

    def classic_offset_delete(self, *, partitions: list[int]) -> None:
        """Delete offsets of the group."""
        self.delete_offsets(CLASSIC_GROUP, partitions)


def _generation(member: Waiting, generation: str) -> int:
    return {"own": member.generation, "before": member.generation - 1, "after": member.generation + 1}.get(
        generation, -1
    )


# --- drawing


def _rebalance(random: Random) -> Mapping[str, Any]:
    return {
        "newcomers": random.sample(tuple(MEMBERS), random.choice((1, 1, 2, 3))),
        "version": _join_version(random),
        "last": random.choice(tuple(MEMBERS)),
        "syncing": random.choice(("leader first", "leader last", "leader last", "without leader")),
    }


def _join_version(random: Random) -> int:
    return random.choice((4, 5, 6, 7, 8, 9, 9))


def _join(random: Random) -> Mapping[str, Any]:
    return {
        "member": random.choice(tuple(MEMBERS)),
        "version": _join_version(random),
        "protocols": list(
            mostly(random, ("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",), share=0.7)
        ),
        "data": mostly(random, "", "other"),
        "claim": mostly(random, "own", "none", "none", "unknown", share=0.8),
    }


def of_member(random: Random) -> dict[str, Any]:
    """Draw a member, and what it says that it is."""
    return {
        "member": random.choice(tuple(MEMBERS)),
        "generation": mostly(random, "own", "before", "after", "none"),
        "claim": mostly(random, "own", "none", "unknown", share=0.9),
    }


def _sync(random: Random) -> Mapping[str, Any]:
    return {
        "member": random.choice(tuple(MEMBERS)),
        "generation": mostly(random, "own", "before", "after", "none", share=0.9),
    }


def _commit(random: Random) -> Mapping[str, Any]:
    return {
        **of_member(random),
        "version": random.randint(2, 9),
        "offset": random.choice((0, 1, 5)),
        "partition": random.choice((0, 0, 1)),
    }


def _leave(random: Random) -> Mapping[str, Any]:
    return {
        "member": random.choice(tuple(MEMBERS)),
        "version": random.randint(0, 5),
        "by": random.choice(("id", "instance", "both")),
    }


def _round(random: Random) -> list[Step]:
    """A rebalance, and what members do after it."""
    beating = {**of_member(random), "version": random.randint(0, 4)}
    after = (
        Step("classic_heartbeat", beating),
        Step("classic_commit", _commit(random)),
        Step("classic_leave", _leave(random)),
        Step("classic_join", _join(random)),
    )
    return [Step("classic_rebalance", _rebalance(random)), *random.sample(after, 2)]


THEME: Final = Theme(
    {
        "classic_rebalance": Word(20, _rebalance),
        "classic_join": Word(14, _join),
        "classic_sync": Word(8, _sync),
        "classic_heartbeat": Word(12, lambda random: {**of_member(random), "version": random.randint(0, 4)}),
        "classic_commit": Word(8, _commit),
        "classic_leave": Word(8, _leave),
        "classic_delete": Word(1, lambda random: {}),
        "classic_offset_delete": Word(2, lambda random: {"partitions": random.choice(([0], [0, 1], [7]))}),
        "classic_describe": Word(8, lambda random: {"version": random.randint(0, 6)}),
    },
    (({"classic_rebalance"}, _round),) * 2,
    OF_TOPICS,
)
