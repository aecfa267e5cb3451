"""One consumer group: its recorded state (a runner) and the clocks of its members.

Everything that decides is in records, so there is nothing to gather and nobody waits for anybody: each request is a
decision on the tail, answered once it is committed. Soft are only the deadlines: until when a member's session lasts,
until when it must have given up what it was told to, and, for those of the classic protocol, until when they must have
joined again or asked for what they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from raftlog.base.config import NodeConfig, group_config
from raftlog.base.errors import (
    GroupIdNotFound,
    GroupMaxSizeReached,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.base.log import get_logger
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.classic import ClassicGroup
from raftlog.coordinator.consumer import classic_members
from raftlog.coordinator.consumer.draft import MOST_READ, Draft, Effort, Surroundings, TooMuchToRead
from raftlog.coordinator.consumer.heartbeat import check_beat, decide_beat, decide_fence, decide_leave
from raftlog.coordinator.consumer.migration import Bounds, classic_offers, downgraded, upgraded
from raftlog.coordinator.consumer.reconcile import is_part
from raftlog.coordinator.consumer.requests import JOINING, LEAVES, Beat
from raftlog.coordinator.consumer.state import (
    ConsumerMembership,
    ConsumerRecord,
    MemberState,
    apply_consumer,
    tombstones,
)
from raftlog.coordinator.consumer.topics import Topics
from raftlog.coordinator.consumer.weights import MOST_BYTES, Weights
from raftlog.coordinator.group import Group, GroupChanged, GroupRecord
from raftlog.coordinator.membership import check_join
from raftlog.coordinator.moment import Moment
from raftlog.coordinator.offers import Offered, most_bytes
from raftlog.coordinator.records import batch_bytes
from raftlog.coordinator.requests import Joined, JoinGroup, MemberIdRequired, MemberRef, SyncGroup
from raftlog.coordinator.sessions import ClockKey, Kind, Sessions

RETRY_S: Final = 1.0
"""A member whose time is up, and whose end could not be recorded, is looked at again after this."""

ENDS_SHARE: Final = 16
"""Ids of members that end together take so small a part of a batch: each is in three keys, with the group's own id."""

RESOLVED_SHARE: Final = 2
"""What expressions match takes so small a part of a batch: the rest is for targets."""

TOO_MUCH: Final = (
    f"a group reads {MOST_READ} topics at most, and what its members are assigned fits into a batch of the"
    " group's journal"
)

log = get_logger(__name__)

Write = Callable[[Draft], object]
"""Writes a request into a draft; returns the reply."""


class ConsumerGroup:
    """Requests are answered with a reply or a KafkaError, once each. `former`: the classic group that it may become."""

    def __init__(
        self,
        runner: Runner[Group],
        sessions: Sessions,
        config: NodeConfig,
        *,
        topics: Topics,
        former: ClassicGroup | None = None,
    ) -> None:
        self.runner = runner
        self.group_id = runner.tail.group_id
        self._sessions = sessions
        self._config = config
        self._topics = topics
        self._former = former
        self._topics_seen: int | None = None
        """The topics as the last decision saw them: the image's `topics_offset`."""
        self._awaited: frozenset[str] = frozenset()
        """Expressions that this decision did without, because it was not known yet what they match."""
        self._settled: frozenset[str] = frozenset()
        """Those that match what is recorded, of those topics."""
        self._refused: frozenset[str] = frozenset()
        """Those that match too much. Their members were let in before that was known, and never had anything of it."""
        self._draft: Draft | None = None
        """What was decided last; None if the request was refused, which is no sign of life."""
        self._too_large: tuple[int, int, Effort] | None = None
        """In which epoch and with which topics not all of a decision fitted into a batch, and how much did."""
        self._unheard: set[str] = set()
        """Members that were told what they have now, and have not said since that they have it. Soft: who loses its
        coordinator tells the next one all, and is told all.
        """
        self._weights = Weights()
        self.offers: Offered = {}
        """What the members offered, once it is a classic group."""

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def recorded(self) -> ConsumerMembership | None:
        return self.runner.tail.consumer

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        return not (self.runner.parked or self.runner.tail.exists)

    def shown(self, group: Group) -> Group:
        """What readers are told: just what is recorded."""
        return group

    def take_over(self, now: float) -> None:
        """Begin as its new coordinator: everybody gets a whole session, and its whole time to give up partitions."""
        state = self.recorded
        self._weights.follow(state.members if state else {})
        for member_id in state.members if state else ():
            self._renew(member_id, now)
            self._watch_revocation(member_id, now)

    def stand_down(self, error: KafkaError) -> None:
        """Answer all who wait with `error`."""
        self.runner.stand_down(error)

    def seen(self, ref: MemberRef, now: float) -> None:
        """A commit is no heartbeat."""

    # -- members of the consumer protocol ------------------------------------------------------------------

    def beat(self, beat: Beat, answer: Answer, *, at: Moment) -> None:
        """Answered with Heard."""

        def write(draft: Draft) -> object:
            if beat.epoch in LEAVES:
                return decide_leave(draft, beat)
            return decide_beat(draft, beat, tell_again=beat.member_id in self._unheard)

        def decide(group: Group) -> Decision:
            check_beat(beat, self._config.group_consumer_assignors)
            if group.consumer is None and beat.epoch in LEAVES:
                raise GroupIdNotFound(f"group {self.group_id} is not a consumer group")
            if group.consumer is None and beat.epoch != JOINING:
                raise UnknownMemberId(f"group {self.group_id} does not exist, its members may join again")
            if self._is_refused(group, beat):
                fence: Write = lambda draft: decide_fence(draft, (beat.member_id,))  # noqa: E731
                return self._decision(group, fence, at)._replace(reply=GroupMaxSizeReached(TOO_MUCH))
            return self._decision(group, write, at)

        before = self.recorded
        self._run(decide, answer, at)
        if self._draft is not None:
            if before and self.recorded and self.recorded.revokes_other(before, beat.member_id):
                self._sessions.end(self._clock(beat.member_id))  # it has its whole time for each step
            self._note_alive(beat.member_id, at, is_here=beat.epoch not in LEAVES)
            self._note_told(before, beat)

    def _note_told(self, before: ConsumerMembership | None, beat: Beat) -> None:
        if self.recorded is None or beat.member_id not in self.recorded.members:
            return
        has = self.recorded.current_of(beat.member_id).assigned
        if beat.owned is not None and is_part(has, beat.owned):
            self._unheard.discard(beat.member_id)
        elif before is None or has != before.current_of(beat.member_id).assigned:
            self._unheard.add(beat.member_id)

    def _is_refused(self, group: Group, beat: Beat) -> bool:
        """Whether a member goes on as before, with an expression that turned out to match too much."""
        member = group.consumer.members.get(beat.member_id) if group.consumer else None
        if member is None or member.regex not in self._refused or beat.epoch < JOINING:
            return False
        return beat.regex in (None, member.regex)

    # -- members of the classic protocol -------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, new_member_id: str, at: Moment) -> None:
        """Answered with Joined or MemberIdRequired, at once: it waits for nobody."""
        who = request.member
        needs_id = request.may_require_member_id and not who.member_id and who.group_instance_id is None

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            check_join(request)
            subscription = classic_members.check_protocols(group.consumer, request)
            if needs_id:
                return Decision(reply=MemberIdRequired(new_member_id))
            return self._decision(
                group,
                lambda draft: classic_members.decide_join(draft, request, subscription, new_member_id),
                at,
            )

        self._run(decide, answer, at)
        if self._draft is None:
            return
        member_id = who.member_id or new_member_id
        self._note_alive(member_id, at, is_here=True)
        if self.recorded is not None and member_id in self.recorded.members:
            self._sessions.renew(self._clock(member_id), at.now + self._rebalance_timeout_s(member_id))

    def sync(self, request: SyncGroup, answer: Answer, *, at: Moment) -> None:
        """Answered with Synced."""

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            reply = classic_members.synced(group.consumer, request, self._topics.image())
            self._sessions.end(self._clock(request.member.member_id))
            self._renew(request.member.member_id, at.now)
            return Decision(reply=reply)

        self.runner.handle(decide, answer)

    def heartbeat(self, ref: MemberRef, answer: Answer, *, generation: int, at: Moment) -> None:
        """Answered with None; RebalanceInProgress is how members hear that there is a step to take."""

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            member_id = classic_members.find_member(group.consumer, ref)
            classic_members.check_generation(group.consumer, member_id, generation)
            self._renew(member_id, at.now)
            if classic_members.must_rejoin(group.consumer, member_id):
                if not self._sessions.runs(self._clock(member_id)):
                    timeout_s = self._rebalance_timeout_s(member_id)
                    self._sessions.renew(self._clock(member_id), at.now + timeout_s)
                raise RebalanceInProgress
            return Decision()

        self.runner.handle(decide, answer)

    def leave(self, ref: MemberRef, answer: Answer, *, at: Moment) -> None:
        """Answered with None."""

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            member_id = classic_members.find_member(group.consumer, ref, by_instance_alone=True)
            return self._decision(group, lambda draft: decide_fence(draft, (member_id,)), at)

        self._run(decide, answer, at)

    # -- time ----------------------------------------------------------------------------------------------

    def ended(self, member_ids: Sequence[str], at: Moment) -> None:
        """Members fell silent, or had time enough to give up partitions, to join again, or to ask for what they have.

        They are out, all with one decision; with a few if their ids are long.
        """
        log.info("group_members_expired", group=self.group_id, members=len(member_ids), first=member_ids[0])
        most = self._config.message_max_bytes // ENDS_SHARE
        batch: list[str] = []
        size = 0
        for each in dict.fromkeys(member_ids):
            size += len(each.encode())
            if batch and size > most:
                self._fence(batch, at)
                batch, size = [], len(each.encode())
            batch.append(each)
        self._fence(batch, at)

    def expectation_ended(self, at: Moment) -> None:
        """Nobody waits for ids that were given out."""

    def _fence(self, member_ids: Sequence[str], at: Moment) -> None:
        before = self.recorded
        present = [each for each in member_ids if before and each in before.members]
        if not present:
            return
        fence: Write = lambda draft: decide_fence(draft, present)  # noqa: E731
        self._run(lambda group: self._decision(group, fence, at), _nobody_waits, at)
        if self.recorded is before:
            for each in present:
                self._sessions.renew(ClockKey(self.group_id, each), at.now + RETRY_S)

    # -- deciding ------------------------------------------------------------------------------------------

    def _decision(self, group: Group, write: Write, at: Moment) -> Decision:
        """Return what fits into one batch of all that follows from a request.

        Members that are in and read the same go on, at worst with the targets they have. Raises GroupMaxSizeReached
        for who joins, or reads more.
        """
        topics, known, least = self._topics.image().topics_offset, self._too_large, Effort.ALL
        if known is not None and group.consumer and known[:2] == (group.consumer.epoch, topics):
            least = known[2]
        targets_may_follow = False
        for effort in (*list(Effort)[least:], Effort.KNOWN_TOPICS):
            if effort is Effort.TARGETS_LATER and not targets_may_follow:
                continue
            try:
                decision, draft = self._drafted(group, write, at, effort)
            except TooMuchToRead:
                continue
            self._check_weight(draft)
            if effort is Effort.NO_TARGETS and _reads_more(group.consumer, draft.state):
                continue
            if batch_bytes(decision.records) <= self._config.message_max_bytes:
                self._draft = draft
                if effort is not Effort.ALL and effort is not least:
                    log.warning("consumer_group_too_large", group=self.group_id, decided=effort.name)
                goes_on = effort in (Effort.ALL, Effort.TARGETS_LATER) or draft.refused
                self._too_large = None if goes_on else (draft.state.epoch, topics, effort)
                return decision
            targets_may_follow = self._may_follow(draft)
        raise GroupMaxSizeReached(TOO_MUCH)

    def _may_follow(self, draft: Draft) -> bool:
        """Whether targets that fit into no batch with what expressions match fit into one of their own."""
        targets = draft.records[draft.before_targets :]
        return draft.has_resolved and batch_bytes(tuple(targets)) <= self._config.message_max_bytes

    def _check_weight(self, draft: Draft) -> None:
        """Raises GroupMaxSizeReached for who would say more of itself than there is room for."""
        if self._weights.total < self._weights.after(draft.state.members) > MOST_BYTES:
            raise GroupMaxSizeReached(
                f"what all members of a group subscribe to has {MOST_BYTES} bytes at most"
            )

    def _drafted(self, group: Group, write: Write, at: Moment, effort: Effort) -> tuple[Decision, Draft]:
        """Return what a draft holds once it is written; the group may change its type by it."""
        begun = self._upgraded(group)
        started = group.consumer if group.consumer or not begun else apply_consumer(None, begun)
        draft = Draft(self.group_id, started, self._surroundings(at, effort))
        reply = write(draft)
        classic = downgraded(
            draft.state,
            generation=draft.state.epoch if started is None else started.epoch,
            policy=self._config.group_consumer_migration_policy,
            bounds=Bounds(self._config.group_max_size, most_bytes(self._config.message_max_bytes)),
            image=draft.around.image,
            now_ms=at.now_ms,
        )
        if classic is not None and group.consumer is not None:
            ended = tombstones(self.group_id, group.consumer)
            records: tuple[GroupRecord, ...] = (*ended, GroupChanged(self.group_id, classic))
            if batch_bytes(records) <= self._config.message_max_bytes:
                self.offers = classic_offers(draft.state)
                if isinstance(reply, Joined):
                    reply = msgspec.structs.replace(reply, generation=classic.generation)
                return Decision(records, reply), draft
        ends = (GroupChanged(self.group_id, None),) if group.described else ()
        return Decision((*ends, *begun, *draft.records), reply), draft

    def _upgraded(self, group: Group) -> tuple[ConsumerRecord, ...]:
        if group.consumer is not None or self._former is None:
            return ()
        return upgraded(
            group,
            self._former.shown(group),
            self._former.offers,
            policy=self._config.group_consumer_migration_policy,
            most_members=self._config.group_consumer_max_size,
            image=self._topics.image(),
        )

    def _surroundings(self, at: Moment, effort: Effort) -> Surroundings:
        image = self._topics.image()
        return Surroundings(
            image,
            self._topics,
            at.now_ms,
            self._config.group_consumer_assignors,
            self._config.group_consumer_max_size,
            image.topics_offset != self._topics_seen or self._matches_came(),
            effort,
            at.now,
            self._settled if image.topics_offset == self._topics_seen else frozenset(),
            self._refused,
            self._config.message_max_bytes // RESOLVED_SHARE,
        )

    def _matches_came(self) -> bool:
        """Whether it may be known by now what an expression matches that was done without."""
        return not all(map(self._topics.is_awaited, self._awaited))

    def _run(self, decide: Callable[[Group], Decision], answer: Answer, at: Moment) -> None:
        """Decide, and set the clocks of who came and who went."""
        before, self._draft = self.recorded, None
        self.runner.handle(decide, answer)
        after, draft = self.recorded, self._draft
        if draft is not None and draft.looked and (after is not before or not draft.records):
            self._topics_seen = draft.around.image.topics_offset
            self._awaited, self._settled = frozenset(draft.awaited), frozenset(draft.settled)
            self._refused = frozenset(draft.refused)
        if after is before:
            return
        if after is not None:
            self._former = (
                None  # it does not come back: what its members offered would stay for the group's life
            )
        had, has = (state.members if state else {} for state in (before, after))
        self._weights.follow(has)
        self._refused &= {it.regex for it in has.values() if it.regex} if self._refused else frozenset()
        for member_id in had.keys() - has.keys():
            self._unheard.discard(member_id)
            self._sessions.end(self._clock(member_id))
            if after is not None:  # in a classic group sessions go on
                self._sessions.end(ClockKey(self.group_id, member_id))
        if after is None:
            return
        for member_id in has.keys() - had.keys():
            self._renew(member_id, at.now)
        if before is None or before.epoch != after.epoch:
            log.info("consumer_group_changed", group=self.group_id, epoch=after.epoch, members=len(has))

    # -- clocks --------------------------------------------------------------------------------------------

    def _note_alive(self, member_id: str, at: Moment, *, is_here: bool) -> None:
        if self.recorded is not None and member_id in self.recorded.members:
            if is_here:
                self._renew(member_id, at.now)
            self._watch_revocation(member_id, at.now)

    def _clock(self, member_id: str) -> ClockKey:
        """Of the step that a member has to take, beside its session."""
        return ClockKey(self.group_id, member_id, Kind.REBALANCE)

    def _renew(self, member_id: str, now: float) -> None:
        assert self.recorded is not None
        classic = self.recorded.members[member_id].classic
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        else:
            own = self._topics.image().config("group", self.group_id)
            timeout_ms = group_config(self._config, own).consumer_session_timeout_ms
        self._sessions.renew(ClockKey(self.group_id, member_id), now + timeout_ms / 1000)

    def _watch_revocation(self, member_id: str, now: float) -> None:
        """Let the clock of a member run that is to give up partitions, from when it was told."""
        assert self.recorded is not None
        if self.recorded.members[member_id].classic is not None:
            return
        if self.recorded.current_of(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.end(self._clock(member_id))
        elif not self._sessions.runs(self._clock(member_id)):
            self._sessions.renew(self._clock(member_id), now + self._rebalance_timeout_s(member_id))

    def _rebalance_timeout_s(self, member_id: str) -> float:
        assert self.recorded is not None
        return self.recorded.members[member_id].rebalance_timeout_ms / 1000


def _reads_more(before: ConsumerMembership | None, after: ConsumerMembership) -> bool:
    """Whether there are members that there were not, or that read something else."""
    then, now = (
        Counter((it.topics, it.regex) for it in each.members.values()) if each else Counter()
        for each in (before, after)
    )
    return not now <= then


def _nobody_waits(reply: object) -> None:
    """A member that could not be taken out is looked at again."""
