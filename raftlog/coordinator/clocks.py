"""The clocks of one classic group: its members' sessions, ids that nobody has joined with yet, the time of a rebalance.

How long each of them runs is known here, and nothing of what follows when one rings: that is the group's affair.
"""

from __future__ import annotations

from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorNotAvailable, GroupMaxSizeReached
from raftlog.coordinator.gathering import Gathering
from raftlog.coordinator.group import Member, Membership
from raftlog.coordinator.sessions import MOST_EXPECTED, ClockKey, Kind, Sessions

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""A newcomer that waits longer than this for a rebalance to end has surely gone away (as in Apache Kafka)."""

RETRY_S: Final = 1.0
"""What could not be appended, or still has nobody to lead it, is tried again after this at the earliest."""


class Clocks:
    """Those of one group among `sessions`, the clocks of all groups of a partition. `now` is loop seconds."""

    __slots__ = ("_group_id", "_initial_delay_ms", "_rebalance", "_sessions")

    def __init__(self, group_id: str, sessions: Sessions, config: NodeConfig) -> None:
        self._group_id = group_id
        self._sessions = sessions
        self._initial_delay_ms = config.group_initial_rebalance_delay_ms
        self._rebalance = ClockKey(group_id, "", Kind.REBALANCE)

    # -- members -------------------------------------------------------------------------------------------

    def renew(self, member: Member, now: float) -> None:
        """A member has a whole session from now on."""
        self._renew(member.member_id, now + member.session_timeout_ms / 1000)

    def await_newcomer(self, member_id: str, now: float) -> None:
        """No generation has this member yet: it waits for one, however short its session is."""
        self._renew(member_id, now + NEW_MEMBER_TIMEOUT_S)

    def _renew(self, member_id: str, expires_at: float) -> None:
        self._sessions.renew(ClockKey(self._group_id, member_id), expires_at)

    def end(self, member_id: str) -> None:
        """A member is out; fine if it never was in."""
        self._sessions.end(ClockKey(self._group_id, member_id))

    # -- ids that were given out ---------------------------------------------------------------------------

    @property
    def expected_count(self) -> int:
        """How many ids were given out with which nobody has joined yet."""
        return self._sessions.expected_count(self._group_id)

    def is_expected(self, member_id: str) -> bool:
        return self._sessions.is_expected(self._group_id, member_id)

    def expect(self, member_id: str, session_timeout_ms: int, now: float) -> None:
        """An id is given out. Raises GroupMaxSizeReached, CoordinatorNotAvailable for one too many."""
        if self.expected_count >= MOST_EXPECTED:
            raise GroupMaxSizeReached(f"{MOST_EXPECTED} members are about to join")
        if not self._sessions.may_expect():
            raise CoordinatorNotAvailable("too many members of all groups are about to join")
        key = ClockKey(self._group_id, member_id, Kind.EXPECTED)
        self._sessions.renew(key, now + session_timeout_ms / 1000)

    def end_expected(self, member_id: str) -> None:
        """An id was used, or given back; fine if it was not given out."""
        self._sessions.end(ClockKey(self._group_id, member_id, Kind.EXPECTED))

    # -- a rebalance ---------------------------------------------------------------------------------------

    def gather(self, gathering: Gathering, now: float) -> None:
        """A rebalance begins: members have its time to join again, newcomers of an empty group its delay (KIP-134)."""
        wait_ms = gathering.rebalance_timeout_ms()
        if gathering.is_initial:
            gathering.remaining_ms = max(wait_ms - self._initial_delay_ms, 0)
            wait_ms = self._initial_delay_ms
        self._rebalance_within(wait_ms, now)

    def gather_further(self, gathering: Gathering, now: float) -> None:
        """The delay begins anew, since somebody came, within what remains of the rebalance's time."""
        gathering.saw_newcomer = False
        delay_ms = min(self._initial_delay_ms, gathering.remaining_ms)
        gathering.remaining_ms = max(gathering.remaining_ms - delay_ms, 0)
        self._rebalance_within(delay_ms, now)

    def gather_again(self, gathering: Gathering, now: float) -> None:
        """A rebalance could not be ended: its time begins anew."""
        self._rebalance_within(max(gathering.rebalance_timeout_ms(), RETRY_S * 1000), now)

    def await_syncs(self, generation: Membership, now: float) -> None:
        """The members of a generation have the time of its slowest to ask for their assignments."""
        self._rebalance_within(max(each.rebalance_timeout_ms for each in generation.members.values()), now)

    def _rebalance_within(self, wait_ms: float, now: float) -> None:
        self._sessions.renew(self._rebalance, now + wait_ms / 1000)

    def end_rebalance(self) -> None:
        """Nobody is waited for; fine if nobody was."""
        self._sessions.end(self._rebalance)
