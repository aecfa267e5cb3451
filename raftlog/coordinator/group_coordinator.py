"""The coordinator of the groups in one partition of `__consumer_offsets`: its requests.

Each group is a state machine over the partition's journal (`base.machine`): it answers once the partition's high
watermark has passed. This module routes requests to groups. `groups` holds them; `group_expiration` handles the passing
of time.

The coordinator does not know partitions, logs or clocks: `append` is injected, and the moment `at` comes with each
call. Requests go to an active coordinator only; its owner unloads it when it loses the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorLoadInProgress, GroupIdNotFound, InvalidSessionTimeout, KafkaError
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.base.recurring_failures import Failures
from raftlog.coordinator.classic.group import ClassicGroup
from raftlog.coordinator.consumer.consumer_group import ConsumerGroup
from raftlog.coordinator.consumer.heartbeat_requests import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_EPOCHS,
    ConsumerGroupHeartbeat,
)
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from raftlog.coordinator.group import NO_GENERATION, DeletedTopics, Group, TransactionEnded
from raftlog.coordinator.group_expiration import SESSIONS_PER_TICK, GroupExpiration
from raftlog.coordinator.group_requests import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
    TxnOffsetCommit,
    WriteTxnMarker,
)
from raftlog.coordinator.groups import AnyGroup, GroupCapacity, Groups
from raftlog.coordinator.offsets import decide_commit, decide_delete, decide_delete_offsets, may_delete
from raftlog.coordinator.partition_writer import Append, PartitionWriter
from raftlog.coordinator.pending_deletion import max_tombstone_batch_bytes, next_tombstone_batch
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactional_offsets import (
    NoTransactions,
    TransactionalWriter,
    decide_commit_in_transaction,
)
from raftlog.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from raftlog.base.group_events import GroupEvent
    from raftlog.coordinator.share.share_group import ShareGroup
    from raftlog.coordinator.share.share_heartbeat import ShareGroupHeartbeat, ShareStatesReady
    from raftlog.coordinator.share.share_offsets import (
        AlterShareOffsets,
        DeleteShareOffsets,
        ShareChangeEnded,
    )


class GroupCoordinator:
    """The groups of one partition, from their load until the partition is lost.

    `topics`: the existing topics, shared by all coordinators of a broker.
    """

    def __init__(
        self,
        config: NodeConfig,
        append: Append,
        *,
        new_uuid: Callable[[], UUID],
        room: GroupCapacity = GroupCapacity(),  # noqa: B008 (a value)
        transactions: TransactionalWriter | None = None,
        topics: TopicRegexResolver | None = None,
    ) -> None:
        self._config = config
        self._new_uuid = new_uuid
        self._transactions = transactions or NoTransactions()
        self._markers: Runner[None] = Runner(None, lambda state, _: state, self._append_end)
        self._open: dict[int, set[str]] = {}
        """The groups in which its transaction may have offsets, by producer id."""
        journal = PartitionWriter(append, self._transactions)
        self._groups = Groups(
            config, journal, room=room, topics=topics or TopicRegexResolver(lambda: EMPTY_IMAGE)
        )
        self._expiration = GroupExpiration(config, self._groups, journal)
        self._lost: KafkaError | None = None

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def failures(self) -> Failures:
        """The timed work that failed for single groups."""
        return self._expiration.failures

    @property
    def pending_join_bytes(self) -> int:
        """About how many bytes the pending member ids take."""
        return self._groups.timer.pending_join_bytes

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory its groups take."""
        return self._groups.memory.bytes

    def recount_memory_bytes(self) -> int:
        """Recount the memory of all groups, to check `memory_bytes`."""
        return self._groups.recount_memory_bytes()

    def load(self, groups: Iterable[Group], *, now: float) -> None:
        """Take over committed groups; it may be called repeatedly. Members get whole sessions."""
        for group in groups:
            self._groups.load(group, now=now)
            self._note_open(group)
        self._expiration.begin(now)

    def _ask(
        self, group_id: str, ask: Callable[[AnyGroup], None], answer: Answer, at: Moment | None = None
    ) -> None:
        """Pass a request to a group, then release what is committed and note the rest.

        `at` comes with all that may change members.
        """
        if self._lost is not None:
            answer(self._lost)
            return
        try:
            group = self._groups.find(group_id)
        except KafkaError as error:
            answer(error)
            return
        try:
            ask(group)
        except KafkaError as error:
            answer(error)
        self._groups.refresh(group, at)

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """Answer the requests that waited for the high watermark `end_offset`."""
        self._markers.committed(end_offset)
        self._groups.committed(end_offset)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting and further requests with `error`: the partition is lost."""
        self._lost = error
        self._markers.stand_down(error)
        self._groups.on_unloaded(error)
        self._expiration.on_unloaded(error)

    # -- members -------------------------------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with JoinGroupResult, MemberIdRequired, or another KafkaError."""
        shortest, longest = (
            self._config.group_min_session_timeout_ms,
            self._config.group_max_session_timeout_ms,
        )
        if not shortest <= request.session_timeout_ms <= longest:
            answer(InvalidSessionTimeout(f"the session timeout must be from {shortest} to {longest} ms"))
            return
        try:
            self._groups.check_capacity(request.group_id)
        except KafkaError as error:
            answer(error)
            return
        prefix = request.member.group_instance_id or request.client_id
        new_id = f"{prefix}-{self._new_uuid()}"
        if self._lost is None and not self._expiration.pending_deletion_of(request.group_id).deletes_group:
            self._groups.delete_empty_consumer_group(request.group_id)

        def ask(group: AnyGroup) -> None:
            self._check_stays(request.group_id)
            group.join(request, answer, new_member_id=new_id, at=at)

        self._ask(request.group_id, ask, answer, at)

    def _check_stays(self, group_id: str) -> None:
        """Raise CoordinatorLoadInProgress while a group is being deleted."""
        if self._expiration.pending_deletion_of(group_id).deletes_group:
            raise CoordinatorLoadInProgress("the group is being deleted")

    def sync(self, request: SyncGroup, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with the member's assignment or a KafkaError."""
        self._ask(request.group_id, lambda group: group.sync(request, answer, at=at), answer, at)

    def heartbeat(self, request: Heartbeat, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with None or a KafkaError."""

        def ask(group: AnyGroup) -> None:
            group.heartbeat(request.member, answer, generation=request.generation, at=at)

        self._ask(request.group_id, ask, answer, at)

    def leave(self, request: LeaveGroup, answer: Answer, *, at: Moment) -> None:
        """Remove the member or release its unused member id. Call `answer` with None or a KafkaError."""

        def ask(group: AnyGroup) -> None:
            group.leave(request.member, answer, at=at, reason=request.reason)

        self._ask(request.group_id, ask, answer, at)

    def consumer_group_heartbeat(self, beat: ConsumerGroupHeartbeat, answer: Answer, *, at: Moment) -> None:
        """Handle a heartbeat of the consumer protocol, which also joins and leaves. Assigns an id if it has none.

        Calls `answer` with ConsumerGroupHeartbeatResult or a KafkaError.
        """
        if not beat.member_id:
            beat = msgspec.structs.replace(beat, member_id=str(self._new_uuid()))
        if self._lost is not None:
            answer(self._lost)
            return
        try:
            self._check_stays(beat.group_id)
            if beat.epoch not in LEAVE_EPOCHS:
                self._groups.check_capacity(beat.group_id)
            group = self._groups.find(beat.group_id)
        except KafkaError as error:
            answer(error)
            return
        if isinstance(group, ConsumerGroup):
            group.consumer_group_heartbeat(beat, answer, at=at)
            self._groups.refresh(group, at)
        elif isinstance(group, ClassicGroup):
            self._groups.try_upgrade(
                group, lambda turned: turned.consumer_group_heartbeat(beat, answer, at=at), at
            )
        else:
            answer(GroupIdNotFound(f"group {beat.group_id} is a share group"))

    # -- members of share groups ---------------------------------------------------------------------------

    def share_group_heartbeat(self, beat: ShareGroupHeartbeat, answer: Answer, *, at: Moment) -> None:
        """Handle a heartbeat of a share group, which also joins and leaves (KIP-932).

        Call `answer` with ShareGroupHeartbeatResult or a KafkaError.
        """

        def ask(group: ShareGroup) -> None:
            self._check_stays(beat.group_id)
            if beat.epoch == JOIN_GROUP_MEMBER_EPOCH:
                self._groups.check_capacity(beat.group_id)
            group.share_group_heartbeat(beat, answer, at=at)

        self._ask_share(beat.group_id, ask, answer, at)

    def share_states_ready(self, ready: ShareStatesReady, answer: Answer, *, at: Moment) -> None:
        """Record which states of partitions are initialized. Call `answer` with None or a KafkaError."""
        self._ask_share(ready.group_id, lambda group: group.states_ready(ready, answer, at=at), answer, at)

    def alter_share_offsets(self, request: AlterShareOffsets, answer: Answer, *, at: Moment) -> None:
        """Begin to set start offsets of a share group without members, which may be new.

        Call `answer` with the ShareStateChange that the broker has to carry out, or a KafkaError.
        """

        def ask(group: ShareGroup) -> None:
            self._check_stays(request.group_id)
            self._groups.check_capacity(request.group_id)
            group.alter_offsets(request, answer, at=at)

        self._ask_share(request.group_id, ask, answer, at)

    def delete_share_offsets(self, request: DeleteShareOffsets, answer: Answer, *, at: Moment) -> None:
        """Begin to delete the offsets of topics. Call `answer` with the ShareStateChange, or a KafkaError."""
        self._ask_share(
            request.group_id, lambda group: group.delete_states(request, answer, at=at), answer, at
        )

    def share_change_ended(self, ended: ShareChangeEnded, answer: Answer, *, at: Moment) -> None:
        """Record what the broker has done of a change. Call `answer` with None or a KafkaError."""
        self._ask_share(ended.group_id, lambda group: group.change_ended(ended, answer, at=at), answer, at)

    def _ask_share(
        self, group_id: str, ask: Callable[[ShareGroup], None], answer: Answer, at: Moment
    ) -> None:
        if self._lost is not None:
            answer(self._lost)
            return
        try:
            group = self._groups.find_share(group_id)
            ask(group)
        except KafkaError as error:
            answer(error)
            return
        self._groups.refresh(group, at)

    # -- time ----------------------------------------------------------------------------------------------

    def next_expiry_at(self) -> float | None:
        """Return when to call `tick` and `sweep` next."""
        return self._expiration.next_at()

    def tick(self, at: Moment, *, most: int = SESSIONS_PER_TICK) -> int:
        """Remove members after their session timeout, end overdue rebalances, and retry failed work.

        Return how many were handled, `most` at most; if more are due, `next_expiry_at` is in the past.
        """
        return self._expiration.tick(at, most)

    def sweep(self, at: Moment, *, most: int) -> int:
        """Continue pending deletions, then the expiry of offsets, for about this many groups; return how many."""
        return self._expiration.sweep(at, most)

    def on_loop_stall(self, seconds: float) -> None:
        """Extend all sessions by a stall of this broker's own loop."""
        self._groups.timer.postpone_all(seconds)

    # -- offsets -------------------------------------------------------------------------------------------

    def commit_offsets(self, request: CommitOffsets, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with one error code per commit, or a KafkaError for all."""
        self._ask(
            request.group_id, lambda group: self._commit(group, request, decide_commit, answer, at), answer
        )

    def commit_in_transaction(self, request: TxnOffsetCommit, answer: Answer, *, at: Moment) -> None:
        """Add the offsets to the transaction. Call `answer` with one error code per commit, or a KafkaError for all."""

        def ask(group: AnyGroup) -> None:
            self._commit(group, request, decide_commit_in_transaction, answer, at)
            self._note_open(group.runner.tail)

        self._ask(request.group_id, ask, answer)

    def _commit(
        self,
        group: AnyGroup,
        request: CommitOffsets | TxnOffsetCommit,
        decide: Callable[..., Decision],
        answer: Answer,
        at: Moment,
    ) -> None:
        most = self._config.offset_metadata_max_bytes
        self._expiration.finish_deletion(group)
        before = group.runner.tail
        shown = group.reader_view(before)

        def decide_now(tail: Group) -> Decision:
            self._groups.check_capacity(request.group_id)
            decision = decide(tail, request, shown=shown, metadata_max=most)
            group.on_member_activity(request.member, at.now)
            return decision

        group.runner.handle(decide_now, answer)
        if request.generation <= NO_GENERATION and group.runner.tail is not before:
            self._groups.history.committed_from_outside(request, before, at)

    def end_transaction(self, end: WriteTxnMarker, answer: Answer) -> None:
        """Commit or drop a transaction's offsets; answered with None once its marker is committed."""
        self._markers.handle(lambda _: Decision((end,)), answer)
        self._markers.committed(self._groups.committed_offset)

    def _append_end(self, ends: tuple[WriteTxnMarker, ...]) -> int:
        """A single marker ends the transaction for all groups that the producer wrote to."""
        (end,) = ends
        end_offset = self._transactions.append_end_marker(end)
        for group_id in sorted(self._open.pop(end.producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                ended = TransactionEnded(group_id, end.producer_id, end.commit)
                self._groups.apply_appended(group, (ended,), end_offset)
        return end_offset

    def _note_open(self, group: Group) -> None:
        for producer_id in group.pending:
            self._open.setdefault(producer_id, set()).add(group.group_id)

    def delete_offsets(self, request: DeleteOffsets, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with one error code per partition, or a KafkaError for all."""

        def ask(group: AnyGroup) -> None:
            self._expiration.finish_deletion(group)
            before = group.runner.tail
            group.runner.handle(
                lambda tail: decide_delete_offsets(tail, request, shown=group.reader_view(tail)), answer
            )
            if group.runner.tail is not before:
                self._groups.history.offsets_deleted(group.runner.tail, before, request.partitions, at)

        self._ask(request.group_id, ask, answer)

    def delete(self, request: DeleteGroup, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with None or a KafkaError. Calls of `sweep` delete a large group slice by slice.

        Of a share group with states, the answer is the ShareStateChange that comes before its deletion.
        """
        group_id = request.group_id

        def ask(group: AnyGroup) -> None:
            tail = group.runner.tail
            if tail.share is not None and tail.share.has_states:
                self._delete_share_states(group_id, answer, at)
                return
            most = max_tombstone_batch_bytes(self._config.message_max_bytes)
            is_large = not next_tombstone_batch(group_id, tail.partitions(), most_bytes=most).is_all
            if self._expiration.pending_deletion_of(group_id).deletes_group or (
                is_large and may_delete(group.reader_view(tail))
            ):
                self._expiration.delete_group(group_id, answer)
                self._groups.history.deleted(group_id, at)
            else:
                group.runner.handle(lambda tail: decide_delete(tail, shown=group.reader_view(tail)), answer)
                if group.runner.tail is not tail:
                    self._groups.history.deleted(group_id, at)

        self._ask(group_id, ask, answer)

    def _delete_share_states(self, group_id: str, answer: Answer, at: Moment) -> None:
        from raftlog.coordinator.share.share_offsets import DeleteShareOffsets

        self._groups.find_share(group_id).delete_states(DeleteShareOffsets(group_id, None), answer, at=at)

    def offset_count_of(self, group_id: str) -> int:
        """Return how many offsets a group has."""
        group = self._groups.get(group_id)
        return 0 if group is None else group.runner.tail.offset_count

    def on_topics_deleted(self, topics: DeletedTopics) -> None:
        """Delete the offsets of deleted topics, in each group before any commit for a new topic of the name."""
        self._expiration.on_topics_deleted(topics)

    def delete_topic_offsets(self, topics: Mapping[str, DeletedTopics]) -> None:
        """Delete the offsets of deleted topics that were found while some groups were loaded."""
        self._expiration.delete_topic_offsets(topics)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, group_id: str, answer: Answer) -> None:
        """Call `answer` with the committed Group. Its `exists` is False for a missing group."""

        def ask(group: AnyGroup) -> None:
            self._check_stays(group_id)
            deletion = self._expiration.pending_deletion_of(group_id)
            group.runner.handle(
                lambda tail: Decision(reply=deletion.without_deleted(group.reader_view(tail))), answer
            )

        self._ask(group_id, ask, answer)

    def events_of(self, group_id: str) -> tuple[list[GroupEvent], int]:
        """Return a group's events, oldest first, and how many older events were evicted."""
        return self._groups.history.of(group_id)

    def events_known_since_ms(self, group_id: str, loaded_at_ms: int) -> int:
        """Return since when all events of a group are known, except evicted events."""
        return self._groups.history.known_since_ms(group_id, loaded_at_ms)

    def group_ids(self) -> list[str]:
        """Return the names of all groups, including groups with an uncommitted end."""
        return self._groups.ids()

    def read_some(self, group_ids: Sequence[str], answer: Answer) -> None:
        """Call `answer` with a tuple of the Groups that exist and are not being deleted."""
        wanted = [each for each in group_ids if not self._expiration.pending_deletion_of(each).deletes_group]
        groups: list[Any] = []

        def collect(reply: object) -> None:
            groups.append(reply)
            if len(groups) == len(wanted):
                failed = next((each for each in groups if isinstance(each, KafkaError)), None)
                answer(failed or tuple(each for each in groups if each.exists))

        if not wanted:
            answer(self._lost or ())
        for group_id in wanted:
            self.read(group_id, collect)
