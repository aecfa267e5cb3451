"""One consumer group: its recorded state (a runner) and the clocks of its members.

The whole state is in records, so no member waits for another: each request is a decision on the tail, answered once it
is committed. Only the deadlines are soft: the end of a member's session, and the time by which it must give up revoked
partitions. Members of the classic protocol also have deadlines to join again and to sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

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
from raftlog.base.machine import Answer, Decision, Runner, ignore_reply
from raftlog.coordinator.classic.group import ClassicGroup
from raftlog.coordinator.classic.member_protocols import ProtocolsByMember
from raftlog.coordinator.classic.rules import check_join
from raftlog.coordinator.consumer import classic_members
from raftlog.coordinator.consumer.consumer_membership import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerMembership,
    ConsumerRecord,
    MemberState,
    apply_consumer,
    consumer_group_tombstones,
)
from raftlog.coordinator.consumer.decision_builder import (
    MAX_SUBSCRIBED_TOPICS,
    DecisionBuilder,
    DecisionContext,
    DecisionScope,
    TooManySubscribedTopics,
)
from raftlog.coordinator.consumer.heartbeat import (
    check_consumer_heartbeat,
    decide_consumer_heartbeat,
    decide_fence_members,
    decide_leave,
)
from raftlog.coordinator.consumer.heartbeat_requests import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_EPOCHS,
    ConsumerGroupHeartbeat,
)
from raftlog.coordinator.consumer.migration import (
    ClassicGroupLimits,
    classic_protocols,
    downgrade_to_classic,
    upgrade_to_consumer,
)
from raftlog.coordinator.consumer.reconcile import is_subset
from raftlog.coordinator.consumer.topic_regex_resolver import Sight, TopicRegexResolver, Wanted
from raftlog.coordinator.group import Group, GroupChanged, GroupRecord
from raftlog.coordinator.group_memory import (
    MAX_SUBSCRIPTION_BYTES,
    SubscriptionBytes,
    max_generation_bytes,
)
from raftlog.coordinator.group_records import batch_bytes
from raftlog.coordinator.group_requests import (
    JoinGroup,
    JoinGroupResult,
    MemberIdRequired,
    MemberRef,
    SyncGroup,
)
from raftlog.coordinator.timer import CoordinatorTimer, Moment, TimerKey, TimerKind

if TYPE_CHECKING:
    from raftlog.coordinator.group_history import GroupHistory

RETRY_S: Final = 1.0
"""Retry of a timeout that could not be recorded."""

ENDS_SHARE: Final = 16
"""The ids of members that time out together take at most this part of a batch. Each id is in three record keys, beside
the group's id.
"""

EPOCHS_SHARE: Final = 4
"""The assignment epochs of a member take at most this part of a batch; beyond it none is recorded."""

RESOLVED_SHARE: Final = 2
"""The matches of expressions take at most this part of a batch: the rest is for targets."""

TOO_MUCH: Final = (
    f"a group reads {MAX_SUBSCRIBED_TOPICS} topics at most, and what its members are assigned fits into a batch of the"
    " group's journal"
)

log = get_logger(__name__)

Write = Callable[[DecisionBuilder], object]
"""Writes a request into a decision builder; returns the reply."""


class ConsumerGroup:
    """Requests are answered with a reply or a KafkaError, once each. `former`: the classic group that it may become."""

    def __init__(
        self,
        runner: Runner[Group],
        timer: CoordinatorTimer,
        config: NodeConfig,
        *,
        topics: TopicRegexResolver,
        history: GroupHistory,
        former: ClassicGroup | None = None,
    ) -> None:
        self.runner = runner
        self.group_id = runner.tail.group_id
        self._timer = timer
        self._config = config
        self._topics = topics
        self._former = former
        self._history = history
        self._topics_seen: int | None = None
        """The topics as the last decision saw them: the image's `topics_offset`."""
        self._awaited: frozenset[Wanted] = frozenset()
        """Expressions that this decision had to omit, since their matches were not known yet."""
        self._settled: Mapping[str, Sight] = {}
        """The expressions with recorded matches that are current: of these topics, with these rights."""
        self._refused: frozenset[str] = frozenset()
        """Expressions that match too much. Their members were admitted before that was known, and got no partitions for
        them.
        """
        self._builder: DecisionBuilder | None = None
        """The last decision; None if the request was refused, which does not renew the session."""
        self._too_large: tuple[int, int, DecisionScope] | None = None
        """The epoch and topics for which a decision did not fit into a batch, and the scope that did."""
        self._unheard: set[str] = set()
        """Members that were sent their assignment and have not confirmed it. Soft: after a failover a member sends all
        its state, and gets its whole assignment.
        """
        self._weights = SubscriptionBytes()
        self.member_protocols: ProtocolsByMember = {}
        """The members' protocols, once it is a classic group."""

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def recorded(self) -> ConsumerMembership | None:
        return self.runner.tail.consumer

    @property
    def is_removable(self) -> bool:
        """Whether the group is neither recorded nor waited for, so that its object can be dropped."""
        return not (self.runner.parked or self.runner.tail.exists)

    def reader_view(self, group: Group) -> Group:
        """Return the group as readers see it: the recorded state."""
        return group

    def on_loaded(self, now: float) -> None:
        """Begin as its new coordinator: every member gets a whole session, and its whole time to give up partitions."""
        state = self.recorded
        self._weights.update(state.members if state else {})
        for member_id in state.members if state else ():
            self._renew(member_id, now)
            self._watch_revocation(member_id, now)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting requests with `error`."""
        self.runner.stand_down(error)

    def on_member_activity(self, ref: MemberRef, now: float) -> None:
        """Do nothing: unlike in a classic group, a commit does not renew a session."""

    # -- members of the consumer protocol ------------------------------------------------------------------

    def consumer_group_heartbeat(self, beat: ConsumerGroupHeartbeat, answer: Answer, *, at: Moment) -> None:
        """Add, update or remove a member, and call `answer` with ConsumerGroupHeartbeatResult."""

        def write(builder: DecisionBuilder) -> object:
            if beat.epoch in LEAVE_EPOCHS:
                return decide_leave(builder, beat)
            return decide_consumer_heartbeat(builder, beat, tell_again=beat.member_id in self._unheard)

        def decide(group: Group) -> Decision:
            check_consumer_heartbeat(beat, self._config.group_consumer_assignors)
            if group.consumer is None and beat.epoch in LEAVE_EPOCHS:
                raise GroupIdNotFound(f"group {self.group_id} is not a consumer group")
            if group.consumer is None and beat.epoch != JOIN_GROUP_MEMBER_EPOCH:
                raise UnknownMemberId(f"group {self.group_id} does not exist, its members may join again")
            if self._is_refused(group, beat):
                fence: Write = lambda builder: decide_fence_members(builder, (beat.member_id,))  # noqa: E731
                return self._decision(group, fence, at)._replace(reply=GroupMaxSizeReached(TOO_MUCH))
            return self._decision(group, write, at)

        before = self.recorded
        self._run(decide, answer, at, gone="member_left" if beat.epoch in LEAVE_EPOCHS else "member_refused")
        if self._builder is not None:
            if beat.epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and before is not None:
                away = (beat.member_id, before.members[beat.member_id])
                self._history.members("member_away", self.group_id, (away,), at)
            if before and self.recorded and self.recorded.has_new_revocation(before, beat.member_id):
                self._timer.cancel(self._rebalance_key(beat.member_id))  # each step gets its whole time
            self._note_alive(beat.member_id, at, is_here=beat.epoch not in LEAVE_EPOCHS)
            self._note_told(before, beat)

    def _note_told(self, before: ConsumerMembership | None, beat: ConsumerGroupHeartbeat) -> None:
        if self.recorded is None or beat.member_id not in self.recorded.members:
            return
        has = self.recorded.current_assignment_of(beat.member_id).assigned
        if beat.owned is not None and is_subset(has, beat.owned):
            self._unheard.discard(beat.member_id)
        elif before is None or has != before.current_assignment_of(beat.member_id).assigned:
            self._unheard.add(beat.member_id)

    def _is_refused(self, group: Group, beat: ConsumerGroupHeartbeat) -> bool:
        """Return whether a member continues with an expression that turned out to match too much."""
        member = group.consumer.members.get(beat.member_id) if group.consumer else None
        if member is None or member.regex not in self._refused or beat.epoch < JOIN_GROUP_MEMBER_EPOCH:
            return False
        return beat.regex in (None, member.regex)

    # -- members of the classic protocol -------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, new_member_id: str, at: Moment) -> None:
        """Call `answer` with JoinGroupResult or MemberIdRequired, without a wait for other members."""
        who = request.member
        needs_id = request.may_require_member_id and not who.member_id and who.group_instance_id is None

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            check_join(request)
            subscription = classic_members.check_protocols(group.consumer, request)
            if needs_id:
                self._check_room(group.consumer)
                return Decision(reply=MemberIdRequired(new_member_id))
            return self._decision(
                group,
                lambda builder: classic_members.decide_join(builder, request, subscription, new_member_id),
                at,
            )

        self._run(decide, answer, at)
        if self._builder is None:
            return
        member_id = who.member_id or new_member_id
        self._note_alive(member_id, at, is_here=True)
        if self.recorded is not None and member_id in self.recorded.members:
            self._timer.schedule(
                self._rebalance_key(member_id), at.now + self._rebalance_timeout_s(member_id)
            )

    def _check_room(self, state: ConsumerMembership) -> None:
        """Raise GroupMaxSizeReached for a member beyond the limit, before it gets an id."""
        most = self._config.group_consumer_max_size
        if len(state.members) >= most:
            raise GroupMaxSizeReached(f"group.consumer.max.size is {most}")

    def sync(self, request: SyncGroup, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with the member's assignment."""

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            reply = classic_members.sync_result(group.consumer, request, self._topics.image())
            self._timer.cancel(self._rebalance_key(request.member.member_id))
            self._renew(request.member.member_id, at.now)
            return Decision(reply=reply)

        self.runner.handle(decide, answer)

    def heartbeat(self, ref: MemberRef, answer: Answer, *, generation: int, at: Moment) -> None:
        """Call `answer` with None, or with RebalanceInProgress if the member must join for its next step."""

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            member_id = classic_members.find_member(group.consumer, ref)
            classic_members.check_generation(group.consumer, member_id, generation)
            self._renew(member_id, at.now)
            if classic_members.must_rejoin(group.consumer, member_id):
                if not self._timer.is_scheduled(self._rebalance_key(member_id)):
                    timeout_s = self._rebalance_timeout_s(member_id)
                    self._timer.schedule(self._rebalance_key(member_id), at.now + timeout_s)
                raise RebalanceInProgress
            return Decision()

        self.runner.handle(decide, answer)

    def leave(self, ref: MemberRef, answer: Answer, *, at: Moment, reason: str = "") -> None:
        """Remove the member, and call `answer` with None."""

        def decide(group: Group) -> Decision:
            assert group.consumer is not None
            member_id = classic_members.find_leaving_member(group.consumer, ref)
            return self._decision(group, lambda builder: decide_fence_members(builder, (member_id,)), at)

        self._run(decide, answer, at, detail=reason)

    # -- time ----------------------------------------------------------------------------------------------

    def on_member_timeouts(self, member_ids: Sequence[str], at: Moment, *, what: str) -> None:
        """Remove members after a timeout: of the session, or of giving up partitions, joining again or syncing.

        All leave by a single decision, or a few if their ids are long. `what` is the event for `GroupHistory`.
        """
        most = self._config.message_max_bytes // ENDS_SHARE
        batch: list[str] = []
        size = 0
        for each in dict.fromkeys(member_ids):
            size += len(each.encode())
            if batch and size > most:
                self._fence(batch, at, what)
                batch, size = [], len(each.encode())
            batch.append(each)
        self._fence(batch, at, what)

    def on_pending_join_timeout(self, at: Moment) -> None:
        """Ignore it: pending ids do not delay a consumer group."""

    def _fence(self, member_ids: Sequence[str], at: Moment, what: str) -> None:
        before = self.recorded
        present = [each for each in member_ids if before and each in before.members]
        if not present:
            return
        fence: Write = lambda builder: decide_fence_members(builder, present)  # noqa: E731
        self._run(lambda group: self._decision(group, fence, at), ignore_reply, at, gone=what)
        if self.recorded is before:
            for each in present:
                self._timer.schedule(TimerKey(self.group_id, each), at.now + RETRY_S)

    # -- deciding ------------------------------------------------------------------------------------------

    def _decision(self, group: Group, write: Write, at: Moment) -> Decision:
        """Return as much of a request's consequences as fits into one batch.

        Members with unchanged subscriptions continue, at worst with their present targets. Raise GroupMaxSizeReached
        for members that join, or read more.
        """
        # Begin with the scope that fitted at the last heartbeat, until the group epoch or the topics change. Most
        # scopes compute a whole assignment, which takes tens of milliseconds.
        topics, known, least = self._topics.image().topics_offset, self._too_large, DecisionScope.ALL
        if known is not None and group.consumer and known[:2] == (group.consumer.epoch, topics):
            least = known[2]
        targets_may_follow = False
        # At last retry with KNOWN_TOPICS: a member that reads more needs targets, even if the group had none before.
        for effort in (*list(DecisionScope)[least:], DecisionScope.KNOWN_TOPICS):
            # Targets that do not fit into a batch of their own will not fit with the next heartbeat either.
            if effort is DecisionScope.TARGETS_LATER and not targets_may_follow:
                continue
            try:
                decision, builder = self._built(group, write, at, effort)
            except TooManySubscribedTopics:
                continue
            self._check_weight(builder)
            # With unchanged targets, a member that reads more would wait for partitions in vain, so it is refused with
            # an error.
            if effort is DecisionScope.NO_TARGETS and _reads_more(group.consumer, builder.state):
                continue
            if batch_bytes(decision.records) <= self._config.message_max_bytes:
                self._builder = builder
                if effort is not DecisionScope.ALL and effort is not least:
                    log.warning("consumer_group_too_large", group_id=self.group_id, decided=effort.name)
                goes_on = (
                    effort in (DecisionScope.ALL, DecisionScope.TARGETS_LATER) or builder.rejected_regexes
                )
                self._too_large = None if goes_on else (builder.state.epoch, topics, effort)
                return decision
            targets_may_follow = self._may_follow(builder)
        raise GroupMaxSizeReached(TOO_MUCH)

    def _may_follow(self, builder: DecisionBuilder) -> bool:
        """Return whether targets that do not fit into a batch with the expressions' matches fit into a batch of their
        own.
        """
        targets = builder.records[builder.before_targets :]
        return builder.has_resolved and batch_bytes(tuple(targets)) <= self._config.message_max_bytes

    def _check_weight(self, builder: DecisionBuilder) -> None:
        """Raise GroupMaxSizeReached for a member with a larger description than there is room for."""
        if self._weights.total < self._weights.total_with(builder.state.members) > MAX_SUBSCRIPTION_BYTES:
            raise GroupMaxSizeReached(
                f"the subscriptions of a group may have at most {MAX_SUBSCRIPTION_BYTES} bytes"
            )

    def _built(
        self, group: Group, write: Write, at: Moment, effort: DecisionScope
    ) -> tuple[Decision, DecisionBuilder]:
        """Return the decision builder after a write, which may change the group's type."""
        begun = self._upgraded(group)
        started = group.consumer if group.consumer or not begun else apply_consumer(None, begun)
        builder = DecisionBuilder(self.group_id, started, self._surroundings(at, effort))
        reply = write(builder)
        classic = downgrade_to_classic(
            builder.state,
            generation=builder.state.epoch if started is None else started.epoch,
            policy=self._config.group_consumer_migration_policy,
            bounds=ClassicGroupLimits(
                self._config.group_max_size, max_generation_bytes(self._config.message_max_bytes)
            ),
            image=builder.context.image,
            now_ms=at.now_ms,
        )
        if classic is not None and group.consumer is not None:
            ended = consumer_group_tombstones(self.group_id, group.consumer)
            records: tuple[GroupRecord, ...] = (*ended, GroupChanged(self.group_id, classic))
            if batch_bytes(records) <= self._config.message_max_bytes:
                self.member_protocols = classic_protocols(builder.state)
                if isinstance(reply, JoinGroupResult):
                    reply = msgspec.structs.replace(reply, generation=classic.generation)
                return Decision(records, reply), builder
        ends = (GroupChanged(self.group_id, None),) if group.has_metadata else ()
        return Decision((*ends, *begun, *builder.records), reply), builder

    def _upgraded(self, group: Group) -> tuple[ConsumerRecord, ...]:
        if group.consumer is not None or self._former is None:
            return ()
        return upgrade_to_consumer(
            group,
            self._former.reader_view(group),
            self._former.member_protocols,
            policy=self._config.group_consumer_migration_policy,
            most_members=self._config.group_consumer_max_size,
            image=self._topics.image(),
        )

    def _surroundings(self, at: Moment, effort: DecisionScope) -> DecisionContext:
        image, settled = self._topics.image(), self._still_settled()
        is_other = image.topics_offset != self._topics_seen or len(settled) < len(self._settled)
        return DecisionContext(
            image,
            self._topics,
            at.now_ms,
            self._config.group_consumer_assignors,
            self._config.group_consumer_max_size,
            is_other or self._matches_came(),
            effort,
            at.now,
            settled if image.topics_offset == self._topics_seen else {},
            self._refused,
            self._config.message_max_bytes // RESOLVED_SHARE,
            self._config.message_max_bytes // EPOCHS_SHARE,
        )

    def _still_settled(self) -> Mapping[str, Sight]:
        """Return the settled expressions, except those with rights of a principal with changed ACLs."""
        old = {sight for sight in self._settled.values() if self._topics.sight(sight.viewer) != sight}
        if not old:
            return self._settled
        return {regex: sight for regex, sight in self._settled.items() if sight not in old}

    def _matches_came(self) -> bool:
        """Return whether the matches of an omitted expression may be known by now."""
        return not all(map(self._topics.is_queued, self._awaited))

    def _run(
        self,
        decide: Callable[[Group], Decision],
        answer: Answer,
        at: Moment,
        *,
        gone: str = "member_left",
        detail: str = "",
    ) -> None:
        """Decide, and set the timers of members that came or went. `gone`: the reason of the latter."""
        before, self._builder = self.recorded, None
        had_been = self.runner.tail
        self.runner.handle(decide, answer)
        after, builder = self.recorded, self._builder
        if builder is not None and builder.checked_topics and (after is not before or not builder.records):
            self._topics_seen = builder.context.image.topics_offset
            self._awaited, self._settled = frozenset(builder.queued_regexes), builder.resolved_regexes
            self._refused = frozenset(builder.rejected_regexes)
        if after is before:
            return
        self._history.members_changed(self.runner.tail, had_been, at, gone=gone, detail=detail)
        if after is not None:
            self._former = (
                None  # it does not come back: its members' protocols would stay for the group's life
            )
        had, has = (state.members if state else {} for state in (before, after))
        self._weights.update(has)
        self._refused &= {it.regex for it in has.values() if it.regex} if self._refused else frozenset()
        for member_id in had.keys() - has.keys():
            self._unheard.discard(member_id)
            self._timer.cancel(self._rebalance_key(member_id))
            if after is not None:  # in a classic group sessions continue
                self._timer.cancel(TimerKey(self.group_id, member_id))
        if after is None:
            return
        for member_id in has.keys() - had.keys():
            self._renew(member_id, at.now)

    # -- clocks --------------------------------------------------------------------------------------------

    def _note_alive(self, member_id: str, at: Moment, *, is_here: bool) -> None:
        if self.recorded is not None and member_id in self.recorded.members:
            if is_here:
                self._renew(member_id, at.now)
            self._watch_revocation(member_id, at.now)

    def _rebalance_key(self, member_id: str) -> TimerKey:
        """Return the key of the timer of a member's pending step, beside its session."""
        return TimerKey(self.group_id, member_id, TimerKind.REBALANCE)

    def _renew(self, member_id: str, now: float) -> None:
        assert self.recorded is not None
        classic = self.recorded.members[member_id].classic
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        else:
            own = self._topics.image().config("group", self.group_id)
            timeout_ms = group_config(self._config, own).consumer_session_timeout_ms
        self._timer.schedule(TimerKey(self.group_id, member_id), now + timeout_ms / 1000)

    def _watch_revocation(self, member_id: str, now: float) -> None:
        """Run the timer of a member with partitions to give up, from its notification on."""
        assert self.recorded is not None
        if self.recorded.members[member_id].classic is not None:
            return
        if self.recorded.current_assignment_of(member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            self._timer.cancel(self._rebalance_key(member_id))
        elif not self._timer.is_scheduled(self._rebalance_key(member_id)):
            self._timer.schedule(self._rebalance_key(member_id), now + self._rebalance_timeout_s(member_id))

    def _rebalance_timeout_s(self, member_id: str) -> float:
        assert self.recorded is not None
        return self.recorded.members[member_id].rebalance_timeout_ms / 1000


def _reads_more(before: ConsumerMembership | None, after: ConsumerMembership) -> bool:
    """Return whether there are new members, or members with other subscriptions."""
    then, now = (
        Counter((it.topics, it.regex) for it in each.members.values()) if each else Counter()
        for each in (before, after)
    )
    return not now <= then
