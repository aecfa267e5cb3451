"""One share group: its recorded state (a runner) and the sessions of its members (KIP-932).

Each request is a decision on the tail, answered once it is committed. The ends of sessions are soft, and so is when the
broker was last asked to make the states of partitions. A new coordinator asks again, and asking twice has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from raftlog.base.config import NodeConfig, group_config
from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    KafkaError,
    UnknownMemberId,
)
from raftlog.base.machine import Answer, Decision, Runner, ignore_reply
from raftlog.coordinator.consumer.decision_builder import DecisionContext, TooManySubscribedTopics
from raftlog.coordinator.consumer.heartbeat_requests import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
)
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from raftlog.coordinator.group import Group
from raftlog.coordinator.group_records import batch_bytes
from raftlog.coordinator.group_requests import JoinGroup, MemberRef, SyncGroup
from raftlog.coordinator.share.share_heartbeat import (
    ShareDecisionBuilder,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareStatesReady,
    ShareStateWork,
    check_share_heartbeat,
    decide_share_heartbeat,
    decide_share_leave,
)
from raftlog.coordinator.share.share_membership import ShareMembership
from raftlog.coordinator.share.share_offsets import (
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareChangeEnded,
    decide_alter_offsets,
    decide_change_ended,
    decide_delete_states,
)
from raftlog.coordinator.timer import CoordinatorTimer, Moment, TimerKey

if TYPE_CHECKING:
    from raftlog.coordinator.group_history import GroupHistory

CHANGE_S: Final = 5.0
"""Time for what a change takes beside the commits of share coordinators."""

RETRY_S: Final = 1.0
"""Retry of a timeout that could not be recorded."""

Write = Callable[[ShareDecisionBuilder], object]
"""Writes a request into a decision builder; returns the reply."""


class ShareGroup:
    """Requests are answered with a reply or a KafkaError, once each."""

    def __init__(
        self,
        runner: Runner[Group],
        timer: CoordinatorTimer,
        config: NodeConfig,
        *,
        topics: TopicRegexResolver,
        history: GroupHistory,
        first_epoch: Callable[[], int],
    ) -> None:
        self.runner = runner
        self.group_id = runner.tail.group_id
        self._timer = timer
        self._config = config
        self._topics = topics
        self._history = history
        self._first_epoch = first_epoch
        self._topics_seen: int | None = None
        """The topics as the last decision saw them: the image's `topics_offset`."""
        self._retry_s = (
            max(config.group_share_initialize_retry_interval_ms, config.offsets_commit_timeout_ms) / 1000
        )
        self._asked: tuple[float, ShareStateWork] | None = None
        """When the broker was last asked to initialize states, and which."""
        self._changing_until = 0.0
        """The end of a change by an administrator, or the time by which it has failed."""

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def recorded(self) -> ShareMembership | None:
        return self.runner.tail.share

    @property
    def is_removable(self) -> bool:
        """Whether the group is neither recorded nor waited for, so that its object can be dropped."""
        return not (self.runner.parked or self.runner.tail.exists)

    def reader_view(self, group: Group) -> Group:
        """Return the group as describe requests see it: here the recorded state."""
        return group

    def on_loaded(self, now: float) -> None:
        """Begin as its new coordinator: every member gets a whole session."""
        for member_id in self.recorded.consumer.members if self.recorded else ():
            self._renew(member_id, now)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting requests with `error`."""
        self.runner.stand_down(error)

    def on_member_activity(self, ref: MemberRef, now: float) -> None:
        """Ignore it: share groups commit no offsets."""

    # -- members -------------------------------------------------------------------------------------------

    def share_group_heartbeat(self, beat: ShareGroupHeartbeat, answer: Answer, *, at: Moment) -> None:
        """Add, update or remove a member, and call `answer` with ShareGroupHeartbeatResult."""
        leaves = beat.epoch == LEAVE_GROUP_MEMBER_EPOCH

        def write(builder: ShareDecisionBuilder) -> object:
            if not leaves:
                return decide_share_heartbeat(builder, beat)
            decide_share_leave(builder, (beat.member_id,))
            return ShareGroupHeartbeatResult(beat.member_id, beat.epoch)

        def decide(group: Group) -> Decision:
            check_share_heartbeat(beat)
            if group.share is None and beat.epoch != JOIN_GROUP_MEMBER_EPOCH:
                raise GroupIdNotFound(f"group {self.group_id} does not exist")
            if beat.epoch == JOIN_GROUP_MEMBER_EPOCH:
                self._check_unchanged(at)
            return self._decision(group, write, at)

        if self._run(decide, answer, at) and not leaves:
            self._renew(beat.member_id, at.now)

    def states_ready(self, ready: ShareStatesReady, answer: Answer, *, at: Moment) -> None:
        """Record initialized states, and call `answer` with None."""

        def decide(group: Group) -> Decision:
            if group.share is None:
                raise GroupIdNotFound(f"group {self.group_id} does not exist")
            return self._decision(group, lambda builder: builder.note_ready(ready), at)

        self._asked = None  # the broker has tried: what is missing is due with the next heartbeat
        self._run(decide, answer, at)

    # -- administrators ------------------------------------------------------------------------------------

    def alter_offsets(self, request: AlterShareOffsets, answer: Answer, *, at: Moment) -> None:
        """Begin to set start offsets, and call `answer` with the ShareStateChange. The group may be new."""
        self._begin_change(
            lambda builder: decide_alter_offsets(builder, request), answer, at, may_create=True
        )

    def delete_states(self, request: DeleteShareOffsets, answer: Answer, *, at: Moment) -> None:
        """Begin to delete the states of topics, and call `answer` with the ShareStateChange."""
        self._begin_change(lambda builder: decide_delete_states(builder, request), answer, at)

    def change_ended(self, ended: ShareChangeEnded, answer: Answer, *, at: Moment) -> None:
        """Record what a change has done, and call `answer` with None."""
        self._changing_until = 0.0

        def decide(group: Group) -> Decision:
            if group.share is None:
                raise GroupIdNotFound(f"group {self.group_id} does not exist")
            return self._decision(group, lambda builder: decide_change_ended(builder, ended), at)

        self._run(decide, answer, at)

    def _begin_change(self, write: Write, answer: Answer, at: Moment, *, may_create: bool = False) -> None:
        """Decide a change. No member joins until it has ended: its states could be initialized meanwhile."""
        within_s = self._config.share_coordinator_write_timeout_ms / 1000 + CHANGE_S
        has_begun = False

        def decide(group: Group) -> Decision:
            nonlocal has_begun
            if group.share is None and not may_create:
                raise GroupIdNotFound(f"group {self.group_id} does not exist")
            self._check_unchanged(at)
            decision = self._decision(group, write, at)
            if decision.reply:
                has_begun = True
                self._changing_until = at.now + within_s
            elif group.share is None:
                return Decision(reply=decision.reply)  # no group is made for nothing
            return decision

        def answered(reply: object) -> None:
            if isinstance(reply, KafkaError) and has_begun:
                self._changing_until = 0.0
            answer(reply)

        self._run(decide, answered, at)

    def _check_unchanged(self, at: Moment) -> None:
        """Raise CoordinatorLoadInProgress during a change by an administrator: clients try again."""
        if at.now < self._changing_until:
            raise CoordinatorLoadInProgress(f"the offsets of group {self.group_id} are being changed")

    # -- time ----------------------------------------------------------------------------------------------

    def on_member_timeouts(self, member_ids: Sequence[str], at: Moment, *, what: str) -> None:
        """Remove members after a session timeout. `what` is the event for `GroupHistory`."""
        members = self.recorded.consumer.members if self.recorded else {}
        present = [each for each in member_ids if each in members]
        if not present:
            return
        before = self.recorded
        write: Write = lambda builder: decide_share_leave(builder, present)  # noqa: E731
        self._run(lambda group: self._decision(group, write, at), ignore_reply, at, gone=what)
        if self.recorded is before:
            for each in present:
                self._timer.schedule(TimerKey(self.group_id, each), at.now + RETRY_S)

    def on_pending_join_timeout(self, at: Moment) -> None:
        """Ignore it: members of share groups choose their ids themselves."""

    # -- members of other protocols ------------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, new_member_id: str, at: Moment) -> None:
        """Refuse a member of the classic protocol."""
        answer(InconsistentGroupProtocol(f"group {self.group_id} is a share group"))

    def sync(self, request: SyncGroup, answer: Answer, *, at: Moment) -> None:
        """Refuse a member of the classic protocol."""
        answer(UnknownMemberId(f"group {self.group_id} is a share group"))

    def heartbeat(self, ref: MemberRef, answer: Answer, *, generation: int, at: Moment) -> None:
        """Refuse a member of the classic protocol."""
        answer(UnknownMemberId(f"group {self.group_id} is a share group"))

    def leave(self, ref: MemberRef, answer: Answer, *, at: Moment, reason: str = "") -> None:
        """Refuse a member of the classic protocol."""
        answer(UnknownMemberId(f"group {self.group_id} is a share group"))

    # -- deciding ------------------------------------------------------------------------------------------

    def _decision(self, group: Group, write: Write, at: Moment) -> Decision:
        """Return the consequences of a request. Raise GroupMaxSizeReached if they do not fit into a batch."""
        image = self._topics.image()
        around = DecisionContext(
            image,
            self._topics,
            at.now_ms,
            most_members=self._config.group_share_max_size,
            topics_changed=image.topics_offset != self._topics_seen,
            now=at.now,
            first_epoch=self._first_epoch(),
        )
        builder = ShareDecisionBuilder(self.group_id, group.share, around)
        try:
            reply = write(builder)
        except TooManySubscribedTopics as error:
            raise GroupMaxSizeReached("the members of a group read too many topics") from error
        records = builder.share_records
        if records and batch_bytes(records) > self._config.message_max_bytes:
            raise GroupMaxSizeReached(
                "the members' assignments do not fit into a batch of the group's journal"
            )
        if builder.checked_topics:
            self._topics_seen = image.topics_offset
        if isinstance(reply, ShareGroupHeartbeatResult) and reply.epoch != LEAVE_GROUP_MEMBER_EPOCH:
            reply = msgspec.structs.replace(reply, work=self._due_work(builder.work, at.now))
        return Decision(records, reply)

    def _due_work(self, work: ShareStateWork | None, now: float) -> ShareStateWork | None:
        """Return the work that the broker was not asked for yet, or so long ago that it may have failed."""
        if work is None or self._asked is None:
            is_due = work is not None
        else:
            asked_at, before = self._asked
            is_due = before.topics != work.topics or now - asked_at >= self._retry_s
        if work is None:
            self._asked = None
        elif is_due:
            self._asked = now, work
        return work if is_due else None

    def _run(
        self, decide: Callable[[Group], Decision], answer: Answer, at: Moment, *, gone: str = "member_left"
    ) -> bool:
        """Decide, and set the sessions of members that left; return whether the request was accepted."""
        before, accepted = self.runner.tail, False

        def decided(group: Group) -> Decision:
            nonlocal accepted
            decision = decide(group)
            accepted = True
            return decision

        def answered(reply: object) -> None:
            if isinstance(reply, KafkaError):  # what was decided may not be written
                self._topics_seen = self._asked = None
            answer(reply)

        self.runner.handle(decided, answered)
        after = self.runner.tail
        if after is before:
            return accepted
        self._history.members_changed(after, before, at, gone=gone)
        had, has = (each.share.consumer.members if each.share else {} for each in (before, after))
        for member_id in had.keys() - has.keys():
            self._timer.cancel(TimerKey(self.group_id, member_id))
        return accepted

    def _renew(self, member_id: str, now: float) -> None:
        if self.recorded is not None and member_id in self.recorded.consumer.members:
            own = self._topics.image().config("group", self.group_id)
            timeout_s = group_config(self._config, own).share_session_timeout_ms / 1000
            self._timer.schedule(TimerKey(self.group_id, member_id), now + timeout_s)
