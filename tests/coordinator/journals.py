"""A journal for coordinator tests: a list that says when it is committed."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.errors import KafkaError
from raftlog.coordinator.coordinator import GroupCoordinator
from raftlog.coordinator.group import CommittedOffset, Group
from raftlog.coordinator.records import KeyValue
from raftlog.coordinator.replay import Replay
from raftlog.coordinator.requests import CommitOffsets, JoinGroup, MemberRef, OffsetCommit, SyncGroup
from raftlog.records.batch import build_batch, new_record

SUBSCRIPTION = b"subscription"


class Answers(list[Any]):
    """Collects answers."""

    def __call__(self, reply: Any) -> None:
        self.append(reply)


class Bench:
    """A coordinator on an in-memory journal. `autocommit`: everything is committed as soon as it is appended."""

    def __init__(self, *, autocommit: bool = True) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.refuses: KafkaError | None = None
        self.autocommit = autocommit
        self.now = 100.0
        self.numbers = itertools.count(1)
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(config(), self.append, new_uuid=lambda: UUID(int=next(self.numbers)))

    def append(self, records: tuple[KeyValue, ...]) -> int:
        if self.refuses is not None:
            raise self.refuses
        stamped = [new_record(key, value, timestamp=self.now_ms) for key, value in records]
        self.batches.append(build_batch(stamped, base_offset=self.end_offset))
        self.end_offset += len(records)
        return self.end_offset

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    def commit(self) -> None:
        self.coordinator.committed(self.end_offset)

    def replayed(self) -> dict[str, Group]:
        replay = Replay()
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
        return self.ask(self.coordinator.join, request, now=self.now, now_ms=self.now_ms)

    def sync(self, member_id: str, generation: int, **changes: Any) -> Any:
        fields = {"assignments": {member_id: b"assignment"}, **changes}
        instance = fields.pop("instance", None)
        request = SyncGroup("g", MemberRef(member_id, instance), generation, **fields)
        return self.ask(self.coordinator.sync, request, now=self.now, now_ms=self.now_ms)

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Any:
        member = MemberRef(member_id, instance)
        answers = Answers()
        self.coordinator.heartbeat("g", member, answers, generation=generation, now=self.now)
        return answers[0] if answers else "waits"

    def leave(self, member_id: str, instance: str | None = None) -> Any:
        return self.ask(self.coordinator.leave, "g", MemberRef(member_id, instance), now_ms=self.now_ms)

    def commit_offset(self, offset: int, *, member_id: str = "", generation: int = -1, **changes: Any) -> Any:
        metadata = changes.pop("metadata", "")
        commits = changes.pop(
            "commits", (OffsetCommit("t", 0, CommittedOffset(offset, 3, metadata, self.now_ms)),)
        )
        request = CommitOffsets(
            changes.pop("group_id", "g"), MemberRef(member_id, **changes), generation, commits
        )
        return self.ask(self.coordinator.commit_offsets, request, now=self.now)

    def read(self, group_id: str = "g") -> Any:
        return self.ask(self.coordinator.read, group_id)

    def stable_member(self) -> tuple[str, int]:
        """Bring one member to Stable; returns its id and generation."""
        required = self.join()
        joined = self.join(required.member_id)
        self.sync(joined.member_id, joined.generation)
        return joined.member_id, joined.generation


def config() -> NodeConfig:
    return NodeConfig(node_id=1)


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
