"""The coordinator of the groups in one partition of `__consumer_offsets`.

Each group is a state machine of its own over the partition's journal: decide on its tail, append, apply, answer once
the partition's high watermark has passed. Heartbeat deadlines and unused member ids are soft (`sessions`).

The coordinator knows nothing of partitions, logs or time: `append` is given, `now` (loop seconds) and `now_ms` come
with the calls. Requests go to an active coordinator only; whoever owns it stands it down when it loses the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.errors import GroupMaxSizeReached, InvalidGroupId, InvalidSessionTimeout, KafkaError
from raftlog.base.log import get_logger
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.group import Group, GroupRecord, apply
from raftlog.coordinator.membership import (
    decide_expire,
    decide_heartbeat,
    decide_join,
    decide_leave,
    decide_sync,
)
from raftlog.coordinator.offsets import decide_commit, decide_forget_topics
from raftlog.coordinator.records import LONGEST_STRING_BYTES, KeyValue, encode_all
from raftlog.coordinator.requests import (
    CommitOffsets,
    Joined,
    JoinGroup,
    MemberIdRequired,
    MemberRef,
    SyncGroup,
)
from raftlog.coordinator.sessions import MOST_EXPECTED, MemberKey, Sessions

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; on KafkaError nothing is appended."""

log = get_logger(__name__)

EXPIRY_RETRY_S = 1.0
"""An expiry that could not be appended is tried again after this."""


class GroupCoordinator:
    """The groups of one partition, from when they were read back until the partition is lost."""

    def __init__(self, config: NodeConfig, append: Append, *, new_uuid: Callable[[], UUID]) -> None:
        self._config = config
        self._new_uuid = new_uuid
        self._append = append
        self._runners: dict[str, Runner[Group]] = {}
        self._waiting: dict[str, Runner[Group]] = {}
        self._sessions = Sessions()
        self._lost: KafkaError | None = None
        self._committed_offset = 0

    def load(self, groups: Iterable[Group], *, now: float) -> None:
        """Take over groups, all of them committed. Every member gets a whole session."""
        for group in groups:
            self._runners[group.group_id] = self._runner(group)
            for member in group.membership.members.values():
                key = MemberKey(group.group_id, member.member_id)
                self._sessions.renew(key, now + member.session_timeout_ms / 1000)

    def _runner(self, group: Group) -> Runner[Group]:
        return Runner(group, apply, self._append_records)

    def _append_records(self, records: tuple[GroupRecord, ...]) -> int:
        return self._append(encode_all(records))

    def _run(self, group_id: str, decide: Callable[[Group], Decision], answer: Answer) -> None:
        if self._lost is not None:
            answer(self._lost)
            return
        if len(group_id.encode()) > LONGEST_STRING_BYTES:
            answer(InvalidGroupId(f"a group id has at most {LONGEST_STRING_BYTES} bytes"))
            return
        known = self._runners.get(group_id)
        runner = known or self._runner(Group(group_id))
        runner.handle(decide, answer)
        if known is None and runner.tail.exists:
            self._runners[group_id] = runner
        runner.committed(self._committed_offset)
        if runner.parked:
            self._waiting[group_id] = runner

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """The partition's high watermark is at `end_offset`: answer what rests on it."""
        self._committed_offset = end_offset
        for group_id, runner in tuple(self._waiting.items()):
            runner.committed(end_offset)
            if not runner.parked:
                self._waiting.pop(group_id, None)

    def stand_down(self, error: KafkaError) -> None:
        """The partition is lost: answer all that waits, and whatever still comes, with `error`."""
        self._lost = error
        waiting, self._waiting = self._waiting, {}
        for runner in waiting.values():
            runner.stand_down(error)

    # -- members -------------------------------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, now: float, now_ms: int) -> None:
        """Answered with Joined, MemberIdRequired, or a KafkaError."""
        shortest, longest = (
            self._config.group_min_session_timeout_ms,
            self._config.group_max_session_timeout_ms,
        )
        if not shortest <= request.session_timeout_ms <= longest:
            answer(InvalidSessionTimeout(f"the session timeout must be from {shortest} to {longest} ms"))
            return
        group_id = request.group_id
        if self._sessions.expected_count(group_id) >= MOST_EXPECTED:
            answer(GroupMaxSizeReached("too many members are about to join"))
            return
        session_s = request.session_timeout_ms / 1000

        def decide(group: Group) -> Decision:
            return decide_join(
                group,
                request,
                new_member_id=self._new_member_id(request),
                expected=self._sessions.is_expected(group_id, request.member.member_id),
                now_ms=now_ms,
            )

        def answered(reply: object) -> None:
            if isinstance(reply, MemberIdRequired):
                self._sessions.renew(MemberKey(group_id, reply.member_id, expected=True), now + session_s)
            elif isinstance(reply, Joined):
                self._sessions.end(MemberKey(group_id, reply.member_id, expected=True))
                self._sessions.renew(MemberKey(group_id, reply.member_id), now + session_s)
                log.info("group_joined", group=group_id, generation=reply.generation, member=reply.member_id)
            answer(reply)

        self._run(group_id, decide, answered)

    def _new_member_id(self, request: JoinGroup) -> str:
        prefix = request.member.group_instance_id or request.client_id
        return f"{prefix}-{self._new_uuid()}"

    def sync(self, request: SyncGroup, answer: Answer, *, now: float, now_ms: int) -> None:
        """Answered with Synced or a KafkaError."""
        self._seen(request.group_id, request.member, now)
        self._run(request.group_id, lambda group: decide_sync(group, request, now_ms=now_ms), answer)

    def heartbeat(
        self, group_id: str, member: MemberRef, answer: Answer, *, generation: int, now: float
    ) -> None:
        """Answered with None or a KafkaError."""
        self._seen(group_id, member, now)
        self._run(group_id, lambda group: decide_heartbeat(group, member, generation), answer)

    def leave(self, group_id: str, member: MemberRef, answer: Answer, *, now_ms: int) -> None:
        """Answered with None or a KafkaError. An id that was given out and never used is given back."""
        expected = MemberKey(group_id, member.member_id, expected=True)
        if self._sessions.is_expected(group_id, member.member_id):
            self._sessions.end(expected)
            answer(None)
            return

        def decide(group: Group) -> Decision:
            return decide_leave(group, member, now_ms=now_ms)

        self._run(group_id, decide, answer)

    def _seen(self, group_id: str, ref: MemberRef, now: float) -> None:
        runner = self._runners.get(group_id)
        member = runner.tail.membership.members.get(ref.member_id) if runner else None
        if member is not None:
            self._sessions.renew(MemberKey(group_id, ref.member_id), now + member.session_timeout_ms / 1000)

    # -- time ----------------------------------------------------------------------------------------------

    def next_expiry_at(self) -> float | None:
        """When to call `tick` next."""
        return self._sessions.next_expiry_at()

    def tick(self, *, now: float, now_ms: int) -> None:
        """Take out the members whose session has ended."""
        for key in self._sessions.expire(now):
            if not key.expected:
                self._expire(key, now=now, now_ms=now_ms)

    def _expire(self, key: MemberKey, *, now: float, now_ms: int) -> None:
        def answered(reply: object) -> None:
            if isinstance(reply, KafkaError):
                self._sessions.renew(key, now + EXPIRY_RETRY_S)
            else:
                log.info("group_member_expired", group=key.group_id, member=key.member_id)

        self._run(key.group_id, lambda group: decide_expire(group, key.member_id, now_ms=now_ms), answered)

    def stalled(self, seconds: float) -> None:
        """The broker itself stood still for so long: nobody could have been heard."""
        self._sessions.shift(seconds)

    # -- offsets -------------------------------------------------------------------------------------------

    def commit_offsets(self, request: CommitOffsets, answer: Answer, *, now: float) -> None:
        """Answered with one error code per commit, or a KafkaError for all."""
        self._seen(request.group_id, request.member, now)
        limit = min(self._config.offset_metadata_max_bytes, LONGEST_STRING_BYTES)
        self._run(
            request.group_id,
            lambda group: decide_commit(group, request, metadata_max_bytes=limit),
            answer,
        )

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Topics were deleted: remove their offsets."""
        for group_id, runner in tuple(self._runners.items()):
            if any(topic in topics for topic, _ in runner.tail.offsets):
                self._run(group_id, lambda group: decide_forget_topics(group, topics), _nobody_waits)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, group_id: str, answer: Answer) -> None:
        """Answered with the Group as committed; one that does not exist has `exists` False."""
        self._run(group_id, lambda group: Decision(reply=group), answer)

    def read_all(self, answer: Answer) -> None:
        """Answered with every Group, in a tuple."""
        wanted = len(self._runners)
        groups: list[Any] = []

        def collect(reply: object) -> None:
            groups.append(reply)
            if len(groups) == wanted:
                failed = next((each for each in groups if isinstance(each, KafkaError)), None)
                answer(failed or tuple(each for each in groups if each.exists))

        if not wanted:
            answer(self._lost or ())
        for group_id in tuple(self._runners):
            self.read(group_id, collect)


def _nobody_waits(reply: object) -> None:
    """Deleting a topic does not wait for its offsets; they are tried again with the next deletion."""
