"""The words of drawn histories about several members of one consumer group (KIP-848)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from raftlog_chaos.conformance.generation.plan import OF_TOPICS, Step, Theme, Word, mostly
from raftlog_chaos.conformance.generation.scene import APPLIED_S, CONSUMER_GROUP, Scene
from raftlog_chaos.conformance.members import REBALANCE_MS, Consumer, Fields
from raftlog_chaos.conformance.session import Session

CONSUMERS: Final[Mapping[str, str | None]] = {
    "a": None,
    "b": None,
    "c": None,
    "s": "instance",
    "t": "instance",
}
"""Members, named by their ids, and their group instance ids. Two have the same instance id."""
USUAL: Final = ("a", "a", "b", "b", "c", "s", "t")
NEVER: Final = 77
"""An epoch that no group of a history comes to."""
SEVERAL: Final = 2
"""From this number of members on, the owner of a left-over partition is open."""
UNCONFIRMED: Final = "before it confirmed"
"""The note on a heartbeat of a member that has not confirmed its assignment yet."""


class Reader(Consumer):
    """A member, and what it knew before."""

    former_epoch = 0
    has_rejoined = False
    is_confirmed = True
    """Its last heartbeat had the partitions of its last assignment."""


class ConsumerWords(Scene):
    """Members that send heartbeats, change what they read, commit and leave, in all orders."""

    def __init__(self, s: Session, topic: str, partitions: int) -> None:
        super().__init__(s, topic, partitions)
        self._readers: dict[str, Reader] = {}
        self._probes = 0

    def consumer_join(self, *, member: str, topics: str, assignor: str | None, owned: str) -> None:
        """Send a first heartbeat."""
        reader = self._reader(member)
        given = {} if owned == "none" else {"topic_partitions": self._owned(reader, owned)}
        self._beat(
            reader,
            {
                "member_epoch": 0,
                "rebalance_timeout": REBALANCE_MS,
                "subscribed_topic_names": self._topics(topics),
                "server_assignor": assignor,
                "topic_partitions": [],
                **given,
            },
        )

    def consumer_heartbeat(
        self, *, member: str, epoch: str, owned: str, topics: str | None, has_instance: bool
    ) -> None:
        """Send a heartbeat, usually with a confirmation of the assignment."""
        reader = self._reader(member)
        if epoch == "own" and not reader.epoch:
            self.consumer_join(member=member, topics="topic", assignor=None, owned="none")
            return
        fields: Fields = {
            "member_epoch": self._epoch(reader, epoch),
            "topic_partitions": self._owned(reader, owned),
            "subscribed_topic_names": None if topics is None else self._topics(topics),
        }
        self._beat(reader, fields if has_instance else {**fields, "instance_id": None})

    def _beat(self, reader: Reader, fields: Fields) -> None:
        epoch, had, was_confirmed = reader.epoch, reader.owned, reader.is_confirmed
        confirms = fields.get("topic_partitions") == had
        answer = reader.heartbeat(**fields)
        if reader.instance and fields["member_epoch"] == 0 and epoch > 0:
            self.s.remark("again with its instance")
        if not was_confirmed and not confirms:
            self.s.remark(UNCONFIRMED)
        if reader.has_rejoined and fields["member_epoch"] not in (0, epoch):
            self.s.remark("in an epoch before it joined again")
        self._remark_on_choice()
        if answer.get("error_code") != "NONE":
            return
        if fields["member_epoch"] == 0 and epoch > 0:
            reader.has_rejoined = True
        if reader.epoch != epoch:
            reader.former_epoch = epoch
        if fields["member_epoch"] == 0 or reader.owned != had:
            reader.is_confirmed = False
        elif confirms:
            reader.is_confirmed = True

    def _remark_on_choice(self) -> None:
        if sum(bool(each.epoch) for each in self._readers.values()) >= SEVERAL:
            self.s.remark("in a group of several")

    def consumer_leave(self, *, member: str, epoch: int, is_known: bool) -> None:
        """Leave for good, or as a static member that comes back."""
        reader = self._joined(member)
        name, kept = reader.id, reader.epoch
        reader.heartbeat(member_epoch=epoch, **({} if is_known else {"member_id": "unknown"}))
        reader.id, reader.epoch = name, kept

    def consumer_commit(self, *, member: str, epoch: str, version: int, offset: int, partition: int) -> None:
        """Commit an offset in an epoch."""
        self.groups.add(CONSUMER_GROUP)
        reader = self._joined(member)
        self.s.ask(
            "OffsetCommit",
            version,
            group_id=reader.group,
            member_id=reader.id,
            generation_id_or_member_epoch=self._epoch(reader, epoch),
            topics=self.offsets_by_id(partition, offset),
        )

    def consumer_offsets(self, *, member: str, epoch: str, version: int, is_stable: bool) -> None:
        """Ask for committed offsets in an epoch."""
        reader = self._joined(member)
        topic = {"name": self.topic, "topic_id": self.topic_id(), "partition_indexes": [0, 1]}
        asked = {
            "group_id": reader.group,
            "member_id": reader.id,
            "member_epoch": self._epoch(reader, epoch),
            "topics": [topic],
        }
        self.s.ask("OffsetFetch", version, groups=[asked], require_stable=is_stable)

    def consumer_describe(self, *, version: int) -> None:
        """Describe the group."""
        self.s.ask("ConsumerGroupDescribe", version, group_ids=[self.name(CONSUMER_GROUP)])
        self._remark_on_choice()

    def consumer_delete(self) -> None:
        """Delete the group, if it is empty."""
        self.delete_group(CONSUMER_GROUP)

    def consumer_offset_delete(self, *, partitions: list[int]) -> None:
        """Delete offsets of the group."""
        self.delete_offsets(CONSUMER_GROUP, partitions)

    def as_consumer(self, member: str, epoch: str) -> Fields:
        """Return the fields in which a commit in a transaction says which member sends it."""
        reader = self._joined(member)
        return {
            "generation_id": self._epoch(reader, epoch),
            "member_id": reader.id,
            "group_instance_id": reader.instance,
        }

    def _joined(self, member: str) -> Reader:
        """Return a member that has joined before; if it has not, another that has."""
        reader = self._reader(member)
        return (
            reader if reader.epoch else next((each for each in self._readers.values() if each.epoch), reader)
        )

    def _reader(self, member: str) -> Reader:
        if member not in self._readers:
            group = self.name(CONSUMER_GROUP)
            self._readers[member] = Reader(
                self.s, group, member, topics=[self.topic] if self.exists else [], instance=CONSUMERS[member]
            )
        return self._readers[member]

    def _topics(self, topics: str) -> list[str]:
        missing = self.name("missing")
        return {"topic": [self.topic], "missing": [missing], "both": [self.topic, missing], "nothing": []}[
            topics
        ]

    def _owned(self, reader: Reader, owned: str) -> list[Fields] | None:
        every = [{"topic_id": self.topic_id(), "partitions": list(range(self.partitions))}]
        return {"given": reader.owned, "not said": None, "none": [], "all": every}[owned]

    @staticmethod
    def _epoch(reader: Reader, epoch: str) -> int:
        """Return a number for an epoch."""
        if not reader.epoch and epoch in ("former", "next"):
            return NEVER
        known = {"own": reader.epoch, "former": reader.former_epoch, "next": reader.epoch + 1}
        return known[epoch] if epoch in known else int(epoch)

    def await_coordinator(self) -> None:
        """Wait until the group's coordinator knows what the topic has become: a group that is new is given it."""
        if not self._readers:
            return
        self._probes += 1
        probe = self.s.name(f"probe-{self._probes}")
        asked: Fields = {"group_id": probe, "member_id": "probe"}
        joining: Fields = {
            "rebalance_timeout": REBALANCE_MS,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
        }

        def knows() -> bool:
            answer = self.s.query("ConsumerGroupHeartbeat", 1, **asked, **joining)
            given = (answer["assignment"] or {}).get("topic_partitions", ())
            self.s.query("ConsumerGroupHeartbeat", 1, **asked, member_epoch=-1)
            return sum(len(each["partitions"]) for each in given) == (self.partitions if self.exists else 0)

        self.s.expect("the coordinator knows the topic", knows)
        self.s.query("DeleteGroups", 2, groups_names=[probe])
        time.sleep(APPLIED_S)


# --- drawing


def _join(random: Random) -> Mapping[str, Any]:
    return {
        "member": random.choice(USUAL),
        "topics": mostly(random, "topic", "both", "missing"),
        "assignor": mostly(random, None, "uniform", "range", "best"),
        "owned": mostly(random, "none", "given", "all", "not said", share=0.9),
    }


def _heartbeat(random: Random) -> Mapping[str, Any]:
    return {
        "member": random.choice(USUAL),
        "epoch": mostly(random, "own", "former", "next", "77", "-3", share=0.88),
        "owned": mostly(random, "given", "given", "not said", "none", "all", share=0.7),
        "topics": mostly(random, None, "topic", "both", "missing", "nothing", share=0.8),
        "has_instance": random.random() < 0.95,
    }


def _leave(random: Random) -> Mapping[str, Any]:
    return {
        "member": random.choice(USUAL),
        "epoch": random.choice((-1, -2)),
        "is_known": random.random() < 0.95,
    }


def of_epoch(random: Random) -> dict[str, Any]:
    """Draw a member, and an epoch that it says it is in."""
    return {
        "member": random.choice(USUAL),
        "epoch": mostly(random, "own", "former", "next", "0", "-1", "77", share=0.7),
    }


def _commit(random: Random) -> Mapping[str, Any]:
    return {
        **of_epoch(random),
        "version": random.choice((8, 9, 9, 10, 10)),
        "offset": random.choice((0, 1, 5)),
        "partition": random.choice((0, 0, 1)),
    }


def _offsets(random: Random) -> Mapping[str, Any]:
    return {**of_epoch(random), "version": random.choice((8, 9, 10)), "is_stable": random.random() < 0.4}


def _settling(random: Random) -> list[Step]:
    """A member joins beside another member, until both have their target assignments."""
    one, other = random.sample(tuple(CONSUMERS), 2)
    usual = {"epoch": "own", "owned": "given", "topics": None, "has_instance": True}
    joining = {"topics": "topic", "assignor": None, "owned": "none"}
    made = [Step("consumer_join", {**joining, "member": each}) for each in (one, other)]
    beats = [Step("consumer_heartbeat", {**usual, "member": each}) for each in (one, one, other)]
    return made + beats


THEME: Final = Theme(
    {
        "consumer_join": Word(12, _join),
        "consumer_heartbeat": Word(30, _heartbeat),
        "consumer_leave": Word(7, _leave),
        "consumer_commit": Word(8, _commit),
        "consumer_offsets": Word(6, _offsets),
        "consumer_delete": Word(1, lambda random: {}),
        "consumer_offset_delete": Word(2, lambda random: {"partitions": random.choice(([0], [0, 1], [7]))}),
        "consumer_describe": Word(8, lambda random: {"version": random.randint(0, 1)}),
    },
    (({"consumer_join", "consumer_heartbeat"}, _settling),) * 2,
    OF_TOPICS - {"create_partitions"},
)
