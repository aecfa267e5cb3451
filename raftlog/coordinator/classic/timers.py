"""The timers of one classic group: sessions, pending member ids, and the rebalance timeout.

It knows the length of each timer; the group handles their expiry.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorNotAvailable, GroupMaxSizeReached
from raftlog.coordinator.classic.pending_rebalance import PendingRebalance
from raftlog.coordinator.group import Member, Membership
from raftlog.coordinator.timer import MAX_PENDING_JOINS, CoordinatorTimer, TimerKey, TimerKind

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""A newcomer that waits longer than this for a rebalance to end is considered gone (as in Apache Kafka)."""

RETRY_S: Final = 1.0
"""Earliest retry of a change that could not be appended, or still has no member to lead it."""


class ClassicGroupTimers:
    """The timers of one group in `timer`, which all groups of a partition share. `now` is loop seconds."""

    __slots__ = ("_group_id", "_initial_delay_ms", "_rebalance", "_timer")

    def __init__(self, group_id: str, timer: CoordinatorTimer, config: NodeConfig) -> None:
        self._group_id = group_id
        self._timer = timer
        self._initial_delay_ms = config.group_initial_rebalance_delay_ms
        self._rebalance = TimerKey(group_id, "", TimerKind.REBALANCE)

    # -- members -------------------------------------------------------------------------------------------

    def renew_session(self, member: Member, now: float) -> None:
        """Give a member a whole session."""
        self._renew(member.member_id, now + member.session_timeout_ms / 1000)

    def start_new_member_timeout(self, member_id: str, now: float) -> None:
        """Give a member of no generation yet time until its first, however short its session is."""
        self._renew(member_id, now + NEW_MEMBER_TIMEOUT_S)

    def _renew(self, member_id: str, expires_at: float) -> None:
        self._timer.schedule(TimerKey(self._group_id, member_id), expires_at)

    def cancel_session(self, member_id: str) -> None:
        """Cancel the session of a removed member; it need not exist."""
        self._timer.cancel(TimerKey(self._group_id, member_id))

    # -- ids that were given out ---------------------------------------------------------------------------

    @property
    def pending_join_count(self) -> int:
        """How many member ids are pending (allocated, not yet used)."""
        return self._timer.pending_join_count(self._group_id)

    def is_pending_join(self, member_id: str) -> bool:
        return self._timer.is_pending_join(self._group_id, member_id)

    def add_pending_join(self, member_id: str, session_timeout_ms: int, now: float) -> None:
        """Add a pending member id. Raise GroupMaxSizeReached or CoordinatorNotAvailable beyond the limits."""
        if self.pending_join_count >= MAX_PENDING_JOINS:
            raise GroupMaxSizeReached(f"{MAX_PENDING_JOINS} members are about to join")
        if not self._timer.may_add_pending_join():
            raise CoordinatorNotAvailable("too many members of all groups are about to join")
        key = TimerKey(self._group_id, member_id, TimerKind.PENDING_JOIN)
        self._timer.schedule(key, now + session_timeout_ms / 1000)

    def cancel_pending_join(self, member_id: str) -> None:
        """Remove a pending member id; it need not exist."""
        self._timer.cancel(TimerKey(self._group_id, member_id, TimerKind.PENDING_JOIN))

    # -- a rebalance ---------------------------------------------------------------------------------------

    def start_rebalance_timeout(self, rebalance: PendingRebalance, now: float) -> None:
        """Start the timer of a rebalance: members have its timeout to join again, newcomers of an empty group its delay
        (KIP-134).
        """
        rebalance.began_at = now
        wait_ms = rebalance.rebalance_timeout_ms()
        if rebalance.is_initial:
            rebalance.remaining_ms = max(wait_ms - self._initial_delay_ms, 0)
            wait_ms = self._initial_delay_ms
        self._rebalance_within(wait_ms, now)

    def extend_initial_delay(self, rebalance: PendingRebalance, now: float) -> None:
        """Restart the delay after a new member, within the remaining time of the rebalance."""
        rebalance.new_member_added = False
        delay_ms = min(self._initial_delay_ms, rebalance.remaining_ms)
        rebalance.remaining_ms = max(rebalance.remaining_ms - delay_ms, 0)
        self._rebalance_within(delay_ms, now)

    def restart_rebalance_timeout(self, rebalance: PendingRebalance, now: float) -> None:
        """Restart the timer of a rebalance that could not be completed."""
        self._rebalance_within(max(rebalance.rebalance_timeout_ms(), RETRY_S * 1000), now)

    def start_sync_timeout(self, generation: Membership, now: float) -> None:
        """Give the members of a generation the largest of their rebalance timeouts to sync, as Kafka does."""
        self._rebalance_within(max(each.rebalance_timeout_ms for each in generation.members.values()), now)

    def _rebalance_within(self, wait_ms: float, now: float) -> None:
        self._timer.schedule(self._rebalance, now + wait_ms / 1000)

    def cancel_rebalance_timeout(self) -> None:
        """Cancel the timer; it need not be running."""
        self._timer.cancel(self._rebalance)
