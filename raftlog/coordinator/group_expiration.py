"""Timeouts of a partition's groups, in bounded work per call.

Sessions end, offsets expire (KIP-211), and deletions too large for a batch proceed slice by slice (`pending_deletion`):
offsets of deleted topics, and deleted groups. Only a DeleteGroups request waits for it, and a commit in a group with a
pending deletion. Each group fails alone: it is noted in `failures`, skipped for a while, and retried. Only a broken
invariant (AssertionError) is not contained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorLoadInProgress, KafkaError
from raftlog.base.machine import Answer, Decision, ignore_reply
from raftlog.base.recurring_failures import FIRST_RETRY_S, Failures
from raftlog.coordinator.classic.group import ClassicGroup
from raftlog.coordinator.group import DeletedTopics, Group
from raftlog.coordinator.groups import AnyGroup, Groups
from raftlog.coordinator.offsets import decide_expire_offsets
from raftlog.coordinator.partition_writer import PartitionWriter
from raftlog.coordinator.pending_deletion import (
    PAUSE_S,
    RETRY_S,
    PendingDeletion,
    max_tombstone_batch_bytes,
)
from raftlog.coordinator.timer import Moment, TimerKey, TimerKind

GROUPS_PER_SWEEP: Final = 200
"""Groups of a broker that are checked for expired offsets before the loop runs other tasks."""

SESSIONS_PER_TICK: Final = 200
"""Sessions of a broker that are ended before the loop runs other tasks."""

RECORDS_PER_GROUP: Final = 20
"""This many tombstones, or offsets that are checked, count as one group."""

SWEPT_OFFSETS: Final = 2_000
"""A group of more offsets is checked some topics at a time."""

MS_PER_MINUTE: Final = 60_000

SESSIONS: Final = "group_sessions"
OFFSETS: Final = "offset_expiry"
REMOVAL: Final = "group_removal"
"""The recurring work, by its name among the failures."""

TIMEOUTS: Final = {TimerKind.SESSION: "session_timed_out", TimerKind.REBALANCE: "rebalance_timed_out"}
"""The reasons for a session timeout and a rebalance timeout."""

NO_PENDING_DELETION: Final = PendingDeletion()
NO_TOPICS: Final[tuple[str, ...]] = ()


Part = tuple[str, ...] | None
"""Topics of a group that are checked together; None: all."""


class _Look(NamedTuple):
    """The group that is checked, and its parts; None: not known yet."""

    group_id: str
    parts: Iterator[Part] | None = None


class GroupExpiration:
    """The timeouts of all groups of one partition."""

    def __init__(self, config: NodeConfig, groups: Groups, journal: PartitionWriter) -> None:
        self._config = config
        self._groups = groups
        self._journal = journal
        self._deletions: dict[str, PendingDeletion] = {}
        """The pending deletions, by group."""
        self._deletions_at = 0.0
        self._to_sweep: deque[_Look] = deque()
        self._sweeps_at = 0.0
        self.failures = Failures()

    def _try(self, chore: str, group_id: str, now: float, work: Callable[[], int]) -> int | None:
        """Return the result of the work for one group; None if it failed, now or recently."""
        return self.failures.attempt(chore, group_id, now, work, raises=AssertionError)

    def begin(self, now: float) -> None:
        """Start after the load of the groups: the first check for expired offsets is an interval later."""
        self._sweeps_at = now + self._config.offsets_retention_check_interval_ms / 1000

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all pending DeleteGroups requests."""
        for deletion in self._deletions.values():
            deletion.answer(error)

    def next_at(self) -> float | None:
        """Return when to call `tick` and `sweep` next."""
        due = [self._deletions_at] if self._deletions else []
        if self._groups.topics.has_work:
            due.append(self._groups.topics.due_at)
        expires_at = self._groups.timer.next_expiry_at()
        if expires_at is not None:
            due.append(expires_at)
        return min(due, default=None)

    # -- sessions ------------------------------------------------------------------------------------------

    def tick(self, at: Moment, most: int) -> int:
        """Remove members after their session timeout, end overdue rebalances, and retry failed work.

        Return how many were handled, `most` at most.
        """
        keys = self._groups.timer.pop_expired(at.now, most)
        ended: dict[tuple[str, TimerKind], list[TimerKey]] = {}
        for key in keys:
            group = self._groups.get(key.group_id)
            if group is None:
                continue
            if not isinstance(group, ClassicGroup) and key.kind is not TimerKind.PENDING_JOIN:
                ended.setdefault((key.group_id, key.kind), []).append(key)
            else:
                self._end_sessions(key.group_id, [key], at, partial(_tell, group, key, at))
        for (group_id, kind), of_group in ended.items():
            group = self._groups.get(group_id)
            if group is not None and not isinstance(
                group, ClassicGroup
            ):  # otherwise its last members have just left
                member_ids = [key.member_id for key in of_group]
                tell = partial(group.on_member_timeouts, member_ids, at, what=TIMEOUTS[kind])
                self._end_sessions(group_id, of_group, at, tell)
        return len(keys)

    def _end_sessions(
        self, group_id: str, keys: list[TimerKey], at: Moment, tell: Callable[[], None]
    ) -> None:
        """End sessions of a group; on failure they end again later."""
        group = self._groups.get(group_id)
        assert group is not None

        def work() -> int:
            tell()
            self._groups.refresh(group, at)
            return len(keys)

        if self._try(SESSIONS, group_id, at.now, work) is None:
            for key in keys:
                self._groups.timer.schedule(key, at.now + FIRST_RETRY_S)

    # -- offsets that expire -------------------------------------------------------------------------------

    def sweep(self, at: Moment, most: int) -> int:
        """Continue pending deletions, then the expiry of offsets, for about this many groups; return how many.

        A slice of a large group counts as many.
        """
        self._groups.topics.run_slice(at.now)
        looked = self._work_off(at.now, most)
        if not self._to_sweep and at.now >= self._sweeps_at:
            self._sweeps_at = at.now + self._config.offsets_retention_check_interval_ms / 1000
            self._to_sweep.extend(map(_Look, self._groups.ids()))
        while self._to_sweep and looked < most:
            look = self._to_sweep.popleft()
            work = partial(self._look_through, look, at.now_ms)
            counted = self._try(OFFSETS, look.group_id, at.now, work)
            looked += 1 if counted is None else counted
        return looked

    def _look_through(self, look: _Look, now_ms: int) -> int:
        """Expire offsets, in a large group those of its next topics; return the number of groups it counts as."""
        group = self._groups.get(look.group_id)
        if group is None or look.group_id in self._deletions:
            return 1
        before = group.runner.tail
        parts = look.parts or _parts(before)
        part = next(parts, NO_TOPICS)
        if part == NO_TOPICS:
            return 0
        if part is not None:
            self._to_sweep.appendleft(_Look(look.group_id, parts))
        group.runner.handle(self._expiring(group.reader_view(before), part, now_ms), ignore_reply)
        after = group.runner.tail
        gone = before.offset_count - after.offset_count if after is not before else 0
        if gone or after.exists is not before.exists:
            self._groups.history.offsets_expired(look.group_id, gone, now_ms, is_all=not after.exists)
        if after is not before and after.offsets:
            self._to_sweep.append(_Look(look.group_id, iter((part,))))  # it may have been only a slice
        self._groups.refresh(group)
        looked_at = before.offsets.topics() if part is None else part
        return 1 + sum(len(before.offsets.of_topic(each)) for each in looked_at) // RECORDS_PER_GROUP

    def _expiring(self, shown: Group, topics: Part, now_ms: int) -> Callable[[Group], Decision]:
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        most = max_tombstone_batch_bytes(self._config.message_max_bytes)
        return lambda tail: decide_expire_offsets(
            tail, shown=shown, now_ms=now_ms, retention_ms=retention_ms, topics=topics, most_bytes=most
        )

    # -- what goes bit by bit ------------------------------------------------------------------------------

    def pending_deletion_of(self, group_id: str) -> PendingDeletion:
        """Return the pending deletion of a group."""
        return self._deletions.get(group_id, NO_PENDING_DELETION)

    def _new_deletion(self) -> PendingDeletion:
        return PendingDeletion(most_bytes=max_tombstone_batch_bytes(self._config.message_max_bytes))

    def delete_group(self, group_id: str, answer: Answer) -> None:
        """Delete a group slice by slice; answered with None or a KafkaError at the end."""
        deletion = self._deletions.setdefault(group_id, self._new_deletion())
        deletion.answers.append(answer)
        if not deletion.deletes_group:
            deletion.deletes_group = True
            self._deletions_at = 0.0

    def on_topics_deleted(self, topics: DeletedTopics) -> None:
        """Delete the offsets of deleted topics, in each group before any commit for a new topic of the name."""
        self.delete_topic_offsets(dict.fromkeys(self._groups.ids() if topics else (), topics))

    def delete_topic_offsets(self, topics: Mapping[str, DeletedTopics]) -> None:
        """Delete the offsets of deleted topics in some groups."""
        for group_id, gone in topics.items():
            self._deletions.setdefault(group_id, self._new_deletion()).add_topics(gone)
        self._deletions_at = 0.0

    def finish_deletion(self, group: AnyGroup) -> None:
        """Complete a small pending deletion of a group. Raise KafkaError if one remains."""
        deletion = self._deletions.get(group.group_id)
        if deletion is not None and not deletion.deletes_group:
            self._take_slice(group)
        if group.group_id in self._deletions:
            raise (deletion and deletion.last_error) or CoordinatorLoadInProgress("offsets are being removed")

    def _work_off(self, now: float, most: int) -> int:
        """Continue the pending deletions of some groups; return the number of groups it counts as."""
        looked, is_at_work = 0, False
        if now < self._deletions_at:
            return looked
        self._deletions_at = now + PAUSE_S
        for group_id in tuple(self._deletions) if self._deletions else ():
            if looked >= most:
                break
            group = self._groups.get(group_id)
            if group is None:
                self._deletions.pop(group_id).answer(None)
                continue
            removed = self._try(REMOVAL, group_id, now, partial(self._take_slice, group))
            looked += 1 + (removed or 0) // RECORDS_PER_GROUP
            deletion = self._deletions.get(group_id)
            if removed is None and deletion is not None:
                self._put_off(group_id, deletion)
                continue
            if deletion is not None and deletion.last_error is not None:
                self._put_off(group_id, deletion)
                self._deletions_at = now + RETRY_S
                break
            is_at_work = True
        if self._deletions and not is_at_work:
            self._deletions_at = now + RETRY_S
        return looked

    def _put_off(self, group_id: str, deletion: PendingDeletion) -> None:
        """Put a deletion that fails now behind all others."""
        del self._deletions[group_id]
        self._deletions[group_id] = deletion

    def _take_slice(self, group: AnyGroup) -> int:
        """Remove the next slice of a pending deletion; return the number of offsets."""
        deletion = self._deletions[group.group_id]
        before, self._journal.last_error = group.runner.tail, None
        if not deletion.is_done(before):
            group.runner.handle(deletion.decide_next_batch, ignore_reply)
        after = group.runner.tail
        deletion.last_error = self._journal.last_error if after is before else None
        if deletion.last_error is not None and (deletion.deletes_group or not deletion.last_error.retriable):
            group.runner.handle(_refusing(deletion.last_error), deletion.cancel_group_deletion().answer)
            if not deletion.topics or not deletion.last_error.retriable:
                del self._deletions[group.group_id]
        elif deletion.is_done(after):
            group.runner.handle(_nothing, deletion.answer)
            del self._deletions[group.group_id]
        self._groups.refresh(group)
        return before.offset_count - after.offset_count


def _parts(group: Group) -> Iterator[Part]:
    """Yield the parts that are checked together: all of a small group, about SWEPT_OFFSETS offsets of a large group."""
    if len(group.offsets) <= SWEPT_OFFSETS:
        yield None
        return
    part: list[str] = []
    count = 0
    for topic in group.offsets.topics():
        part.append(topic)
        count += len(group.offsets.of_topic(topic))
        if count >= SWEPT_OFFSETS:
            yield tuple(part)
            part, count = [], 0
    yield tuple(part)


def _tell(group: AnyGroup, key: TimerKey, at: Moment) -> None:
    if key.kind is TimerKind.PENDING_JOIN:
        group.on_pending_join_timeout(at)
    elif isinstance(group, ClassicGroup):
        group.on_session_timeout(
            key.member_id, at
        ) if key.kind is TimerKind.SESSION else group.on_rebalance_timeout(at)


def _refusing(error: KafkaError) -> Callable[[Group], Decision]:
    def decide(_: Group) -> Decision:
        raise error

    return decide


def _nothing(_: Group) -> Decision:
    return Decision()
