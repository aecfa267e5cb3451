"""The coordinator of the groups in one partition of `__consumer_offsets`: what one may ask it.

Each group is a state machine of its own over the partition's journal: decide on its tail, append, apply, answer once
the partition's high watermark has passed. Here every request finds its group. The groups themselves are held by
`groups`; what becomes of them as time passes is `upkeep`'s duty.

The coordinator knows nothing of partitions, logs or time: `append` is given, `now` (loop seconds) and `now_ms` come
with the calls. Requests go to an active coordinator only; whoever owns it stands it down when it loses the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorLoadInProgress, InvalidSessionTimeout, KafkaError
from raftlog.base.failures import Failures
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.chores import first_slice, slice_bytes
from raftlog.coordinator.consumer.group import ConsumerGroup
from raftlog.coordinator.consumer.requests import LEAVES, Beat
from raftlog.coordinator.consumer.topics import Topics
from raftlog.coordinator.group import Gone, Group, TransactionEnded
from raftlog.coordinator.groups import AnyGroup, Groups, Room
from raftlog.coordinator.journal import Append, Journal
from raftlog.coordinator.moment import Moment
from raftlog.coordinator.offsets import decide_commit, decide_delete, decide_delete_offsets, may_delete
from raftlog.coordinator.pending import (
    NoTransactions,
    TransactionalJournal,
    decide_commit_in_transaction,
)
from raftlog.coordinator.records import LONGEST_STRING_BYTES
from raftlog.coordinator.requests import (
    CommitInTransaction,
    CommitOffsets,
    DeleteOffsets,
    JoinGroup,
    MemberRef,
    SyncGroup,
    TransactionEnd,
)
from raftlog.coordinator.upkeep import ENDED_AT_ONCE, Upkeep
from raftlog.metadata.image import EMPTY_IMAGE


class GroupCoordinator:
    """The groups of one partition, from when they were read back until the partition is lost.

    `topics` says which there are, to all coordinators of a broker.
    """

    def __init__(
        self,
        config: NodeConfig,
        append: Append,
        *,
        new_uuid: Callable[[], UUID],
        room: Room = Room(),  # noqa: B008 (a value)
        transactions: TransactionalJournal | None = None,
        topics: Topics | None = None,
    ) -> None:
        self._config = config
        self._new_uuid = new_uuid
        self._transactions = transactions or NoTransactions()
        self._markers: Runner[None] = Runner(None, lambda state, _: state, self._append_end)
        self._open: dict[int, set[str]] = {}
        """By producer id, the groups in which its transaction may have offsets."""
        journal = Journal(append, self._transactions)
        self._groups = Groups(config, journal, room=room, topics=topics or Topics(lambda: EMPTY_IMAGE))
        self._upkeep = Upkeep(config, self._groups, journal)
        self._lost: KafkaError | None = None

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def failures(self) -> Failures:
        """What could not be done for single groups as time passed."""
        return self._upkeep.failures

    @property
    def unused_id_bytes(self) -> int:
        """About what the member ids take that were given out and not yet used."""
        return self._groups.sessions.expected_bytes

    @property
    def kept_bytes(self) -> int:
        """About what its groups take in memory."""
        return self._groups.memory.bytes

    def weighed_bytes(self) -> int:
        """Weigh all groups anew, for whoever checks `kept_bytes`."""
        return self._groups.weighed_bytes()

    def load(self, groups: Iterable[Group], *, now: float) -> None:
        """Take over groups, all of them committed; may be called with some at a time. Members get whole sessions."""
        for group in groups:
            self._groups.load(group, now=now)
            self._note_open(group)
        self._upkeep.begin(now)

    def _ask(
        self, group_id: str, ask: Callable[[AnyGroup], None], answer: Answer, at: Moment | None = None
    ) -> None:
        """Let a group deal with a request, then release what is committed and note what is not.

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
        self._groups.settle(group, at)

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """The partition's high watermark is at `end_offset`: answer what rests on it."""
        self._markers.committed(end_offset)
        self._groups.committed(end_offset)

    def stand_down(self, error: KafkaError) -> None:
        """The partition is lost: answer all that waits, and whatever still comes, with `error`."""
        self._lost = error
        self._markers.stand_down(error)
        self._groups.stand_down(error)
        self._upkeep.stand_down(error)

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
            self._groups.check_room(request.group_id)
        except KafkaError as error:
            answer(error)
            return
        prefix = request.member.group_instance_id or request.client_id
        new_id, at = f"{prefix}-{self._new_uuid()}", Moment(now, now_ms)
        if self._lost is None and not self._upkeep.chore_of(request.group_id).ends:
            self._groups.end_empty(request.group_id)

        def ask(group: AnyGroup) -> None:
            self._check_stays(request.group_id)
            group.join(request, answer, new_member_id=new_id, at=at)

        self._ask(request.group_id, ask, answer, at)

    def _check_stays(self, group_id: str) -> None:
        """Raises CoordinatorLoadInProgress while a group is being deleted."""
        if self._upkeep.chore_of(group_id).ends:
            raise CoordinatorLoadInProgress("the group is being deleted")

    def sync(self, request: SyncGroup, answer: Answer, *, now: float, now_ms: int) -> None:
        """Answered with Synced or a KafkaError."""
        at = Moment(now, now_ms)
        self._ask(request.group_id, lambda group: group.sync(request, answer, at=at), answer, at)

    def heartbeat(
        self, group_id: str, member: MemberRef, answer: Answer, *, generation: int, now: float
    ) -> None:
        """Answered with None or a KafkaError."""
        at = Moment(now, 0)
        self._ask(
            group_id, lambda group: group.heartbeat(member, answer, generation=generation, at=at), answer, at
        )

    def leave(self, group_id: str, member: MemberRef, answer: Answer, *, now: float, now_ms: int) -> None:
        """Answered with None or a KafkaError. An id that was given out and never used is given back."""
        at = Moment(now, now_ms)
        self._ask(group_id, lambda group: group.leave(member, answer, at=at), answer, at)

    def beat(self, beat: Beat, answer: Answer, *, now: float, now_ms: int) -> None:
        """The consumer protocol's heartbeat, which also joins and leaves. Answered with Heard or a KafkaError."""
        if self._lost is not None:
            answer(self._lost)
            return
        try:
            self._check_stays(beat.group_id)
            if beat.epoch not in LEAVES:
                self._groups.check_room(beat.group_id)
            group = self._groups.find(beat.group_id)
        except KafkaError as error:
            answer(error)
            return
        at = Moment(now, now_ms)
        if isinstance(group, ConsumerGroup):
            group.beat(beat, answer, at=at)
            self._groups.settle(group, at)
        else:
            self._groups.turn_if_heard(group, lambda turned: turned.beat(beat, answer, at=at), at)

    # -- time ----------------------------------------------------------------------------------------------

    def next_expiry_at(self) -> float | None:
        """When to call `tick` and `sweep` next."""
        return self._upkeep.next_at()

    def tick(self, *, now: float, now_ms: int, most: int = ENDED_AT_ONCE) -> int:
        """Take out the members whose session has ended, end rebalances whose time is up; try again what failed.

        Returns how many it were, `most` at most: for others `next_expiry_at` is over.
        """
        return self._upkeep.tick(Moment(now, now_ms), most)

    def sweep(self, *, now: float, now_ms: int, most: int) -> int:
        """Go on with what has to go, then with expired offsets, for about so many groups; returns how many."""
        return self._upkeep.sweep(Moment(now, now_ms), most)

    def stalled(self, seconds: float) -> None:
        """This broker itself stood still for so long: nobody's session ends for that."""
        self._groups.sessions.shift(seconds)

    # -- offsets -------------------------------------------------------------------------------------------

    def commit_offsets(self, request: CommitOffsets, answer: Answer, *, now: float) -> None:
        """Answered with one error code per commit, or a KafkaError for all."""
        self._ask(
            request.group_id, lambda group: self._commit(group, request, decide_commit, answer, now), answer
        )

    def commit_in_transaction(self, request: CommitInTransaction, answer: Answer, *, now: float) -> None:
        """Answered with one error code per commit, or a KafkaError for all; they count when the transaction commits."""

        def ask(group: AnyGroup) -> None:
            self._commit(group, request, decide_commit_in_transaction, answer, now)
            self._note_open(group.runner.tail)

        self._ask(request.group_id, ask, answer)

    def _commit(
        self,
        group: AnyGroup,
        request: CommitOffsets | CommitInTransaction,
        decide: Callable[..., Decision],
        answer: Answer,
        now: float,
    ) -> None:
        limit = min(self._config.offset_metadata_max_bytes, LONGEST_STRING_BYTES)
        self._upkeep.catch_up(group)
        shown = group.shown(group.runner.tail)

        def decide_now(tail: Group) -> Decision:
            self._groups.check_room(request.group_id)
            decision = decide(tail, request, shown=shown, metadata_max_bytes=limit)
            group.seen(request.member, now)
            return decision

        group.runner.handle(decide_now, answer)

    def end_transaction(self, end: TransactionEnd, answer: Answer) -> None:
        """Have a transaction's offsets count, or never; answered with None once its marker is committed."""
        self._markers.handle(lambda _: Decision((end,)), answer)
        self._markers.committed(self._groups.committed_offset)

    def _append_end(self, ends: tuple[TransactionEnd, ...]) -> int:
        """One marker is the end for all groups that the producer wrote of."""
        (end,) = ends
        end_offset = self._transactions.append_end(end)
        for group_id in sorted(self._open.pop(end.producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                ended = TransactionEnded(group_id, end.producer_id, end.commit)
                self._groups.take(group, (ended,), end_offset)
        return end_offset

    def _note_open(self, group: Group) -> None:
        for producer_id in group.pending:
            self._open.setdefault(producer_id, set()).add(group.group_id)

    def delete_offsets(self, request: DeleteOffsets, answer: Answer) -> None:
        """Answered with one error code per place, or a KafkaError for all."""

        def ask(group: AnyGroup) -> None:
            self._upkeep.catch_up(group)
            group.runner.handle(
                lambda tail: decide_delete_offsets(tail, request, shown=group.shown(tail)), answer
            )

        self._ask(request.group_id, ask, answer)

    def delete(self, group_id: str, answer: Answer) -> None:
        """Answered with None or a KafkaError. A group that no batch holds goes slice by slice, as `sweep` is called."""

        def ask(group: AnyGroup) -> None:
            tail = group.runner.tail
            most = slice_bytes(self._config.message_max_bytes)
            is_large = not first_slice(group_id, tail.places(), most_bytes=most).is_all
            if self._upkeep.chore_of(group_id).ends or (is_large and may_delete(group.shown(tail))):
                self._upkeep.end(group_id, answer)
            else:
                group.runner.handle(lambda tail: decide_delete(tail, shown=group.shown(tail)), answer)

        self._ask(group_id, ask, answer)

    def size_of(self, group_id: str) -> int:
        """Return how many offsets a group has."""
        group = self._groups.get(group_id)
        return 0 if group is None else group.runner.tail.size

    def forget_topics(self, topics: Gone) -> None:
        """Topics were deleted: their offsets go, of each group before anything is committed for a successor."""
        self._upkeep.forget_topics(topics)

    def forget(self, topics: Mapping[str, Gone]) -> None:
        """Offsets of deleted topics were taken over, in some groups: those go likewise."""
        self._upkeep.forget(topics)

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, group_id: str, answer: Answer) -> None:
        """Answered with the Group as committed; one that does not exist has `exists` False."""

        def ask(group: AnyGroup) -> None:
            self._check_stays(group_id)
            chore = self._upkeep.chore_of(group_id)
            group.runner.handle(lambda tail: Decision(reply=chore.hide(group.shown(tail))), answer)

        self._ask(group_id, ask, answer)

    def group_ids(self) -> list[str]:
        """Return the names of all groups, those included whose end is not committed yet."""
        return self._groups.ids()

    def read_some(self, group_ids: Sequence[str], answer: Answer) -> None:
        """Answered with those Groups, in a tuple, that exist and are not being deleted."""
        wanted = [each for each in group_ids if not self._upkeep.chore_of(each).ends]
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
