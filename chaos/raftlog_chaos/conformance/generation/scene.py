"""The parts that all words of a drawn history share: its session, its topic, and the names that it made up."""

from __future__ import annotations

from typing import Any, Final

from raftlog_chaos.conformance.session import Session

PLAIN_GROUPS: Final = ("group-0", "group-1")
"""Groups with one member of the classic protocol, or with none."""
CLASSIC_GROUP: Final = "classic-group"
CONSUMER_GROUP: Final = "consumer-group"
GROUPS: Final = (*PLAIN_GROUPS, CLASSIC_GROUP, CONSUMER_GROUP)
APPLIED_S: Final = 0.03
"""Apache Kafka shows a new setting just before it is in force."""


class Scene:
    """A session and a topic. Modules of words extend it, and `play.Play` is all of them."""

    def __init__(self, s: Session, topic: str, partitions: int) -> None:
        self.s = s
        self.topic = topic
        self.partitions = partitions
        self.exists = True
        self.former_id = ""
        """The id of the topic before it was made again."""
        self.groups: set[str] = set()
        """Groups with offsets, which are fetched at the end."""
        self._names: dict[str, str] = {}

    def name(self, word: str) -> str:
        """Return the name of a transactional id or a group of this history. Groups go at its end."""
        if word not in self._names:
            name = self._names[word] = self.s.name(word)
            if word in GROUPS:
                self.s.at_end(lambda: self._delete_group(name))
        return self._names[word]

    def _delete_group(self, name: str) -> None:
        node = self.s.coordinator(name)
        found = self.s.query("DescribeGroups", 5, node=node, groups=[name])["groups"][0]
        leaving = [{"member_id": each["member_id"]} for each in found["members"]]
        self.s.query("LeaveGroup", 5, node=node, group_id=name, members=leaving)
        found = self.s.query("ConsumerGroupDescribe", 1, node=node, group_ids=[name])["groups"][0]
        leave = {"group_id": name, "member_epoch": -1}
        for each in found["members"]:
            self.s.query("ConsumerGroupHeartbeat", 1, node=node, member_id=each["member_id"], **leave)
        self.s.query("DeleteGroups", 2, node=node, groups_names=[name])

    def delete_group(self, word: str) -> None:
        """Delete a group, if it is empty."""
        name = self.name(word)
        self.s.ask("DeleteGroups", 2, node=self.s.coordinator(name), groups_names=[name])

    def delete_offsets(self, word: str, partitions: list[int]) -> None:
        """Delete a group's offsets of the topic, unless a member reads it."""
        name = self.name(word)
        topics = [{"name": self.topic, "partitions": [{"partition_index": each} for each in partitions]}]
        self.s.ask("OffsetDelete", 0, node=self.s.coordinator(name), group_id=name, topics=topics)

    def topic_id(self, *, is_former: bool = False) -> str:
        """Return the id of the topic, or, if it was made again, that of its predecessor."""
        return self.former_id if is_former and self.former_id else self.s.topic_id(self.topic)

    def offset_at(self, offset: int | str, partition: int) -> int:
        """Return a number for an offset: where the log starts, where it ends, or beyond that."""
        if isinstance(offset, int):
            return offset
        wanted = {"partition_index": partition, "timestamp": -2 if offset == "start" else -1}
        topics = [{"name": self.topic, "partitions": [wanted]}]
        node = self.s.leader(self.topic, partition)
        answer = self.s.query("ListOffsets", 5, node=node, replica_id=-1, topics=topics)
        found = answer["topics"][0]["partitions"][0]["offset"]
        return int(found) + (3 if offset == "beyond" else 0)

    def offsets_of(self, partition: int, offset: int, metadata: str | None = "") -> list[dict[str, Any]]:
        """Return an offset of the topic as requests to commit have it."""
        one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        return [{"name": self.topic, "partitions": [one]}]

    def offsets_by_id(self, partition: int, offset: int, metadata: str | None = "") -> list[dict[str, Any]]:
        """Return an offset with the topic's name and id; each version of OffsetCommit uses either."""
        return [
            {**each, "topic_id": self.topic_id()} for each in self.offsets_of(partition, offset, metadata)
        ]
