"""The clocks of one classic group: its members' sessions, ids that nobody has joined with yet, the time of a rebalance.

How long each of them runs is known here, and nothing of what follows when one rings: that is the group's affair.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorNotAvailable, GroupMaxSizeReached
from raftlog.coordinator.group import Member, Membership
from raftlog.coordinator.pending_rebalance import PendingRebalance
from raftlog.coordinator.timer import MAX_PENDING_JOINS, CoordinatorTimer, TimerKey, TimerKind

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""A newcomer that waits longer than this for a rebalance to end has surely gone away (as in Apache Kafka)."""

RETRY_S: Final = 1.0
"""A change that could not be appended, or still has nobody to lead it, is tried again after this at the earliest."""


class ClassicGroupTimers:
    """Those of one group among `sessions`, the clocks of all groups of a partition. `now` is loop seconds."""

    __slots__ = ("_group_id", "_initial_delay_ms", "_rebalance", "_sessions")

    def __init__(self, group_id: str, sessions: CoordinatorTimer, config: NodeConfig) -> None:
        self._group_id = group_id
        self._sessions = sessions
        self._initial_delay_ms = config.group_initial_rebalance_delay_ms
        self._rebalance = TimerKey(group_id, "", TimerKind.REBALANCE)

    # -- members -------------------------------------------------------------------------------------------

    def renew_session(self, member: Member, now: float) -> None:
        """A member has a whole session from now on."""
        self._renew(member.member_id, now + member.session_timeout_ms / 1000)

    def start_new_member_timeout(self, member_id: str, now: float) -> None:
        """No generation has this member yet: it waits for one, however short its session is."""
        self._renew(member_id, now + NEW_MEMBER_TIMEOUT_S)

    def _renew(self, member_id: str, expires_at: float) -> None:
        self._sessions.schedule(TimerKey(self._group_id, member_id), expires_at)

    def cancel_session(self, member_id: str) -> None:
        """A member is out; fine if it never was in."""
        self._sessions.cancel(TimerKey(self._group_id, member_id))

    # -- ids that were given out ---------------------------------------------------------------------------

    @property
    def pending_join_count(self) -> int:
        """How many ids were given out with which nobody has joined yet."""
        return self._sessions.pending_join_count(self._group_id)

    def is_pending_join(self, member_id: str) -> bool:
        return self._sessions.is_pending_join(self._group_id, member_id)

    def add_pending_join(self, member_id: str, session_timeout_ms: int, now: float) -> None:
        """An id is given out. Raises GroupMaxSizeReached, CoordinatorNotAvailable for one too many."""
        if self.pending_join_count >= MAX_PENDING_JOINS:
            raise GroupMaxSizeReached(f"{MAX_PENDING_JOINS} members are about to join")
        if not self._sessions.may_add_pending_join():
            raise CoordinatorNotAvailable("too many members of all groups are about to join")
        key = TimerKey(self._group_id, member_id, TimerKind.PENDING_JOIN)
        self._sessions.schedule(key, now + session_timeout_ms / 1000)

    def cancel_pending_join(self, member_id: str) -> None:
        """An id was used, or given back; fine if it was not given out."""
        self._sessions.cancel(TimerKey(self._group_id, member_id, TimerKind.PENDING_JOIN))

    # -- a rebalance ---------------------------------------------------------------------------------------

    def start_rebalance_timeout(self, gathering: PendingRebalance, now: float) -> None:
        """A rebalance begins: members have its time to join again, newcomers of an empty group its delay (KIP-134)."""
        gathering.began_at = now
        wait_ms = gathering.rebalance_timeout_ms()
        if gathering.is_initial:
            gathering.remaining_ms = max(wait_ms - self._initial_delay_ms, 0)
            wait_ms = self._initial_delay_ms
        self._rebalance_within(wait_ms, now)

    def extend_initial_delay(self, gathering: PendingRebalance, now: float) -> None:
        """The delay begins anew, since somebody came, within what remains of the rebalance's time."""
        gathering.new_member_added = False
        delay_ms = min(self._initial_delay_ms, gathering.remaining_ms)
        gathering.remaining_ms = max(gathering.remaining_ms - delay_ms, 0)
        self._rebalance_within(delay_ms, now)

    def restart_rebalance_timeout(self, gathering: PendingRebalance, now: float) -> None:
        """A rebalance could not be ended: its time begins anew."""
        self._rebalance_within(max(gathering.rebalance_timeout_ms(), RETRY_S * 1000), now)

    def start_sync_timeout(self, generation: Membership, now: float) -> None:
        """The members of a generation have the time of its slowest to ask for their assignments."""
        self._rebalance_within(max(each.rebalance_timeout_ms for each in generation.members.values()), now)

    def _rebalance_within(self, wait_ms: float, now: float) -> None:
        self._sessions.schedule(self._rebalance, now + wait_ms / 1000)

    def cancel_rebalance_timeout(self) -> None:
        """Nobody is waited for; fine if nobody was."""
        self._sessions.cancel(self._rebalance)
