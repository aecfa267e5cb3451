"""A member of a consumer group, with the classic protocol that all clients share: join, sync, heartbeat, leave.

The member that the coordinator makes the leader assigns the partitions, by the assignor that all members know. It
revokes all partitions before each rebalance. `tick` must be called often, since no other thread sends heartbeats. A
caller that is blocked for longer than the session timeout loses its membership.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import (
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    from_code,
)
from raftlog.client.metadata import PartitionKey
from raftlog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from raftlog.client.cluster import Cluster

CONSUMER: Final = "consumer"
TOPICS_CHECK_INTERVAL_S: Final = 60.0
"""The interval at which the leader checks for new partitions, and a member for new topics that it subscribes to."""
NO_GENERATION: Final = -1
_I16, _I32 = Struct(">h"), Struct(">i")
_LOST: Final = (UnknownMemberId, IllegalGeneration, RebalanceInProgress)
"""Errors after which a member joins again."""

Assignment = dict[str, list[int]]
"""Partitions by topic."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The description of a member that it sends to the coordinator. Times in ms."""

    group: str
    topics: tuple[str, ...]
    """Topic names. A name that begins with ^ is a regular expression."""
    session_ms: int = 45_000
    rebalance_ms: int = 300_000
    heartbeat_ms: int = 3_000
    instance_id: str | None = None


class Member:
    """One membership of a group. It has no partitions until `join`."""

    def __init__(self, cluster: Cluster, about: Membership) -> None:
        self._cluster = cluster
        self._about = about
        self._member_id = ""
        self._generation = NO_GENERATION
        self._beat_at = 0.0
        self._topics_check_at = 0.0
        self._seen: Mapping[str, int] = {}
        """The partition counts of the topics at the last assignment, by topic."""
        self._is_leader = False

    def join(self) -> Assignment:
        """Return the partitions that the group assigns to this member. Raise KafkaError, Unreachable, Refused."""
        while True:
            try:
                return self._sync(self._join())
            except MemberIdRequired:
                continue  # the response had the id
            except (UnknownMemberId, IllegalGeneration):
                self._member_id = ""
            except RebalanceInProgress:
                continue

    def tick(self) -> bool:
        """Send a heartbeat if it is due; return whether the group rebalances, so that the member has to join again.

        Raise KafkaError, Unreachable, Refused.
        """
        now = time.monotonic()
        if now >= self._topics_check_at:
            self._topics_check_at = now + TOPICS_CHECK_INTERVAL_S
            if self._topics_changed():
                return True
        if now < self._beat_at:
            return False
        self._beat_at = now + self._about.heartbeat_ms / 1000
        try:
            self._ask(
                ApiKey.HEARTBEAT,
                lambda make: make.HeartbeatRequest(
                    group_id=self._about.group,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    group_instance_id=self._about.instance_id,
                ),
            )
        except RebalanceInProgress:
            return True
        except _LOST:
            self._member_id = ""
            return True
        return False

    def commit(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Commit offsets as this member. Raise KafkaError, Unreachable, Refused."""
        commit_offsets(
            self._cluster,
            self._about.group,
            offsets,
            member=(self._generation, self._member_id, self._about.instance_id),
        )

    @staticmethod
    def is_lost(error: KafkaError) -> bool:
        """Return whether an error means that the partitions may be another member's by now."""
        return isinstance(error, _LOST)

    def leave(self) -> None:
        """Give up the membership; a static member stays until its session ends. Raise KafkaError, Unreachable."""
        if not self._member_id or self._about.instance_id is not None:
            return

        def build(make: Any) -> Any:
            member_id, self._member_id = self._member_id, ""
            identity = make.MemberIdentity(
                member_id=member_id, group_instance_id=None, reason="the command ends"
            )
            return make.LeaveGroupRequest(
                group_id=self._about.group, members=(identity,), member_id=member_id
            )

        self._ask(ApiKey.LEAVE_GROUP, build)

    # Inside.

    def _join(self) -> Any:
        about = self._about
        topics = sorted(self._wanted_topics())

        def build(make: Any) -> Any:
            subscription = _subscription(topics)
            protocols = tuple(
                make.JoinGroupRequestProtocol(name=name, metadata=subscription) for name in ASSIGNORS
            )
            return make.JoinGroupRequest(
                group_id=about.group,
                session_timeout=about.session_ms,
                rebalance_timeout=about.rebalance_ms,
                member_id=self._member_id,
                group_instance_id=about.instance_id,
                protocol_type=CONSUMER,
                protocols=protocols,
                reason=None,
            )

        timeout_s = about.rebalance_ms / 1000 + self._cluster.timeout_s
        answer = self._ask(ApiKey.JOIN_GROUP, build, timeout_s=timeout_s, check=False)
        self._member_id, self._generation = answer.member_id or self._member_id, answer.generation_id
        if answer.error_code:
            raise from_code(answer.error_code)
        self._is_leader = answer.leader == answer.member_id
        self._seen = self._counts(topics)
        return answer

    def _sync(self, joined: Any) -> Assignment:
        plan: dict[str, Assignment] = {}
        if self._is_leader and not getattr(joined, "skip_assignment", False):
            subscribed = {each.member_id: _read_subscription(bytes(each.metadata)) for each in joined.members}
            counts = self._counts({topic for topics in subscribed.values() for topic in topics})
            self._seen = counts
            plan = ASSIGNORS[joined.protocol_name](subscribed, counts)

        def build(make: Any) -> Any:
            return make.SyncGroupRequest(
                group_id=self._about.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._about.instance_id,
                protocol_type=CONSUMER,
                protocol_name=joined.protocol_name,
                assignments=tuple(
                    make.SyncGroupRequestAssignment(member_id=member, assignment=_assignment(each))
                    for member, each in plan.items()
                ),
            )

        timeout_s = self._about.rebalance_ms / 1000 + self._cluster.timeout_s
        answer = self._ask(ApiKey.SYNC_GROUP, build, timeout_s=timeout_s)
        now = time.monotonic()
        self._beat_at = now + self._about.heartbeat_ms / 1000
        self._topics_check_at = now + TOPICS_CHECK_INTERVAL_S
        return read_assignment(bytes(answer.assignment))

    def _ask(self, api_key: int, build: Callable[[Any], Any], **options: Any) -> Any:
        return self._cluster.ask_coordinator(self._about.group, api_key, build, **options)

    def _wanted_topics(self) -> set[str]:
        patterns = [re.compile(each) for each in self._about.topics if each.startswith("^")]
        found = {each for each in self._about.topics if not each.startswith("^")}
        if patterns:
            there = self._cluster.metadata().topics
            found |= {name for name in there for pattern in patterns if pattern.search(name)}
        return found

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        wanted = sorted(topics)
        there = self._cluster.metadata(wanted).topics if wanted else {}
        return {name: len(there[name].partitions) for name in wanted}

    def _topics_changed(self) -> bool:
        if self._is_leader and self._counts(self._seen) != self._seen:
            return True
        return not self._wanted_topics() <= set(self._seen)


# Offsets.


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[PartitionKey, int],
    *,
    member: tuple[int, str, str | None] = (NO_GENERATION, "", None),
) -> None:
    """Commit offsets for a group, by default without a membership. Raise KafkaError, Unreachable, Refused.

    `member`: generation, member id and group.instance.id.
    """
    generation, member_id, instance_id = member

    def build(make: Any) -> Any:
        topics: dict[str, list[Any]] = {}
        for (topic, number), offset in sorted(offsets.items()):
            part = make.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata="",
            )
            topics.setdefault(topic, []).append(part)
        return make.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=tuple(
                make.OffsetCommitRequestTopic(name=name, partitions=tuple(parts))
                for name, parts in topics.items()
            ),
        )

    answer = cluster.ask_coordinator(group, ApiKey.OFFSET_COMMIT, build, errors=_commit_codes)
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code:
                error = from_code(part.error_code)
                raise type(error)(f"{topic.name} {part.partition_index}: {type(error).__name__}")


def _commit_codes(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[PartitionKey] | None = None, *, stable: bool = False
) -> dict[PartitionKey, int]:
    """Return a group's committed offsets, by default of all partitions. Raise KafkaError, Unreachable, Refused.

    `stable`: wait for the end of transactions that commit offsets, as consumers do.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions or ():
        by_topic.setdefault(topic, []).append(number)

    def build(make: Any) -> Any:
        topics = tuple(
            make.OffsetFetchRequestTopic(name=name, partition_indexes=tuple(numbers))
            for name, numbers in by_topic.items()
        )
        return make.OffsetFetchRequest(
            group_id=group, topics=None if partitions is None else topics, require_stable=stable
        )

    deadline = time.monotonic() + cluster.timeout_s
    while True:
        answer = cluster.ask_coordinator(group, ApiKey.OFFSET_FETCH, build)
        parts = {
            (topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions
        }
        errors = [from_code(each.error_code) for each in parts.values() if each.error_code]
        if not errors:
            return {key: part.committed_offset for key, part in parts.items() if part.committed_offset >= 0}
        if not errors[0].retriable or time.monotonic() > deadline:
            raise errors[0]
        time.sleep(0.1)


# Assignors, and the consumer protocol's own bytes.


def assign_ranges(
    subscribed: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, Assignment]:
    """Assign each topic's partitions in contiguous ranges, as Kafka's RangeAssignor does."""
    plan: dict[str, Assignment] = {member: {} for member in subscribed}
    for topic, count in counts.items():
        members = sorted(member for member, topics in subscribed.items() if topic in topics)
        start = 0
        for index, member in enumerate(members):
            size = count // len(members) + (index < count % len(members))
            if size:
                plan[member][topic] = list(range(start, start + size))
            start += size
    return plan


def assign_round_robin(
    subscribed: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, Assignment]:
    """Deal out all partitions in turn, as Kafka's RoundRobinAssignor does."""
    plan: dict[str, Assignment] = {member: {} for member in subscribed}
    members = sorted(subscribed)
    turn = 0
    for topic, count in sorted(counts.items()):
        if not any(topic in topics for topics in subscribed.values()):
            continue
        for number in range(count):
            while topic not in subscribed[members[turn % len(members)]]:
                turn += 1
            plan[members[turn % len(members)]].setdefault(topic, []).append(number)
            turn += 1
    return plan


ASSIGNORS: Final = {"range": assign_ranges, "roundrobin": assign_round_robin}
"""The assignors of this member by Kafka's names, in order of preference."""


def _subscription(topics: Sequence[str]) -> bytes:
    """Return a ConsumerProtocolSubscription of version 0."""
    return _I16.pack(0) + _I32.pack(len(topics)) + b"".join(map(_string, topics)) + _I32.pack(-1)


def _assignment(assigned: Assignment) -> bytes:
    """Return a ConsumerProtocolAssignment of version 0."""
    parts = [_I16.pack(0), _I32.pack(len(assigned))]
    for topic, numbers in sorted(assigned.items()):
        parts += (_string(topic), _I32.pack(len(numbers)), *map(_I32.pack, numbers))
    return b"".join((*parts, _I32.pack(-1)))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _I16.pack(len(encoded)) + encoded


class _Reader:
    """Reads the consumer protocol's fields from front to back, of any version: later versions only add fields."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = _I16.size

    def number(self) -> int:
        self._at += _I32.size
        return int(_I32.unpack_from(self._content, self._at - _I32.size)[0])

    def text(self) -> str:
        (size,) = _I16.unpack_from(self._content, self._at)
        start = self._at + _I16.size
        self._at = start + size
        return self._content[start : self._at].decode()


def _read_subscription(content: bytes) -> list[str]:
    reader = _Reader(content)
    return [reader.text() for _ in range(reader.number())]


def read_assignment(content: bytes) -> Assignment:
    """Return the partitions of a ConsumerProtocolAssignment of any version, none for empty bytes."""
    if not content:
        return {}
    reader = _Reader(content)
    found: Assignment = {}
    for _ in range(reader.number()):
        topic = reader.text()
        found[topic] = [reader.number() for _ in range(reader.number())]
    return found
