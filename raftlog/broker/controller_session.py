"""This broker's session with the active controller, as far as the broker itself can know it.

The controller fences a broker without heartbeats for broker.session.timeout.ms, and elects other leaders. A broker
that is cut off does not learn any of that. If clients still reach it, it would keep them for ever. It cannot commit
what they send, and its metadata responses name itself as the leader. So it has to know by itself when others may lead.

A heartbeat response begins a session anew, at the moment when the heartbeat was sent. So the session ends here before
it ends at the controller. Only a broker that answers no probe is fenced sooner, and that does not answer clients
either. The end alone proves no leader change: without any controller there are no elections, and brokers serve on. The
followers make the difference, since a follower that fetches from us knows of no other leader. So a partition may have
another leader once a member of its ISR does not fetch either. A member whose port refuses connections is no leader,
since its process is gone. If all others have died, the last broker serves on. Without another member, as in a cluster
of one node, no other replica may lead it.

This state is soft: it only affects responses to clients. Times are loop seconds. A stall of our own loop delays the
end by its length, since responses may have come meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.base.lateness import Lateness
from raftlog.base.log import get_logger
from raftlog.broker.links.probe import ProbeResult
from raftlog.metadata.image import PartitionState

log = get_logger(__name__)

NEVER: Final = float("-inf")
NOBODY: Final[frozenset[int]] = frozenset()

FETCHES_MISSED: Final = 2
"""A follower whose fetch waits longer than the session lasts is silent after this many waits."""


def may_be_led_elsewhere(state: PartitionState, broker_id: int, silent: frozenset[int]) -> bool:
    """Return whether a partition that `broker_id` leads by its own metadata may have another leader by now.

    `silent` are the members of its ISRs, and the eligible leaders, that may have been elected without its knowledge.
    """
    return state.leader == broker_id and not silent.isdisjoint(state.trusted)


class ControllerSession:
    """Call `check` a few times a second.

    `isr_members` returns the other members of the ISRs of the partitions that this broker leads, and the eligible
    leaders.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        session_s: float,
        fetch_wait_s: float,
        isr_members: Callable[[], frozenset[int]],
        on_change: Callable[[frozenset[int]], None],
    ) -> None:
        """`on_change` is called with the silent members, each time that they change."""
        self.lateness = Lateness()
        """The lateness of this node's loop. The controller gives a slow loop more time. Set it before the first
        `check`."""
        self.probe: Callable[[int], None] = lambda _broker_id: None
        """Starts a check of whether a broker's port answers, which reports to `probed`."""
        self.silent = NOBODY
        self.fetched_at: dict[int, float] = {}
        """When each follower sent its last fetch. The fetch handler sets it."""
        self._now = now
        self._session_s = session_s
        self._silence_s = max(session_s, FETCHES_MISSED * fetch_wait_s)
        self._isr_members = isr_members
        self._on_change = on_change
        self._ends_at = -NEVER
        self._missing: dict[int, ProbeResult | None] = {}
        """The members that do not fetch, and the last result of probing their ports."""
        self._probing: set[int] = set()
        """Brokers with a probe that has no result yet. On a slow node that takes longer than until the next look."""

    def renew(self, sent_at: float) -> None:
        """Renew the session: the controller responded to a heartbeat sent at that time, and did not fence us."""
        self._ends_at = sent_at + self._session_s
        self._missing = {}
        self._probing.clear()
        self._report_change()

    def check(self, late_s: float = 0.0) -> None:
        """Find the brokers that may lead without our knowledge. `late_s` is how long our loop was stalled before."""
        now = self._now()
        self._ends_at += max(0.0, late_s)
        if now < self._ends_at + self.lateness.patience_s:
            return
        heard_since = now - self._silence_s
        missing = [each for each in self._isr_members() if self.fetched_at.get(each, NEVER) < heard_since]
        self._missing = {each: self._missing.get(each) for each in missing}
        self._report_change()
        for each in missing:
            if each not in self._probing:
                self._probing.add(each)
                self.probe(each)

    def probed(self, broker_id: int, result: ProbeResult) -> None:
        """Note the result of probing a broker's port, if it is still missing."""
        self._probing.discard(broker_id)
        if broker_id in self._missing:
            self._missing[broker_id] = result
            self._report_change()

    def _report_change(self) -> None:
        silent = frozenset(each for each, said in self._missing.items() if said not in {None, "refused"})
        if silent == self.silent:
            return
        self.silent = silent
        self._on_change(silent)
        if silent:
            log.warning("controller_session_lost", silent_brokers=sorted(silent), session_s=self._session_s)
        else:
            log.info("controller_session_restored")
