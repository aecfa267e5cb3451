"""A journal for coordinator tests: a list that says when it is committed."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.errors import InvalidCommitOffsetSize, KafkaError
from raftlog.coordinator.consumer.heartbeat_requests import ConsumerGroupHeartbeat
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from raftlog.coordinator.group import CommittedOffset, Group
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_expiration import GROUPS_PER_SWEEP
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.coordinator.group_requests import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MemberRef,
    OffsetCommit,
    SyncGroup,
)
from raftlog.coordinator.pending_deletion import PAUSE_S
from raftlog.coordinator.record_fields import KeyValue
from raftlog.coordinator.timer import Moment
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.records.batch import build_batch, new_record

SMALL_ENOUGH = 1_000
"""Offsets that may be counted again after each commit."""

SUBSCRIPTION = b"subscription"

OFFSETS = itertools.count(1)
"""Of metadata records: every image of topics is later than the last."""


def topic_id(name: str) -> UUID:
    """The id of a topic of `image_of`."""
    return UUID(bytes=name.encode()[:16].ljust(16, b"-"))


def gone(*names: str) -> dict[str, frozenset[UUID | None]]:
    """Deleted topics, for offsets that do not say which."""
    return {name: frozenset({topic_id(name), None}) for name in names}


def image_of(topics: dict[str, int]) -> MetadataImage:
    """A cluster with these topics, of so many partitions each."""
    states = {name: _state_of(name, count) for name, count in topics.items()}
    return MetadataImage(
        topics=states,
        topic_names={each.topic_id: each.name for each in states.values()},
        topics_offset=next(OFFSETS),
    )


@cache
def _state_of(topic: str, partitions: int) -> TopicState:
    """Return the same state each time: tests have images of 20,000 topics."""
    return TopicState(topic, topic_id(topic), (PartitionState((1,), (1,), 1),) * partitions)


class Answers(list[Any]):
    """Collects answers."""

    def __call__(self, reply: Any) -> None:
        self.append(reply)


class GroupCoordinatorSetup:
    """A coordinator on an in-memory journal. `autocommit`: everything is committed as soon as it is appended."""

    def __init__(self, *, autocommit: bool = True, **settings: Any) -> None:
        self.config = config(**settings)
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.refuses: KafkaError | None = None
        self.autocommit = autocommit
        self.now = 100.0
        self.numbers = itertools.count(1)
        self.image = image_of({})
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.config,
            self.append,
            new_uuid=lambda: UUID(int=next(self.numbers)),
            topics=TopicRegexResolver(lambda: self.image),
        )

    def append(self, records: tuple[KeyValue, ...]) -> int:
        if self.refuses is not None:
            raise self.refuses
        stamped = [new_record(key, value, timestamp=self.now_ms) for key, value in records]
        batch = build_batch(stamped, base_offset=self.end_offset)
        if len(batch) > self.config.message_max_bytes:
            raise InvalidCommitOffsetSize(f"a batch of {len(batch)} bytes")
        self.batches.append(batch)
        self.end_offset += len(records)
        return self.end_offset

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now_ms)

    def commit(self) -> None:
        self.coordinator.committed(self.end_offset)
        self._check_memory()

    def _check_memory(self) -> None:
        """The counted bytes are the kept bytes, whatever a test did."""
        tails = [each.runner.tail for each in self.coordinator._groups]
        if sum(each.offset_count for each in tails) > SMALL_ENOUGH:
            return
        assert self.coordinator.memory_bytes == self.coordinator.recount_memory_bytes()

    def replayed(self) -> dict[str, Group]:
        replay = GroupReplay()
        replay.feed(b"".join(self.batches))
        return {group.group_id: group for group in replay.groups()}

    def fail_over(self) -> None:
        """A new coordinator reads the journal back."""
        self.coordinator = self.new_coordinator()
        self.coordinator.load(self.replayed().values(), now=self.now)

    def ask(self, call: Any, *args: Any, **times: Any) -> Any:
        """Call a coordinator method; returns its answer, or None while it waits."""
        answers = Answers()
        call(*args, answers, **times)
        if self.autocommit:
            self.commit()
        assert len(answers) <= 1
        return answers[0] if answers else None

    def join(self, member_id: str = "", **changes: Any) -> Any:
        request = join_request(member_id, **changes)
        return self.ask(self.coordinator.join, request, at=self.moment)

    def sync(self, member_id: str, generation: int, **changes: Any) -> Any:
        fields = {"assignments": {member_id: b"assignment"}, **changes}
        instance = fields.pop("instance", None)
        request = SyncGroup("g", MemberRef(member_id, instance), generation, **fields)
        return self.ask(self.coordinator.sync, request, at=self.moment)

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Any:
        member = MemberRef(member_id, instance)
        answers = Answers()
        self.coordinator.heartbeat(Heartbeat("g", member, generation), answers, at=self.moment)
        return answers[0] if answers else "waits"

    def consumer_group_heartbeat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """A heartbeat of the consumer protocol; by default a joining member sends all fields."""
        if epoch == 0:
            fields = {"topics": ("t",), "rebalance_timeout_ms": 60_000, "owned": {}, **fields}
        group_id = fields.pop("group_id", "g")
        request = ConsumerGroupHeartbeat(group_id, member_id, epoch, **fields)
        return self.ask(self.coordinator.consumer_group_heartbeat, request, at=self.moment)

    def leave(self, member_id: str, instance: str | None = None) -> Any:
        ref = MemberRef(member_id, instance)
        return self.ask(self.coordinator.leave, LeaveGroup("g", ref), at=self.moment)

    def commit_offset(self, offset: int, *, member_id: str = "", generation: int = -1, **changes: Any) -> Any:
        metadata = changes.pop("metadata", "")
        commits = changes.pop(
            "commits", (OffsetCommit("t", 0, CommittedOffset(offset, 3, metadata, self.now_ms)),)
        )
        group_id, may_name_epoch = changes.pop("group_id", "g"), changes.pop("may_name_epoch", True)
        request = CommitOffsets(
            group_id, MemberRef(member_id, **changes), generation, commits, may_name_epoch
        )
        return self.ask(self.coordinator.commit_offsets, request, at=self.moment)

    def read(self, group_id: str = "g") -> Any:
        return self.ask(self.coordinator.read, group_id)

    def begin_join(self, member_id: str = "", **changes: Any) -> Answers:
        """Join; the response is there as soon as it is ready."""
        answers = Answers()
        request = join_request(member_id, **changes)
        self.coordinator.join(request, answers, at=self.moment)
        self._settle()
        return answers

    def begin_sync(self, member_id: str, generation: int, **changes: Any) -> Answers:
        answers = Answers()
        fields = {"assignments": {}, **changes}
        request = SyncGroup("g", MemberRef(member_id), generation, **fields)
        self.coordinator.sync(request, answers, at=self.moment)
        self._settle()
        return answers

    def pass_time(self, seconds: float) -> None:
        """Let time pass in small ticks, as the broker does; everything appended meanwhile is committed."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.5, end)
            self.tick()
            self._settle()

    def tick(self) -> None:
        """The broker does this every half second."""
        self.coordinator.tick(self.moment)
        self.coordinator.sweep(self.moment, most=GROUPS_PER_SWEEP)

    def run_deletions(self) -> None:
        """Let time pass until there is no more to delete."""
        for _ in range(100):
            self.now += PAUSE_S
            self.tick()
            self.commit()

    def _settle(self) -> None:
        if self.autocommit:
            self.commit()

    def stable_group(self, *instances: str | None, **changes: Any) -> tuple[list[str], int]:
        """Bring several members to Stable; returns their ids, the leader's first, and the generation."""
        joins = [self.begin_join(may_require_member_id=False, instance=each, **changes) for each in instances]
        ids = list(self.read().membership.members)
        while any(not each for each in joins):
            rejoined = [self.begin_join(each, instance=self.instance_of(each), **changes) for each in ids]
            assert all(rejoined)
        generation = self.read().membership.generation
        ids = list(self.read().membership.members)
        assignments = {each: each.encode() for each in ids}
        for each in ids:
            self.sync(each, generation, assignments=assignments, instance=self.instance_of(each))
        assert self.read().state == "Stable"
        return ids, generation

    def instance_of(self, member_id: str) -> str | None:
        member = self.read().membership.members.get(member_id)
        return member.group_instance_id if member else None

    def stable_member(self) -> tuple[str, int]:
        """Bring one member to Stable; returns its id and generation."""
        required = self.join()
        joined = self.join(required.member_id)
        self.sync(joined.member_id, joined.generation)
        return joined.member_id, joined.generation


def config(**settings: Any) -> NodeConfig:
    return NodeConfig(node_id=1, **{"group_initial_rebalance_delay_ms": 0, **settings})


def join_request(member_id: str = "", **changes: Any) -> JoinGroup:
    fields: dict[str, Any] = {
        "group_id": "g",
        "member": MemberRef(member_id, changes.pop("instance", None)),
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", SUBSCRIPTION), ("roundrobin", b"other")),
    }
    return JoinGroup(**(fields | changes))
