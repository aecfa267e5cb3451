"""Decisions about members of the consumer protocol: heartbeat, leave, and out for silence (KIP-848).

One heartbeat does it all, in one batch of records: the member is let in or changed, a new epoch begins if that matters
to others, targets are computed for it, and the member takes its next step. So whatever is told can be read back.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from raftlog.base.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from raftlog.base.regex import check_regex
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.consumer.draft import MOST_READ, Draft, TooMuchToRead
from raftlog.coordinator.consumer.reconcile import is_part, rejoined
from raftlog.coordinator.consumer.requests import JOINING, LEAVES, LEAVING, Beat, Heard
from raftlog.coordinator.consumer.state import (
    LEFT_FOR_A_WHILE,
    NOTHING,
    Current,
    CurrentChanged,
    MemberState,
    Subscriber,
)


def check_beat(beat: Beat, assignors: Sequence[str]) -> None:
    """Raises InvalidRequest, UnsupportedAssignor, InvalidRegularExpression for what cannot be meant."""
    for name in ("instance_id", "rack_id", "member_id", "client_id"):
        value = getattr(beat, name)
        if value is not None and not value.strip() and name != "client_id":
            raise InvalidRequest(f"{name} must not be empty")
        if value is not None and len(value) > NAME_MAX_CHARS:
            raise InvalidRequest(f"{name} has at most {NAME_MAX_CHARS} characters")
    if beat.epoch < LEFT_FOR_A_WHILE:
        raise InvalidRequest(f"member_epoch is at least {LEFT_FOR_A_WHILE}")
    if beat.epoch == LEFT_FOR_A_WHILE and beat.instance_id is None:
        raise InvalidRequest("instance_id must be given by who means to come back")
    if beat.epoch == JOINING:
        _check_joining(beat)
    if beat.topics is not None and len(beat.topics) > MOST_READ:
        raise InvalidRequest(f"subscribed_topic_names has at most {MOST_READ} topics")
    if beat.regex:
        check_regex(beat.regex)
    if beat.assignor is not None and beat.assignor not in assignors:
        raise UnsupportedAssignor(f"{beat.assignor} is not supported, only {', '.join(assignors)}")


def _check_joining(beat: Beat) -> None:
    if beat.rebalance_timeout_ms == -1:
        raise InvalidRequest("rebalance_timeout must be given when joining")
    if beat.owned is None or beat.owned:
        raise InvalidRequest("topic_partitions must be empty when joining")
    if beat.topics is None and beat.regex is None:
        raise InvalidRequest("subscribed_topic_names or subscribed_topic_regex must be given when joining")


def decide_beat(draft: Draft, beat: Beat, *, tell_again: bool = False) -> Heard:
    """Write a member's heartbeat into a draft; returns its answer. Raises UnknownMemberId, FencedMemberEpoch,
    UnreleasedInstanceId, FencedInstanceId, GroupMaxSizeReached, TooMuchToRead.

    `tell_again`: the member was told what it has, and has not said since that it has it.
    """
    draft.check_room(beat.member_id, beat.instance_id)
    had = _admit(draft, beat)
    changed = draft.describe(beat.member_id, _described(draft.state.members.get(beat.member_id), beat))
    draft.settle(changed=changed)
    if changed and draft.state.members[beat.member_id].regex in draft.refused:
        raise TooMuchToRead
    draft.reconcile(beat.member_id, beat.owned)
    current = draft.state.current_of(beat.member_id)
    is_news = beat.is_full or beat.epoch != had.epoch or current.assigned != had.assigned
    # it may not have heard: librdkafka takes an answer that comes late for lost, and asks again as if it had missed
    # nothing. Others wait for what it gives up, and nobody reads what it does not know that it has
    says_it_has = beat.owned is not None and is_part(current.assigned, beat.owned)
    is_owed = (tell_again and not says_it_has) or current.state is MemberState.UNREVOKED_PARTITIONS
    return Heard(beat.member_id, current.epoch, current.assigned if is_news or is_owed else None)


def _admit(draft: Draft, beat: Beat) -> Current:
    """Let the sender in, or recognise it; returns what it had."""
    state = draft.state
    holder = None if beat.instance_id is None else state.holder_of(beat.instance_id)
    if beat.instance_id is not None and holder != beat.member_id:
        if beat.epoch != JOINING:
            if holder is None:
                raise UnknownMemberId(f"no member has the instance id {beat.instance_id}")
            raise FencedInstanceId(f"instance id {beat.instance_id} belongs to member {holder}")
        if holder is not None:
            return _succeed(draft, beat, holder)
    if beat.member_id not in state.members:
        if beat.epoch != JOINING:
            raise UnknownMemberId(f"member {beat.member_id} is not in group {beat.group_id}")
        return state.current_of(beat.member_id)
    current = state.current_of(beat.member_id)
    if beat.epoch == JOINING:
        return _rejoin(draft, beat.member_id, current)
    check_epoch(current, beat)
    if current.state is MemberState.UNKNOWN and beat.owned != NOTHING:
        raise FencedMemberEpoch("a newer coordinator left the member in a state that is unknown here")
    return current


def _succeed(draft: Draft, beat: Beat, holder: str) -> Current:
    """A static member's next life takes its place, if the life before has left (or spoke the classic protocol)."""
    state = draft.state
    former = state.current_of(holder)
    if state.members[holder].classic is None and former.epoch != LEFT_FOR_A_WHILE:
        raise UnreleasedInstanceId(f"instance id {beat.instance_id} is still used by member {holder}")
    if beat.member_id in state.members:
        raise InvalidRequest(f"member {beat.member_id} is in the group already, under another instance id")
    current = rejoined(former)
    draft.replace(holder, beat.member_id, current)
    return current


def _rejoin(draft: Draft, member_id: str, current: Current) -> Current:
    """A member comes back to its place with nothing in its hands (KAFKA-19233)."""
    if current.epoch != JOINING:
        current = rejoined(current)
        draft.put(CurrentChanged(draft.group_id, member_id, current))
    return current


def check_epoch(current: Current, beat: Beat) -> None:
    """Raises FencedMemberEpoch, unless the answer that told the newest epoch may have been lost on the way."""
    if beat.epoch == current.epoch:
        return
    lost = beat.epoch == current.previous_epoch and beat.owned is not None
    if lost and is_part(beat.owned or NOTHING, current.assigned):
        return
    raise FencedMemberEpoch(
        f"member {beat.member_id} is in epoch {current.epoch}, not {beat.epoch}: it must give up all and join again"
    )


def _described(before: Subscriber | None, beat: Beat) -> Subscriber:
    old = before or Subscriber()
    return Subscriber(
        old.instance_id if beat.instance_id is None else beat.instance_id,
        old.rack_id if beat.rack_id is None else beat.rack_id,
        beat.client_id,
        beat.client_host,
        old.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
        old.regex if beat.regex is None else (beat.regex or None),
        old.rebalance_timeout_ms if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms,
        old.assignor if beat.assignor is None else beat.assignor,
    )


def decide_leave(draft: Draft, beat: Beat) -> Heard:
    """Take out who leaves; a static member that means to come back keeps its place for a session.

    Raises UnknownMemberId, FencedInstanceId.
    """
    assert beat.epoch in LEAVES
    state = draft.state
    if beat.instance_id is not None:
        holder = state.holder_of(beat.instance_id)
        if holder is None:
            raise UnknownMemberId(f"no member has the instance id {beat.instance_id}")
        if holder != beat.member_id:
            raise FencedInstanceId(f"instance id {beat.instance_id} belongs to member {holder}")
    if beat.member_id not in state.members:
        raise UnknownMemberId(f"member {beat.member_id} is not in group {beat.group_id}")
    if beat.epoch == LEAVING:
        draft.remove(beat.member_id)
        draft.begin_epoch()
    else:
        current = state.current_of(beat.member_id)
        away = msgspec.structs.replace(
            current, epoch=LEFT_FOR_A_WHILE, state=MemberState.STABLE, revoking=NOTHING
        )
        draft.put(CurrentChanged(draft.group_id, beat.member_id, away))
    return Heard(beat.member_id, beat.epoch)


def decide_fence(draft: Draft, member_ids: Sequence[str]) -> None:
    """Take out members that fell silent, or did not give up their partitions in time."""
    draft.remove(*(each for each in member_ids if each in draft.state.members))
    draft.begin_epoch()
