"""The coordinator of the groups in one partition of `__consumer_offsets`.

Each group is a state machine of its own over the partition's journal: decide on its tail, append, apply, answer once
the partition's high watermark has passed. This is the one place where a group is found by its name, whatever its type;
classic groups, and consumer groups (KIP-848) where that is recorded.

The coordinator knows nothing of partitions, logs or time: `append` is given, `now` (loop seconds) and `now_ms` come
with the calls. Requests go to an active coordinator only; whoever owns it stands it down when it loses the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from raftlog.base.config import NodeConfig
from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    PolicyViolation,
)
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.chores import PAUSE_S, RETRY_S, Chore, first_slice
from raftlog.coordinator.classic import ClassicGroup
from raftlog.coordinator.consumer.group import ConsumerGroup
from raftlog.coordinator.consumer.requests import LEAVES, Beat
from raftlog.coordinator.consumer.state import tombstones
from raftlog.coordinator.consumer.topics import Topics
from raftlog.coordinator.group import (
    Group,
    GroupChanged,
    GroupRecord,
    Membership,
    OffsetPending,
    TransactionEnded,
    apply,
)
from raftlog.coordinator.moment import Moment
from raftlog.coordinator.offsets import (
    decide_commit,
    decide_delete,
    decide_delete_offsets,
    decide_expire_offsets,
    may_delete,
)
from raftlog.coordinator.pending import (
    NoTransactions,
    TransactionalJournal,
    decide_commit_in_transaction,
)
from raftlog.coordinator.records import LONGEST_STRING_BYTES, KeyValue, encode_all
from raftlog.coordinator.requests import (
    CommitInTransaction,
    CommitOffsets,
    DeleteOffsets,
    JoinGroup,
    MemberRef,
    SyncGroup,
    TransactionEnd,
)
from raftlog.coordinator.sessions import ClockKey, Kind, Sessions
from raftlog.metadata.image import EMPTY_IMAGE

Append = Callable[[tuple[KeyValue, ...]], int]
"""Append keys and values as one batch, return the journal's end offset after it; on KafkaError nothing is appended."""

SWEPT_AT_ONCE: Final = 200
"""Groups of a broker whose offsets are looked through for expired ones before the loop gets its turn again."""

ENDED_AT_ONCE: Final = 200
"""Sessions of a broker that end before the loop gets its turn again."""

RECORDS_PER_GROUP: Final = 20
"""So many tombstones are as much work as looking through a group."""

AnyGroup = ClassicGroup | ConsumerGroup

MS_PER_MINUTE: Final = 60_000

NO_CHORE: Final = Chore()


def _always() -> bool:
    return True


class Room(NamedTuple):
    """What this broker has room for: one more group, one more member id that nobody has used yet."""

    may_add: Callable[[], bool] = _always
    may_expect: Callable[[], bool] = _always


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
        self._append = append
        self._room = room
        self._transactions = transactions or NoTransactions()
        self._markers: Runner[None] = Runner(None, lambda state, _: state, self._append_end)
        self._open: dict[int, set[str]] = {}
        """By producer id, the groups in which its transaction may have offsets."""
        self._topics = topics or Topics(lambda: EMPTY_IMAGE)
        self._groups: dict[str, AnyGroup] = {}
        self._waiting: dict[str, AnyGroup] = {}
        self._sessions = Sessions(room.may_expect)
        self._lost: KafkaError | None = None
        self._refusal: KafkaError | None = None
        """Why the journal took no records, when it last took none."""
        self._committed_offset = 0
        self._chores: dict[str, Chore] = {}
        """What has yet to go, by group."""
        self._chores_at = 0.0
        self._to_sweep: list[str] = []
        self._sweeps_at = 0.0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def unused_id_bytes(self) -> int:
        """About what the member ids take that were given out and not yet used."""
        return self._sessions.expected_bytes

    def load(self, groups: Iterable[Group], *, now: float) -> None:
        """Take over groups, all of them committed. Every member gets a whole session."""
        for group in groups:
            self._groups[group.group_id] = taken = self._wake(self._runner(group))
            taken.take_over(now)
            self._note_open(group)
        self._sweeps_at = now + self._config.offsets_retention_check_interval_ms / 1000

    def _wake(self, runner: Runner[Group]) -> AnyGroup:
        """Return the group that the records tell of."""
        return self._classic(runner) if runner.tail.consumer is None else self._consumer(runner)

    def _classic(self, runner: Runner[Group]) -> ClassicGroup:
        return ClassicGroup(runner, self._sessions, self._config)

    def _consumer(self, runner: Runner[Group], former: ClassicGroup | None = None) -> ConsumerGroup:
        return ConsumerGroup(runner, self._sessions, self._config, topics=self._topics, former=former)

    def _runner(self, group: Group) -> Runner[Group]:
        return Runner(group, apply, self._append_records)

    def _append_records(self, records: tuple[GroupRecord, ...]) -> int:
        first = records[0]
        try:
            if isinstance(first, OffsetPending):
                encoded, producer = encode_all(records), (first.producer_id, first.producer_epoch)
                return self._transactions.append_in(encoded, *producer)
            return self._append(encode_all(records))
        except KafkaError as error:
            self._refusal = error
            raise

    def _find(self, group_id: str) -> AnyGroup:
        """Return a group, or an empty one of that name that is kept once something is known of it."""
        if len(group_id.encode()) > LONGEST_STRING_BYTES:
            raise InvalidGroupId(f"a group id has at most {LONGEST_STRING_BYTES} bytes")
        return self._groups.get(group_id) or self._classic(self._runner(Group(group_id)))

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
            group = self._find(group_id)
        except KafkaError as error:
            answer(error)
            return
        try:
            ask(group)
        except KafkaError as error:
            answer(error)
        self._settle(group, at)

    def _settle(self, group: AnyGroup, at: Moment | None = None) -> None:
        if isinstance(group, ConsumerGroup) and group.runner.tail.described:
            assert at is not None, "a group changes its type by what its members do"
            offers, group = group.offers, self._classic(group.runner)
            group.begin_again(offers, at)
        elif isinstance(group, ConsumerGroup) and group.recorded is None:
            group = self._classic(
                group.runner
            )  # it has ended, though not for readers before that is committed
        group.runner.committed(self._committed_offset)
        if group.runner.parked:
            self._waiting[group.group_id] = group
        if group.is_idle:
            self._groups.pop(group.group_id, None)
        else:
            self._groups[group.group_id] = group

    def _check_room(self, group_id: str) -> None:
        """Raises PolicyViolation for one group too many."""
        if group_id not in self._groups and not self._room.may_add():
            raise PolicyViolation(f"raftlog.group.max.groups is {self._config.raftlog_group_max_groups}")

    # -- the journal ---------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> None:
        """The partition's high watermark is at `end_offset`: answer what rests on it."""
        self._committed_offset = end_offset
        self._markers.committed(end_offset)
        for group_id, group in tuple(self._waiting.items()):
            group.runner.committed(end_offset)
            if not group.runner.parked:
                self._waiting.pop(group_id, None)
                self._settle(self._groups.get(group_id, group))

    def stand_down(self, error: KafkaError) -> None:
        """The partition is lost: answer all that waits, and whatever still comes, with `error`."""
        self._lost = error
        self._markers.stand_down(error)
        for group in self._groups.values():
            group.stand_down(error)
        for chore in self._chores.values():
            chore.answer(error)

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
        self._end_empty(request.group_id)

        def ask(group: AnyGroup) -> None:
            self._check_stays(request.group_id)
            group.join(request, answer, new_member_id=new_id, at=at)

        self._ask(request.group_id, ask, answer, at)

    def _check_stays(self, group_id: str) -> None:
        """Raises CoordinatorLoadInProgress while a group is being deleted."""
        if self._chores.get(group_id, NO_CHORE).ends:
            raise CoordinatorLoadInProgress("the group is being deleted")

    def _end_empty(self, group_id: str) -> None:
        """A consumer group without members does not stand in the way of a classic one, which counts on from it."""
        group = self._groups.get(group_id)
        state = None if group is None else group.runner.tail.consumer
        if group is None or state is None or state.members or self._lost is not None:
            return
        if self._chores.get(group_id, NO_CHORE).ends:
            return
        empty = GroupChanged(group_id, Membership(generation=state.epoch))
        group.runner.handle(lambda _: Decision((*tombstones(group_id, state), empty)), _nobody_waits)
        if group.runner.tail.consumer is None:
            self._groups[group_id] = self._classic(group.runner)

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
                self._check_room(beat.group_id)
            group = self._find(beat.group_id)
        except KafkaError as error:
            answer(error)
            return
        at = Moment(now, now_ms)
        if isinstance(group, ConsumerGroup):
            group.beat(beat, answer, at=at)
            self._settle(group, at)
            return
        turned = self._consumer(group.runner, former=group)
        turned.beat(beat, answer, at=at)
        if turned.recorded is not None:
            group.retire()
            self._settle(turned, at)
        else:
            self._settle(group, at)

    # -- time ----------------------------------------------------------------------------------------------

    def next_expiry_at(self) -> float | None:
        """When to call `tick` and `sweep` next."""
        due = [self._chores_at] if self._chores else []
        if self._topics.is_behind:
            due.append(self._topics.due_at)
        expires_at = self._sessions.next_expiry_at()
        if expires_at is not None:
            due.append(expires_at)
        return min(due, default=None)

    def tick(self, *, now: float, now_ms: int, most: int = ENDED_AT_ONCE) -> int:
        """Take out the members whose session has ended, end rebalances whose time is up; try again what failed.

        Returns how many it were, `most` at most: for others `next_expiry_at` is over.
        """
        at = Moment(now, now_ms)
        keys = self._sessions.expire(now, most)
        ended: dict[str, list[str]] = {}
        for key in keys:
            group = self._groups.get(key.group_id)
            if isinstance(group, ConsumerGroup) and key.kind is not Kind.EXPECTED:
                ended.setdefault(key.group_id, []).append(key.member_id)
            elif group is not None:
                _tell(group, key, at)
                self._settle(group, at)
        for group_id, member_ids in ended.items():
            group = self._groups[group_id]
            assert isinstance(group, ConsumerGroup)
            group.ended(member_ids, at)
            self._settle(group, at)
        return len(keys)

    def sweep(self, *, now: float, now_ms: int, most: int) -> int:
        """Go on with what has to go, then with expired offsets, for at most so many groups; returns how many.

        A slice of a large group counts as many.
        """
        self._topics.work(now)
        looked = self._work_off(now, most)
        if not self._to_sweep:
            if now < self._sweeps_at:
                return looked
            self._sweeps_at = now + self._config.offsets_retention_check_interval_ms / 1000
            self._to_sweep = list(self._groups)
        most = max(most - looked, 0)
        batch, self._to_sweep = self._to_sweep[:most], self._to_sweep[most:]
        for group in [self._groups[each] for each in batch if each in self._groups]:
            if group.group_id not in self._chores:
                self._expire_offsets(group, now_ms)
        return looked + len(batch)

    def _expire_offsets(self, group: AnyGroup, now_ms: int) -> None:
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        before = group.runner.tail
        expire = _expiring(group.shown(before), now_ms=now_ms, retention_ms=retention_ms)
        group.runner.handle(expire, _nobody_waits)
        after = group.runner.tail
        if after is not before and after.offsets:
            self._to_sweep.append(group.group_id)  # it may have been a slice of them
        self._settle(group)

    def stalled(self, seconds: float) -> None:
        """This broker itself stood still for so long: nobody's session ends for that."""
        self._sessions.shift(seconds)

    # -- offsets -------------------------------------------------------------------------------------------

    def commit_offsets(self, request: CommitOffsets, answer: Answer, *, now: float) -> None:
        """Answered with one error code per commit, or a KafkaError for all."""
        limit = min(self._config.offset_metadata_max_bytes, LONGEST_STRING_BYTES)

        def ask(group: AnyGroup) -> None:
            self._catch_up(group)
            shown = group.shown(group.runner.tail)

            def decide(tail: Group) -> Decision:
                self._check_room(request.group_id)
                decision = decide_commit(tail, request, shown=shown, metadata_max_bytes=limit)
                group.seen(request.member, now)
                return decision

            group.runner.handle(decide, answer)

        self._ask(request.group_id, ask, answer)

    def commit_in_transaction(self, request: CommitInTransaction, answer: Answer, *, now: float) -> None:
        """Answered with one error code per commit, or a KafkaError for all; they count when the transaction commits."""
        limit = min(self._config.offset_metadata_max_bytes, LONGEST_STRING_BYTES)

        def ask(group: AnyGroup) -> None:
            self._catch_up(group)
            shown = group.shown(group.runner.tail)

            def decide(tail: Group) -> Decision:
                self._check_room(request.group_id)
                decision = decide_commit_in_transaction(tail, request, shown=shown, metadata_max_bytes=limit)
                group.seen(request.member, now)
                return decision

            group.runner.handle(decide, answer)
            self._note_open(group.runner.tail)

        self._ask(request.group_id, ask, answer)

    def end_transaction(self, end: TransactionEnd, answer: Answer) -> None:
        """Have a transaction's offsets count, or never; answered with None once its marker is committed."""
        self._markers.handle(lambda _: Decision((end,)), answer)
        self._markers.committed(self._committed_offset)

    def _append_end(self, ends: tuple[TransactionEnd, ...]) -> int:
        """One marker is the end for all groups that the producer wrote of."""
        (end,) = ends
        end_offset = self._transactions.append_end(end)
        for group_id in sorted(self._open.pop(end.producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                group.runner.take((TransactionEnded(group_id, end.producer_id, end.commit),), end_offset)
                self._settle(group)
        return end_offset

    def _note_open(self, group: Group) -> None:
        for producer_id in group.pending:
            self._open.setdefault(producer_id, set()).add(group.group_id)

    def delete_offsets(self, request: DeleteOffsets, answer: Answer) -> None:
        """Answered with one error code per place, or a KafkaError for all."""

        def ask(group: AnyGroup) -> None:
            self._catch_up(group)
            group.runner.handle(
                lambda tail: decide_delete_offsets(tail, request, shown=group.shown(tail)), answer
            )

        self._ask(request.group_id, ask, answer)

    def delete(self, group_id: str, answer: Answer) -> None:
        """Answered with None or a KafkaError. A group that no batch holds goes slice by slice, as `sweep` is called."""

        def ask(group: AnyGroup) -> None:
            tail, chore = group.runner.tail, self._chores.get(group_id)
            is_large = not first_slice(group_id, tail.places()).is_all
            if chore is not None and chore.ends:
                chore.answers.append(answer)
            elif is_large and may_delete(group.shown(tail)):
                chore = self._chores.setdefault(group_id, Chore())
                chore.ends = True
                chore.answers.append(answer)
                self._chores_at = 0.0
            else:
                group.runner.handle(lambda tail: decide_delete(tail, shown=group.shown(tail)), answer)

        self._ask(group_id, ask, answer)

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Topics were deleted: their offsets go, of each group before anything is committed for a successor."""
        for group_id in self._groups if topics else ():
            chore = self._chores.setdefault(group_id, Chore())
            chore.topics |= topics
        self._chores_at = 0.0

    # -- what goes bit by bit ------------------------------------------------------------------------------

    def _work_off(self, now: float, most: int) -> int:
        """Go on with what has to go from some groups; returns for how many it counts."""
        looked = 0
        if now < self._chores_at:
            return looked
        self._chores_at = now + PAUSE_S
        for group_id in tuple(self._chores) if self._chores else ():
            if looked >= most:
                break
            group = self._groups.get(group_id)
            if group is None:
                self._chores.pop(group_id).answer(None)
                continue
            looked += 1 + self._take_slice(group) // RECORDS_PER_GROUP
            chore = self._chores.get(group_id)
            if chore is not None and chore.refused is not None:
                self._chores_at = now + RETRY_S
                break
        return looked

    def _take_slice(self, group: AnyGroup) -> int:
        """Remove the next slice of what has to go from a group; returns how many offsets it was."""
        chore = self._chores[group.group_id]
        before, self._refusal = group.runner.tail, None
        if not chore.is_done(before):
            group.runner.handle(chore.decide, _nobody_waits)
        after = group.runner.tail
        chore.refused = self._refusal if after is before else None
        if chore.refused is not None and (chore.ends or not chore.refused.retriable):
            group.runner.handle(_refusing(chore.refused), chore.not_ended().answer)
            if not chore.topics or not chore.refused.retriable:
                del self._chores[group.group_id]
        elif chore.is_done(after):
            group.runner.handle(_nothing, chore.answer)
            del self._chores[group.group_id]
        self._settle(group)
        return before.size - after.size

    def _catch_up(self, group: AnyGroup) -> None:
        """Raises KafkaError unless nothing has to go from a group any longer, or it was little enough to go now."""
        chore = self._chores.get(group.group_id)
        if chore is not None and not chore.ends:
            self._take_slice(group)
        if group.group_id in self._chores:
            raise (chore and chore.refused) or CoordinatorLoadInProgress("offsets are being removed")

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, group_id: str, answer: Answer) -> None:
        """Answered with the Group as committed; one that does not exist has `exists` False."""

        def ask(group: AnyGroup) -> None:
            self._check_stays(group_id)
            chore = self._chores.get(group_id, NO_CHORE)
            group.runner.handle(lambda tail: Decision(reply=chore.hide(group.shown(tail))), answer)

        self._ask(group_id, ask, answer)

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


def _tell(group: AnyGroup, key: ClockKey, at: Moment) -> None:
    if key.kind is Kind.EXPECTED:
        group.expectation_ended(at)
    elif isinstance(group, ClassicGroup):
        group.session_ended(key.member_id, at) if key.kind is Kind.MEMBER else group.clock_rang(at)


def _expiring(shown: Group, *, now_ms: int, retention_ms: int) -> Callable[[Group], Decision]:
    return lambda tail: decide_expire_offsets(tail, shown=shown, now_ms=now_ms, retention_ms=retention_ms)


def _refusing(error: KafkaError) -> Callable[[Group], Decision]:
    def decide(_: Group) -> Decision:
        raise error

    return decide


def _nothing(_: Group) -> Decision:
    return Decision()


def _nobody_waits(reply: object) -> None:
    """What concerns deleted topics and old offsets is tried again with the next sweep."""
