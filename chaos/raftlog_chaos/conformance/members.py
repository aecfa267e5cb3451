"""The vocabulary of histories about groups: members of both protocols, each on a connection of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 20_000
NEWEST: Final = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5, "DescribeGroups": 6}
Fields = dict[str, Any]
"""Fields of a request, or some of them."""
NO_CHANGE: Final = -1
"""The duration in a heartbeat that does not change it."""


def subscription(*topics: str, data: bytes = b"") -> bytes:
    """Return a consumer's metadata in version 0 of the consumers' protocol: the topics that it reads, and some data."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + len(data).to_bytes(4, "big") + data


def group(s: Session, word: str = "group") -> str:
    """Return the name of a group, which is deleted with its members when the history ends."""
    name = s.name(word)
    s.at_end(lambda: _delete(s, name))
    return name


def _delete(s: Session, name: str) -> None:
    found = s.query("DescribeGroups", 5, groups=[name])["groups"][0]
    leaving = [{"member_id": each["member_id"]} for each in found["members"]]
    s.query("LeaveGroup", 5, group_id=name, members=leaving)
    found = s.query("ConsumerGroupDescribe", 1, group_ids=[name])["groups"][0]
    for each in found["members"]:
        s.query("ConsumerGroupHeartbeat", 1, group_id=name, member_id=each["member_id"], member_epoch=-1)
    s.query("DeleteGroups", 2, groups_names=[name])


def state(s: Session, name: str) -> str:
    """Look at the state of a classic group."""
    return str(s.query("DescribeGroups", 5, groups=[name])["groups"][0]["group_state"])


def until(s: Session, name: str, wanted: str) -> None:
    """Wait until a classic group is in a state."""
    s.wait(f"the group is {wanted}", lambda: state(s, name) == wanted)


class Member:
    """A member of a classic group. Its id and generation come from the last answer to JoinGroup.

    `version` is JoinGroup's; the other requests have the newest version of the same age.
    """

    def __init__(
        self,
        s: Session,
        group: str,
        word: str = "",
        *,
        version: int = 9,
        instance: str | None = None,
        protocols: Sequence[str] = ("range",),
    ) -> None:
        self.id = ""
        self.generation = -1
        self.group = group
        self.instance = instance
        self.protocols = [
            {"name": each, "metadata": subscription(data=f"{each} of {word}".encode())} for each in protocols
        ]
        self._s = s
        self._word = word
        self._version = version

    def begin_join(self, **odd: Any) -> None:
        """Send JoinGroup; `odd` replaces its fields."""
        given: Fields = {
            "group_id": self.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": self.protocols,
        }
        self._s.send("JoinGroup", self._version, on=self._word, **(given | odd))

    def end_join(self) -> Message:
        """Return the answer to JoinGroup."""
        answer = self._s.receive(on=self._word)
        if answer.get("error_code") in ("NONE", "MEMBER_ID_REQUIRED"):
            self.id, self.generation = answer["member_id"], answer["generation_id"]
        return answer

    def join(self, **odd: Any) -> Message:
        """Join, with the coordinator's member id if it requires an id."""
        self.begin_join(**odd)
        answer = self.end_join()
        if answer.get("error_code") == "MEMBER_ID_REQUIRED":
            self.begin_join(**odd)
            answer = self.end_join()
        return answer

    def knock(self) -> None:
        """Get an id where the coordinator requires it, and send JoinGroup without reading its answer."""
        if self._version >= 4 and self.instance is None:
            self.begin_join()
            self.end_join()
        self.begin_join()

    def begin_sync(self, given: Mapping[str, bytes] | None = None, **odd: Any) -> None:
        """Send SyncGroup with the assignments of members by id; `odd` replaces its fields."""
        made = [{"member_id": each, "assignment": value} for each, value in (given or {}).items()]
        fields: Fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": made,
        }
        self._s.send("SyncGroup", self._same("SyncGroup"), on=self._word, **(fields | odd))

    def end_sync(self) -> Message:
        """Return the answer to SyncGroup."""
        return self._s.receive(on=self._word)

    def sync(self, given: Mapping[str, bytes] | None = None, **odd: Any) -> Message:
        """Send SyncGroup and return its answer."""
        self.begin_sync(given, **odd)
        return self.end_sync()

    def settle(self, **odd: Any) -> None:
        """Join a group without other members and give this member something."""
        self.join(**odd)
        self.sync({self.id: b"all"})

    def heartbeat(self, **odd: Any) -> Message:
        """Send a heartbeat; `odd` replaces its fields."""
        given: Fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        }
        return self._s.ask("Heartbeat", self._same("Heartbeat"), on=self._word, **(given | odd))

    def leave(self) -> Message:
        """Leave the group; versions before 3 can name no instance."""
        version = self._same("LeaveGroup")
        if version < 3:
            return self._s.ask("LeaveGroup", version, on=self._word, group_id=self.group, member_id=self.id)
        members = [{"member_id": self.id, "group_instance_id": self.instance}]
        return self._s.ask("LeaveGroup", version, on=self._word, group_id=self.group, members=members)

    def describe(self) -> Message:
        """Describe the group."""
        version = min(self._version, NEWEST["DescribeGroups"])
        return self._s.ask("DescribeGroups", version, on=self._word, groups=[self.group])

    def _same(self, api: str) -> int:
        return NEWEST[api] if self._version == NEWEST["JoinGroup"] else min(self._version, NEWEST[api])


def rebalance(leader: Member, *others: Member) -> None:
    """Have all members join at once, which some may have begun, and share out by name."""
    for each in (leader, *others):
        each.end_join()
    shares = {each.id: f"share {number}".encode() for number, each in enumerate((leader, *others))}
    for each in others:
        each.begin_sync()
    leader.sync(shares)
    for each in others:
        each.end_sync()


def _await_topics(s: Session, name: str, topics: Sequence[str]) -> None:
    """Wait until a new group's coordinator knows topics: it hears of them later than their leaders do.

    The group that asks for them is deleted again.
    """
    known = [each for each in topics if s.has_topic(each)]
    found = [
        s.query("DescribeGroups", 6, groups=[name])["groups"][0],
        s.query("ConsumerGroupDescribe", 1, group_ids=[name])["groups"][0],
    ]
    if not known or any(each["error_code"] == "NONE" for each in found):
        return
    probe: Fields = {"group_id": name, "member_id": "probe"}

    def has_all() -> bool:
        joining = probe | {"rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": known}
        answer = s.query("ConsumerGroupHeartbeat", 1, **joining, topic_partitions=[])
        return len((answer["assignment"] or {}).get("topic_partitions", ())) == len(known)

    s.expect("the coordinator knows the topics", has_all)
    s.query("ConsumerGroupHeartbeat", 1, **probe, member_epoch=-1)
    s.query("DeleteGroups", 2, groups_names=[name])


class Consumer:
    """A member of a consumer group (KIP-848). Its epoch and partitions come from the last answer.

    Its id is the word, so that both coordinators order members alike.
    """

    def __init__(
        self,
        s: Session,
        group: str,
        word: str = "a",
        *,
        topics: Sequence[str] | None = (),
        instance: str | None = None,
        version: int = 1,
    ) -> None:
        self.id = word
        self.epoch = 0
        self.group = group
        self.instance = instance
        self.owned: list[Fields] = []
        self._topics = None if topics is None else list(topics)
        self._s = s
        self._version = version
        _await_topics(s, group, topics or ())

    def join(self, **odd: Any) -> Message:
        """Send a first heartbeat, or a rejoin; `odd` replaces its fields."""
        given: Fields = {
            "member_epoch": 0,
            "rebalance_timeout": REBALANCE_MS,
            "subscribed_topic_names": self._topics,
            "topic_partitions": [],
        }
        return self._heartbeat(**(given | odd))

    def join_unseen(self) -> None:
        """Join without observing it, where chance decides which partitions it gets."""
        self._s.query(
            "ConsumerGroupHeartbeat",
            self._version,
            group_id=self.group,
            member_id=self.id,
            rebalance_timeout=REBALANCE_MS,
            subscribed_topic_names=self._topics,
            topic_partitions=[],
        )

    def heartbeat(self, **odd: Any) -> Message:
        """Send a heartbeat that says only what has changed; `odd` replaces its fields."""
        given: Fields = {
            "rebalance_timeout": NO_CHANGE,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }
        return self._heartbeat(**(given | odd))

    def confirm(self, **odd: Any) -> Message:
        """Send a heartbeat with all partitions of the last assignment."""
        return self.heartbeat(**({"topic_partitions": self.owned} | odd))

    def leave(self, epoch: int = -1) -> Message:
        """Leave for good, or, with -2, as a static member that comes back."""
        return self._heartbeat(member_epoch=epoch)

    def _heartbeat(self, **fields: Any) -> Message:
        given: Fields = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        answer = self._s.ask("ConsumerGroupHeartbeat", self._version, **(given | fields))
        if answer.get("error_code") == "NONE":
            self.id, self.epoch = answer["member_id"], answer["member_epoch"]
            if answer["assignment"] is not None:
                self.owned = answer["assignment"]["topic_partitions"]
        return answer


def describe(s: Session, *groups: str, version: int = 1) -> Message:
    """Describe consumer groups."""
    return s.ask("ConsumerGroupDescribe", version, group_ids=list(groups))
