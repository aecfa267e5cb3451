"""This broker's session with the active controller, as the broker itself can know it.

The controller fences a broker that it has not heard of for broker.session.timeout.ms, and has others lead. A broker
that is cut off is told none of that. If clients still reach it, it would keep them for ever: it cannot commit what
they send, and names itself as the leader when they ask. So it has to know by itself when others may lead.

A heartbeat that is answered begins a session anew, at the moment when it was sent: so the session ends here before it
ends at the controller. Its end alone means nothing: while there is no controller at all, nobody is elected, and
brokers serve on. The followers tell the two apart, since one that fetches from us knows of no other leader. So a
partition may have another leader once a member of its ISR does not fetch either. One whose port refuses connections
is no leader, its process is gone: where all others have died, the last broker serves on. Without another member, as in
a cluster of one node, no other replica may lead it.

Soft: it decides nothing but what clients are told. Times are loop seconds. A stall of our own loop puts the end off by
its length, since answers may have come meanwhile.
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
"""A follower whose fetch waits longer than the session lasts is silent after so many waits."""


def may_be_led_elsewhere(state: PartitionState, broker_id: int, silent: frozenset[int]) -> bool:
    """Whether a partition that `broker_id` leads by its own metadata may have another leader by now.

    `silent`: the members of its ISRs that may have been elected without its knowledge.
    """
    return state.leader == broker_id and not silent.isdisjoint(state.isr)


class ControllerSession:
    """Call `look` a few times a second. `isr_members` returns who else is in an ISR of what this broker leads."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        session_s: float,
        fetch_wait_s: float,
        isr_members: Callable[[], frozenset[int]],
        on_change: Callable[[frozenset[int]], None],
    ) -> None:
        """`on_change` is told the members that are silent, each time that they are others than before."""
        self.lateness = Lateness()
        """Of this node's loop: a slow one is given more time by the controller. Set it before the first `look`."""
        self.probe: Callable[[int], None] = lambda _broker_id: None
        """Has the node look whether a broker's port answers, and tell `probed`."""
        self.silent = NOBODY
        self.fetched_at: dict[int, float] = {}
        """When each follower sent its last fetch; whoever handles one notes it here."""
        self._now = now
        self._session_s = session_s
        self._silence_s = max(session_s, FETCHES_MISSED * fetch_wait_s)
        self._isr_members = isr_members
        self._on_change = on_change
        self._ends_at = -NEVER
        self._missing: dict[int, ProbeResult | None] = {}
        """The members that do not fetch, and what their ports last said."""
        self._probing: set[int] = set()
        """Those whose ports have yet to say something. On a slow node that takes longer than until the next look."""

    def renew(self, sent_at: float) -> None:
        """The controller answered a heartbeat that was sent then, and did not say that we are fenced."""
        self._ends_at = sent_at + self._session_s
        self._missing = {}
        self._probing.clear()
        self._tell()

    def look(self, late_s: float = 0.0) -> None:
        """See who may lead without our knowledge. `late_s`: how long our loop stood still before."""
        now = self._now()
        self._ends_at += max(0.0, late_s)
        if now < self._ends_at + self.lateness.patience_s:
            return
        heard_since = now - self._silence_s
        missing = [each for each in self._isr_members() if self.fetched_at.get(each, NEVER) < heard_since]
        self._missing = {each: self._missing.get(each) for each in missing}
        self._tell()
        for each in missing:
            if each not in self._probing:
                self._probing.add(each)
                self.probe(each)

    def probed(self, broker_id: int, result: ProbeResult) -> None:
        """Note what the port of a broker said, if it is still missed."""
        self._probing.discard(broker_id)
        if broker_id in self._missing:
            self._missing[broker_id] = result
            self._tell()

    def _tell(self) -> None:
        silent = frozenset(each for each, said in self._missing.items() if said not in {None, "refused"})
        if silent == self.silent:
            return
        self.silent = silent
        self._on_change(silent)
        if silent:
            log.warning("broker_cut_off", silent=sorted(silent), session_s=self._session_s)
        else:
            log.info("broker_in_touch_again")
