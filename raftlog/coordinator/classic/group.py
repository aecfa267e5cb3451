"""One classic group: its recorded state, in a `Runner`, and the soft state of a rebalance.

Ordering law: soft state changes at once, so that the next request sees it. A response waits for every record that it
depends on. A generation (`rules.next_generation` counts it up) is committed before any member learns its number, so two
coordinators never use the same number. Apache Kafka records a generation only with its assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from raftlog.base.config import NodeConfig
from raftlog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.base.machine import Answer, Decision, Runner
from raftlog.coordinator.classic.member_protocols import MemberProtocols, ProtocolsByMember
from raftlog.coordinator.classic.pending_rebalance import ParkedJoin, PendingRebalance
from raftlog.coordinator.classic.rules import (
    check_join,
    check_member,
    check_protocols,
    check_sync,
    choose_protocol,
    decide_assign,
    decide_replace_static_member,
    find_member,
    join_result,
    joining_member,
    next_generation,
    static_rejoin_result,
    sync_result,
)
from raftlog.coordinator.classic.states import ClassicGroupEvent, next_state
from raftlog.coordinator.classic.timers import ClassicGroupTimers
from raftlog.coordinator.group import (
    COMPLETING_REBALANCE,
    NO_LEADER,
    PREPARING_REBALANCE,
    STABLE,
    Group,
    GroupChanged,
    Member,
    Membership,
)
from raftlog.coordinator.group_memory import OFFERED_SHARE, GroupMemory, max_generation_bytes
from raftlog.coordinator.group_requests import (
    JoinGroup,
    JoinGroupResult,
    MemberIdRequired,
    MemberRef,
    SyncGroup,
)
from raftlog.coordinator.timer import CoordinatorTimer, Moment

if TYPE_CHECKING:
    from raftlog.coordinator.group_history import GroupHistory

MAX_UNCOMMITTED_CHANGES: Final = 20
"""Changes of a group's members that wait for their commit: each holds a copy of the group."""


class ClassicGroup:
    """Requests are answered with a reply or a KafkaError, once each, some of them much later."""

    def __init__(
        self,
        runner: Runner[Group],
        timer: CoordinatorTimer,
        config: NodeConfig,
        *,
        history: GroupHistory,
        memory: GroupMemory | None = None,
    ) -> None:
        self.runner = runner
        self.group_id = runner.tail.group_id
        self._timers = ClassicGroupTimers(self.group_id, timer, config)
        self._config = config
        self._rebalance: PendingRebalance | None = None
        self._memory = memory or GroupMemory(config)
        self._history = history
        self._offers = MemberProtocols(self._memory.grow)
        self._syncs: dict[str, Answer] = {}
        """Members that wait for the leader's assignments."""
        self._unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignments yet."""
        self._uncommitted = 0

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return PREPARING_REBALANCE if self._rebalance else self.recorded.state

    @property
    def recorded(self) -> Membership:
        return self.runner.tail.membership

    @property
    def effective_membership(self) -> Membership:
        """The members that are accepted now, and their generation."""
        return self._rebalance.membership if self._rebalance else self.recorded

    @property
    def is_removable(self) -> bool:
        """Whether the group is neither recorded nor waited for, so that its object can be dropped."""
        waiting = self._rebalance is not None or self.runner.parked > 0
        return not (waiting or self.runner.tail.exists or self._timers.pending_join_count)

    def reader_view(self, group: Group) -> Group:
        """Return the group as readers see it: during a rebalance with its present members."""
        if self._rebalance is None:
            return group
        present = msgspec.structs.replace(self._rebalance.membership, members=dict(self._rebalance.members))
        return msgspec.structs.replace(group, membership=present, preparing=True)

    def on_loaded(self, now: float) -> None:
        """Begin as its new coordinator: every member gets a whole session, and a rebalance its whole timeout."""
        membership = self.recorded
        for member in membership.members.values():
            self._timers.renew_session(member, now)
            self._offers.put_recorded(member, membership.protocol)
        if membership.state == COMPLETING_REBALANCE:
            self._await_syncs(membership, now)
        elif (
            membership.state == STABLE and membership.leader == NO_LEADER
        ):  # a consumer group until its downgrade
            self._timers.start_rebalance_timeout(self._prepare(None), now)

    @property
    def member_protocols(self) -> ProtocolsByMember:
        """All protocols of each present member, as far as known."""
        return self._offers.all()

    @property
    def protocol_bytes(self) -> int:
        """About how many bytes of memory the present members' protocols take."""
        return self._offers.bytes

    def rebalance_after_downgrade(self, offers: ProtocolsByMember, at: Moment) -> None:
        """Rebalance the members of a former consumer group; `offers` are their protocols."""
        for member in self.recorded.members.values():
            self._offers.put(member, offers[member.member_id])
            self._timers.renew_session(member, at.now)
        self._remove_and_rebalance((), "member_left", at)

    def close_after_upgrade(self) -> None:
        """Answer waiting members with RebalanceInProgress: the group is a consumer group from now on."""
        rebalance, self._rebalance = self._rebalance, None
        waiting = [each.answer for each in rebalance.joins.values()] if rebalance else []
        waiting += self._syncs.values()
        self._syncs = {}
        self._timers.cancel_rebalance_timeout()
        for member_id in rebalance.members if rebalance else ():
            if self.runner.tail.consumer is None or member_id not in self.runner.tail.consumer.members:
                self._timers.cancel_session(member_id)
        self._offers.keep(())
        for answer in waiting:
            self._reply(RebalanceInProgress(), answer)

    def on_unloaded(self, error: KafkaError) -> None:
        """Answer all waiting requests with `error`."""
        rebalance, self._rebalance = self._rebalance, None
        waiting = [each.answer for each in rebalance.joins.values()] if rebalance else []
        waiting += self._syncs.values()
        self._syncs = {}
        for answer in waiting:
            answer(error)
        self.runner.stand_down(error)

    # -- joining -------------------------------------------------------------------------------------------

    def join(self, request: JoinGroup, answer: Answer, *, new_member_id: str, at: Moment) -> None:
        """Call `answer` with JoinGroupResult, after the rebalance if there is one, or with MemberIdRequired."""
        try:
            reply = self._admit(request, answer, new_member_id, at)
        except KafkaError as error:
            self._reply(error, answer)
            return
        if reply is not None:
            self._reply(reply, answer)

    def _admit(
        self, request: JoinGroup, answer: Answer, new_member_id: str, at: Moment
    ) -> JoinGroupResult | MemberIdRequired | None:
        """Return an immediate answer, or None if the join is answered already or parked."""
        if self._uncommitted >= MAX_UNCOMMITTED_CHANGES:
            raise CoordinatorNotAvailable(
                f"{self._uncommitted} changes of the group's members wait for their commit"
            )
        present, who = self.effective_membership, request.member
        check_join(request)
        static_id = who.group_instance_id
        old_member = None if static_id is None else present.member_of_instance(static_id)
        if old_member is not None and who.member_id:
            find_member(present, who)
        self._check_room(present, who.member_id if old_member is None else old_member.member_id, at)
        assert len(self._offers) == len(present.members), "every member offers something"
        check_protocols(request, present.protocol_type, self._offers.common())
        self._check_fits(joining_member(request, who.member_id or new_member_id), request)
        expected = self._timers.is_pending_join(who.member_id) and old_member is None
        if who.member_id and not expected:
            return self._admit_again(find_member(present, who), request, answer, at)
        if old_member is not None and not who.member_id:
            self._admit_returned(old_member, request, answer, new_member_id, at)
            return None
        if not who.member_id and request.may_require_member_id and who.group_instance_id is None:
            self._timers.add_pending_join(new_member_id, request.session_timeout_ms, at.now)
            return MemberIdRequired(new_member_id)
        self._timers.cancel_pending_join(who.member_id)
        self._gather(joining_member(request, who.member_id or new_member_id), request, answer, at)
        return None

    def _check_room(self, present: Membership, member_id: str, at: Moment) -> None:
        """Raise GroupMaxSizeReached. During a rebalance the first to join get the places."""
        most, rebalance = self._config.group_max_size, self._rebalance
        taken = rebalance.joins if rebalance else present.members
        if member_id not in taken and len(taken) >= most:
            if rebalance and member_id in present.members:
                self._remove_and_rebalance((member_id,), "member_refused", at)
            raise GroupMaxSizeReached(f"group.max.size is {most}")

    def _check_fits(self, member: Member, request: JoinGroup) -> None:
        """Raise GroupMaxSizeReached if the next generation would be too large to record, or the protocols to keep in
        memory. Raise PolicyViolation if the broker has no room for them.
        """
        most = max_generation_bytes(self._config.message_max_bytes)
        if self._offers.size_with(member, request.protocols) > most:
            raise GroupMaxSizeReached(
                f"the names and subscriptions of a group's members may have at most {most} bytes"
            )
        growth = self._offers.growth_with(member.member_id, request.protocols)
        if growth > 0:
            if self._offers.bytes + growth > OFFERED_SHARE * most:
                raise GroupMaxSizeReached(
                    f"the protocols of a group's members may have at most {OFFERED_SHARE * most} bytes"
                )
            self._memory.check_growth(growth, is_new=False)

    def _admit_again(
        self, member: Member, request: JoinGroup, answer: Answer, at: Moment
    ) -> JoinGroupResult | None:
        """Admit a member that joins again, after a lost response or with changed protocols."""
        recorded, state = self.recorded, self.state
        if self._offers_the_same(member, request):
            leads = state == STABLE and member.member_id == recorded.leader
            if state in (COMPLETING_REBALANCE, STABLE) and not leads:
                self._timers.renew_session(member, at.now)
                return join_result(recorded, member.member_id)
        self._gather(joining_member(request, member.member_id), request, answer, at)
        return None

    def _offers_the_same(self, member: Member, request: JoinGroup) -> bool:
        offer = self._offers.joined_with(member.member_id)
        if offer is not None:
            return offer == request.protocols
        return dict(request.protocols).get(self.recorded.protocol or "") == member.subscription

    def _gather(self, member: Member, request: JoinGroup, answer: Answer, at: Moment) -> None:
        """Park a join, and end the rebalance if it was the last."""
        begins = self._rebalance is None
        if begins and not self.runner.tail.exists:
            self._history.created(self.group_id, at)
        rebalance = self._prepare(request.protocol_type)
        if member.member_id not in rebalance.members:
            self._history.joined(self.group_id, member, at, request.reason)
        elif begins:
            had, leads = self._offers.joined_with(member.member_id), member.member_id == self.recorded.leader
            self._history.rejoined(self.group_id, member, request, had, at, leads=leads)
        is_new = member.member_id not in rebalance.members or (
            member.member_id in rebalance.joins and rebalance.joins[member.member_id].is_new
        )
        former = rebalance.park(member, ParkedJoin(request, answer, is_new))
        self._offers.put(member, request.protocols)
        if former is not None:
            self._reply(RebalanceInProgress(), former.answer)
        if is_new:
            self._timers.start_new_member_timeout(member.member_id, at.now)
        if begins:
            self._timers.start_rebalance_timeout(rebalance, at.now)
        self._complete_if_all_joined(at)

    def _admit_returned(
        self, old_member: Member, request: JoinGroup, answer: Answer, new_member_id: str, at: Moment
    ) -> None:
        """Give a static member that came back without its id its former place, and fence `old_member` (KIP-345)."""
        new_member = joining_member(request, new_member_id)
        if self.state == STABLE and self._keeps_protocol(old_member, request):
            self._replace(old_member, new_member, request, answer, at)
            return
        begins = self._rebalance is None
        sync = self._syncs.pop(old_member.member_id, None)
        if sync is not None:
            self._reply(FencedInstanceId(), sync)
        rebalance = self._prepare(request.protocol_type)
        self._history.members("static_member_replaced", self.group_id, (old_member,), at)
        led = rebalance.leader == old_member.member_id
        self._forget(old_member.member_id, rebalance, FencedInstanceId())
        if led:
            rebalance.leader = new_member_id
        rebalance.members[new_member_id] = msgspec.structs.replace(
            new_member, assignment=old_member.assignment
        )
        if begins:
            self._timers.start_rebalance_timeout(rebalance, at.now)
        self._timers.renew_session(new_member, at.now)
        self._gather(new_member, request, answer, at)

    def _keeps_protocol(self, old_member: Member, request: JoinGroup) -> bool:
        members = self.recorded.members
        offers = [
            request.protocols if each == old_member.member_id else self._offers.of(each) for each in members
        ]
        return choose_protocol(offers) == self.recorded.protocol

    def _replace(
        self, old_member: Member, new_member: Member, request: JoinGroup, answer: Answer, at: Moment
    ) -> None:
        before = self.recorded
        subscription = dict(request.protocols)[before.protocol or ""]
        replacement = msgspec.structs.replace(
            new_member, subscription=subscription, assignment=old_member.assignment
        )

        def answered(reply: object) -> None:
            if isinstance(reply, Membership):
                may_skip = request.may_skip_assignment
                answer(static_rejoin_result(before, reply, replacement.member_id, may_skip=may_skip))
            else:
                answer(reply)

        if self._write(lambda group: decide_replace_static_member(group, old_member, replacement), answered):
            self._history.members("static_member_replaced", self.group_id, (old_member,), at)
            self._timers.cancel_session(old_member.member_id)
            self._offers.drop(old_member.member_id)
            self._offers.put(replacement, request.protocols)
            self._synced(old_member.member_id)
            self._timers.renew_session(replacement, at.now)

    # -- a rebalance ---------------------------------------------------------------------------------------

    def _prepare(self, protocol_type: str | None) -> PendingRebalance:
        """Begin a rebalance, or return the running rebalance."""
        if self._rebalance is None:
            next_state(self.state, ClassicGroupEvent.MEMBERS_CHANGE)
            self._rebalance = PendingRebalance(self.recorded, protocol_type)
            self._unsynced.clear()
            syncs, self._syncs = self._syncs, {}
            for answer in syncs.values():
                self._reply(RebalanceInProgress(), answer)
        return self._rebalance

    def _complete_if_all_joined(self, at: Moment) -> KafkaError | None:
        """End the rebalance unless a member is still awaited, or the delay of an initial rebalance runs.

        Return the error if the next generation could not be recorded.
        """
        rebalance = self._rebalance
        if rebalance is None:
            return None
        if rebalance.is_initial:
            return None if self._config.group_initial_rebalance_delay_ms else self._complete(rebalance, at)
        if rebalance.members and self._timers.pending_join_count:
            return None
        return self._complete(rebalance, at) if rebalance.is_complete else None

    def _complete(self, rebalance: PendingRebalance, at: Moment) -> KafkaError | None:
        """Record the next generation of the joined members, and answer them."""
        self._remove(rebalance.members_not_rejoined(), "rebalance_timed_out", rebalance, at)
        if rebalance.members and not rebalance.joins:
            self._timers.restart_rebalance_timeout(rebalance, at.now)
            return None
        if not rebalance.members and not self.runner.tail.exists:
            self._end_rebalance()
            return None
        offers = {each: self._offers.of(each) for each in rebalance.members}
        generation = next_generation(rebalance, offers, now_ms=at.now_ms)
        answers = {member_id: join.answer for member_id, join in rebalance.joins.items()}

        def answered(reply: object) -> None:
            for member_id, answer in answers.items():
                answer(reply if isinstance(reply, KafkaError) else join_result(generation, member_id))

        event = ClassicGroupEvent.MEMBERS_GATHERED if generation.members else ClassicGroupEvent.EMPTIED
        after = next_state(self.state, event)
        self._end_rebalance()
        record = GroupChanged(self.group_id, generation)
        if not self._write(lambda _: Decision((record,)), answered):
            self._resume(rebalance, at)
            return CoordinatorNotAvailable("the next generation cannot be recorded now")
        # A response that left at once may have begun the next rebalance already.
        assert self._rebalance is not None or self.state == after
        self._generation_began(generation, at, took_ms=round((at.now - rebalance.began_at) * 1000))
        return None

    def _end_rebalance(self) -> None:
        self._rebalance = None
        self._timers.cancel_rebalance_timeout()

    def _resume(self, rebalance: PendingRebalance, at: Moment) -> None:
        """Go on with a rebalance after its generation could not be recorded.

        The joined members got the error, and may retry with their ids.
        """
        for member_id, join in tuple(rebalance.joins.items()):
            if join.is_new:
                rebalance.remove(member_id)
                self._timers.cancel_session(member_id)
                self._offers.drop(member_id)
                if member_id == join.request.member.member_id:
                    self._timers.add_pending_join(member_id, join.request.session_timeout_ms, at.now)
        rebalance.joins.clear()
        if rebalance.is_initial and not rebalance.members:
            return
        self._rebalance = rebalance
        self._timers.restart_rebalance_timeout(rebalance, at.now)

    def _generation_began(self, generation: Membership, at: Moment, *, took_ms: int) -> None:
        self._offers.keep(generation.members)
        for member in generation.members.values():
            self._timers.renew_session(member, at.now)
        if generation.members:
            self._await_syncs(generation, at.now)
        self._history.generation_began(
            self.group_id, generation.generation, len(generation.members), at, took_ms=took_ms
        )

    def _await_syncs(self, generation: Membership, now: float) -> None:
        self._unsynced = set(generation.members)
        self._timers.start_sync_timeout(generation, now)

    # -- assignments ---------------------------------------------------------------------------------------

    def sync(self, request: SyncGroup, answer: Answer, *, at: Moment) -> None:
        """Call `answer` with the assignment: now in a stable group, otherwise once the leader has sent assignments."""
        try:
            member = check_sync(self.effective_membership, request)
            if self._rebalance is not None:
                raise RebalanceInProgress
        except KafkaError as error:
            self._reply(error, answer)
            return
        self._timers.renew_session(member, at.now)
        self._synced(member.member_id)
        if self.state == STABLE:
            self._reply(sync_result(self.recorded, member.member_id), answer)
            return
        former = self._syncs.pop(member.member_id, None)
        if former is not None:
            self._reply(RebalanceInProgress(), former)
        self._syncs[member.member_id] = answer
        if member.member_id == self.recorded.elected:
            self._assign(request, at)

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced and self._rebalance is None:
            self._timers.cancel_rebalance_timeout()

    def _assign(self, request: SyncGroup, at: Moment) -> None:
        after = next_state(self.state, ClassicGroupEvent.ASSIGNED)
        waiting, self._syncs = self._syncs, {}

        def answered(reply: object) -> None:
            for member_id, answer in waiting.items():
                answer(sync_result(reply, member_id) if isinstance(reply, Membership) else reply)

        if self._write(lambda group: decide_assign(group, request, now_ms=at.now_ms), answered):
            assert self.state == after
            self._history.settled(self.group_id, at)
            for member_id in waiting:
                self._timers.renew_session(self.recorded.members[member_id], at.now)
        else:  # the leader and the waiting members retry
            self._await_syncs(self.recorded, at.now)

    # -- staying and leaving -------------------------------------------------------------------------------

    def heartbeat(self, ref: MemberRef, answer: Answer, *, generation: int, at: Moment) -> None:
        """Renew the session. Call `answer` with None, or with RebalanceInProgress if the member must rejoin."""
        try:
            self._timers.renew_session(check_member(self.effective_membership, ref, generation), at.now)
            if self._rebalance is not None:
                raise RebalanceInProgress
        except KafkaError as error:
            self._reply(error, answer)
            return
        self._reply(None, answer)

    def on_member_activity(self, ref: MemberRef, now: float) -> None:
        """Renew the session of an active member."""
        member = self.effective_membership.members.get(ref.member_id)
        if member is not None:
            self._timers.renew_session(member, now)

    def leave(self, ref: MemberRef, answer: Answer, *, at: Moment, reason: str = "") -> None:
        """Remove the member or release its unused member id, and call `answer` with None."""
        if self._timers.is_pending_join(ref.member_id):
            self._timers.cancel_pending_join(ref.member_id)
            self._complete_if_all_joined(at)
            self._reply(None, answer)
            return
        try:
            member = find_member(self.effective_membership, ref)
        except KafkaError as error:
            self._reply(error, answer)
            return
        self._reply(self._remove_and_rebalance((member.member_id,), "member_left", at, reason), answer)

    def on_session_timeout(self, member_id: str, at: Moment) -> None:
        """Remove a silent member, unless it waits for an answer of this coordinator."""
        member = self.effective_membership.members.get(member_id)
        if member is None:
            return
        join = self._rebalance.joins.get(member_id) if self._rebalance else None
        if member_id in self._syncs or (join is not None and not join.is_new):
            self._timers.renew_session(member, at.now)
            return
        self._remove_and_rebalance((member_id,), "session_timed_out", at, f"{member.session_timeout_ms} ms")

    def on_pending_join_timeout(self, at: Moment) -> None:
        """Drop a member id that was never used."""
        self._complete_if_all_joined(at)

    def on_rebalance_timeout(self, at: Moment) -> None:
        """End a rebalance at its timeout. Without one, remove the members that have not synced in time.

        Kafka has two timers for this: one to join again, one for pending syncs.
        """
        rebalance = self._rebalance
        if rebalance is None:
            if self._unsynced:
                self._remove_and_rebalance(tuple(self._unsynced), "sync_timed_out", at)
        elif rebalance.is_initial and rebalance.new_member_added and rebalance.remaining_ms:
            self._timers.extend_initial_delay(rebalance, at.now)
        else:
            self._complete(rebalance, at)

    def _remove_and_rebalance(
        self, member_ids: tuple[str, ...], what: str, at: Moment, detail: str = ""
    ) -> KafkaError | None:
        """Remove members, and rebalance the others; return the error if an empty group could not be recorded.

        `what` is the event for `GroupHistory`.
        """
        begins = self._rebalance is None
        rebalance = self._prepare(None)
        self._remove(member_ids, what, rebalance, at, detail)
        if begins:
            self._timers.start_rebalance_timeout(rebalance, at.now)
        return self._complete_if_all_joined(at)

    def _remove(
        self, member_ids: Sequence[str], what: str, rebalance: PendingRebalance, at: Moment, detail: str = ""
    ) -> None:
        there = [rebalance.members[each] for each in member_ids if each in rebalance.members]
        self._history.members(what, self.group_id, there, at, detail)
        for each in member_ids:
            self._forget(each, rebalance, UnknownMemberId())

    def _forget(self, member_id: str, rebalance: PendingRebalance, reason: KafkaError) -> None:
        """Remove a member; its waiting request is answered with `reason`."""
        self._timers.cancel_session(member_id)
        self._offers.drop(member_id)
        join = rebalance.remove(member_id)
        if join is not None:
            self._reply(reason, join.answer)

    # -- the journal ---------------------------------------------------------------------------------------

    def _reply(self, reply: object, answer: Answer) -> None:
        """Answer once all decisions so far are committed."""

        def decide(_: Group) -> Decision:
            if isinstance(reply, KafkaError):
                raise reply
            return Decision(reply=reply)

        self.runner.handle(decide, answer)

    def _write(self, decide: Callable[[Group], Decision], answer: Answer) -> bool:
        """Append records; False if that failed, without a change."""

        def answered(reply: object) -> None:
            self._uncommitted -= 1
            answer(reply)

        before = self.runner.tail
        self._uncommitted += 1
        self.runner.handle(decide, answered)
        return self.runner.tail is not before
