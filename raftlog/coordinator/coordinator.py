"""The coordinator of the groups in one partition of `__consumer_offsets`.

Each group is a state machine of its own over the partition's journal: decide on its tail, append, apply, answer once
the partition's high watermark has passed. This is the one place where a group is found by its name, whatever its type;
now all of them are classic.

The coordinator knows nothing of partitions, logs or time: `append` is given, `now` (loop seconds) and `now_ms` come
with the calls. Requests go to an active coordinator only; whoever owns it stands it down when it loses the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.errors import (
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    PolicyViolation,
)
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.classic import ClassicGroup, Moment
from raftlog.coordinator.group import Group, GroupRecord, apply
from raftlog.coordinator.offsets import (
    decide_commit,
    decide_delete,
    decide_delete_offsets,
    decide_expire_offsets,
    decide_forget_topics,
)
from raftlog.coordinator.records import LONGEST_STRING_BYTES, KeyValue, encode_all
from raftlog.coordinator.requests import CommitOffsets, DeleteOffsets, JoinGroup, MemberRef, SyncGroup
from raftlog.coordinator.sessions import Kind, Sessions

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; on KafkaError nothing is appended."""

SWEPT_AT_ONCE: Final = 200
"""Groups of a broker whose offsets are looked through for expired ones before the loop gets its turn again."""

MS_PER_MINUTE: Final = 60_000


def _always() -> bool:
    return True


class GroupCoordinator:
    """The groups of one partition, from when they were read back until the partition is lost.

    `may_add` says whether this broker has room for one more group.
    """

    def __init__(
        self,
        config: NodeConfig,
        append: Append,
        *,
        new_uuid: Callable[[], UUID],
        may_add: Callable[[], bool] = _always,
    ) -> None:
        self._config = config
        self._new_uuid = new_uuid
        self._append = append
        self._may_add = may_add
        self._groups: dict[str, ClassicGroup] = {}
        self._waiting: dict[str, ClassicGroup] = {}
        self._sessions = Sessions()
        self._lost: KafkaError | None = None
        self._refusal: KafkaError | None = None
        """Why the journal took no records, when it last took none."""
        self._committed_offset = 0
        self._deleted_topics: frozenset[str] = frozenset()
        """Those whose offsets could not all be removed yet."""
        self._to_sweep: list[str] = []
        self._sweeps_at = 0.0

    def __len__(self) -> int:
        return len(self._groups)

    def load(self, groups: Iterable[Group], *, now: float) -> None:
        """Take over groups, all of them committed. Every member gets a whole session."""
        for group in groups:
            self._groups[group.group_id] = taken = self._classic(group)
            taken.take_over(now)
        self._sweeps_at = now + self._config.offsets_retention_check_interval_ms / 1000

    def _classic(self, group: Group) -> ClassicGroup:
        return ClassicGroup(self._runner(group), self._sessions, self._config)

    def _runner(self, group: Group) -> Runner[Group]:
        return Runner(group, apply, self._append_records)

    def _append_records(self, records: tuple[GroupRecord, ...]) -> int:
        try:
            return self._append(encode_all(records))
        except KafkaError as error:
            self._refusal = error
            raise

    def _find(self, group_id: str) -> ClassicGroup:
        """Return a group, or an empty one of that name that is kept once something is known of it."""
        if len(group_id.encode()) > LONGEST_STRING_BYTES:
            raise InvalidGroupId(f"a group id has at most {LONGEST_STRING_BYTES} bytes")
        return self._groups.get(group_id) or self._classic(Group(group_id))

    def _ask(self, group_id: str, ask: Callable[[ClassicGroup], None], answer: Answer) -> None:
        """Let a group deal with a request, then release what is committed and note what is not."""
        if self._lost is not None:
            answer(self._lost)
            return
        try:
            group = self._find(group_id)
        except KafkaError as error:
            answer(error)
            return
        ask(group)
        self._settle(group)

    def _settle(self, group: ClassicGroup) -> None:
        group.runner.committed(self._committed_offset)
        if group.runner.parked:
            self._waiting[group.group_id] = group
        if group.is_idle:
            self._groups.pop(group.group_id, None)
        else:
            self._groups[group.group_id] = group

    def _check_room(self, group_id: str) -> None:
        """Raises PolicyViolation for one group too many."""
        if group_id not in self._groups and not self._may_add():
            raise PolicyViolation(f"raftlog.group.max.groups is {self._config.raftlog_group_max_groups}")

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """The partition's high watermark is at `end_offset`: answer what rests on it."""
        self._committed_offset = end_offset
        for group_id, group in tuple(self._waiting.items()):
            group.runner.committed(end_offset)
            if not group.runner.parked:
                self._waiting.pop(group_id, None)
                self._settle(group)

    def stand_down(self, error: KafkaError) -> None:
        """The partition is lost: answer all that waits, and whatever still comes, with `error`."""
        self._lost = error
        for group in self._groups.values():
            group.stand_down(error)

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
        try:
            self._check_room(request.group_id)
        except KafkaError as error:
            answer(error)
            return
        prefix = request.member.group_instance_id or request.client_id
        new_id, at = f"{prefix}-{self._new_uuid()}", Moment(now, now_ms)
        self._ask(
            request.group_id, lambda group: group.join(request, answer, new_member_id=new_id, at=at), answer
        )

    def sync(self, request: SyncGroup, answer: Answer, *, now: float, now_ms: int) -> None:
        """Answered with Synced or a KafkaError."""
        at = Moment(now, now_ms)
        self._ask(request.group_id, lambda group: group.sync(request, answer, at=at), answer)

    def heartbeat(
        self, group_id: str, member: MemberRef, answer: Answer, *, generation: int, now: float
    ) -> None:
        """Answered with None or a KafkaError."""
        at = Moment(now, 0)
        self._ask(
            group_id, lambda group: group.heartbeat(member, answer, generation=generation, at=at), answer
        )

    def leave(self, group_id: str, member: MemberRef, answer: Answer, *, now: float, now_ms: int) -> None:
        """Answered with None or a KafkaError. An id that was given out and never used is given back."""
        at = Moment(now, now_ms)
        self._ask(group_id, lambda group: group.leave(member, answer, at=at), answer)

    # -- time ----------------------------------------------------------------------------------------------

    def next_expiry_at(self) -> float | None:
        """When to call `tick` next."""
        return self._sessions.next_expiry_at()

    def tick(self, *, now: float, now_ms: int) -> None:
        """Take out the members whose session has ended, end rebalances whose time is up; try again what failed."""
        at = Moment(now, now_ms)
        self._forget_deleted()
        for key in self._sessions.expire(now):
            group = self._groups.get(key.group_id)
            if group is None:
                continue
            if key.kind is Kind.MEMBER:
                group.session_ended(key.member_id, at)
            elif key.kind is Kind.EXPECTED:
                group.expectation_ended(at)
            else:
                group.clock_rang(at)
            self._settle(group)

    def sweep(self, *, now: float, now_ms: int, most: int) -> int:
        """Forget the expired offsets of at most so many groups, of all once per check interval; returns how many."""
        if not self._to_sweep:
            if now < self._sweeps_at:
                return 0
            self._sweeps_at = now + self._config.offsets_retention_check_interval_ms / 1000
            self._to_sweep = list(self._groups)
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        batch, self._to_sweep = self._to_sweep[:most], self._to_sweep[most:]
        for group in filter(None, map(self._groups.get, batch)):
            shown = group.shown(group.runner.tail)
            expire = _expiring(shown, now_ms=now_ms, retention_ms=retention_ms)
            group.runner.handle(expire, _nobody_waits)
            self._settle(group)
        return len(batch)

    def stalled(self, seconds: float) -> None:
        """This broker itself stood still for so long: nobody's session ends for that."""
        self._sessions.shift(seconds)

    # -- offsets -------------------------------------------------------------------------------------------

    def commit_offsets(self, request: CommitOffsets, answer: Answer, *, now: float) -> None:
        """Answered with one error code per commit, or a KafkaError for all."""
        limit = min(self._config.offset_metadata_max_bytes, LONGEST_STRING_BYTES)

        def ask(group: ClassicGroup) -> None:
            self._forget_deleted()
            shown = group.shown(group.runner.tail)

            def decide(tail: Group) -> Decision:
                self._check_room(request.group_id)
                decision = decide_commit(tail, request, shown=shown, metadata_max_bytes=limit)
                group.seen(request.member, now)
                return decision

            group.runner.handle(decide, answer)

        self._ask(request.group_id, ask, answer)

    def delete_offsets(self, request: DeleteOffsets, answer: Answer) -> None:
        """Answered with one error code per place, or a KafkaError for all."""
        self._decide(
            request.group_id, lambda tail, shown: decide_delete_offsets(tail, request, shown=shown), answer
        )

    def delete(self, group_id: str, answer: Answer) -> None:
        """Answered with None or a KafkaError."""
        self._decide(group_id, lambda tail, shown: decide_delete(tail, shown=shown), answer)

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Topics were deleted: remove their offsets, before anything is committed for a successor of that name."""
        self._deleted_topics |= topics
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        topics = self._deleted_topics
        if not topics:
            return
        for group_id, group in tuple(self._groups.items()):
            before, self._refusal = group.runner.tail, None
            if any(topic in topics for topic, _ in before.offsets):
                self._decide(group_id, lambda tail, _: decide_forget_topics(tail, topics), _nobody_waits)
                if group.runner.tail is before and (self._refusal is None or self._refusal.retriable):
                    return  # not now: the next tick or commit tries again
        self._deleted_topics = frozenset()

    def _decide(self, group_id: str, decide: Callable[[Group, Group], Decision], answer: Answer) -> None:
        """Run a decision about the recorded group, and the group as it is shown."""
        self._ask(
            group_id,
            lambda group: group.runner.handle(lambda tail: decide(tail, group.shown(tail)), answer),
            answer,
        )

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, group_id: str, answer: Answer) -> None:
        """Answered with the Group as committed; one that does not exist has `exists` False."""
        self._decide(group_id, lambda _, shown: Decision(reply=shown), answer)

    def read_all(self, answer: Answer) -> None:
        """Answered with every Group, in a tuple."""
        wanted = len(self._groups)
        groups: list[Any] = []

        def collect(reply: object) -> None:
            groups.append(reply)
            if len(groups) == wanted:
                failed = next((each for each in groups if isinstance(each, KafkaError)), None)
                answer(failed or tuple(each for each in groups if each.exists))

        if not wanted:
            answer(self._lost or ())
        for group_id in tuple(self._groups):
            self.read(group_id, collect)


def _expiring(shown: Group, *, now_ms: int, retention_ms: int) -> Callable[[Group], Decision]:
    return lambda tail: decide_expire_offsets(tail, shown=shown, now_ms=now_ms, retention_ms=retention_ms)


def _nobody_waits(reply: object) -> None:
    """What concerns deleted topics and old offsets is tried again with the next tick or sweep."""
