"""The last heartbeat of each broker at the active controller, and which brokers it suspects. Kafka:
BrokerHeartbeatManager.

This state is soft: it is not replicated, and a new controller begins without any. It probes each unfenced broker that
sends no heartbeat within CONNECT_WITHIN_S. Only a heartbeat clears a suspicion, because only a heartbeat proves which
incarnation is alive. Deadlines are loop seconds. A stall of the controller's own loop shifts them all, so no broker is
fenced for it. The wall clocks that heartbeats report are kept here too.

A process that hangs keeps its connections, so only its silence shows that. A broker that was on time and has been
silent for a third of its session is probed. If its machine accepts the connection and nothing answers, it hangs and is
fenced. A busy machine looks the same for a moment. So a broker has its whole session where its own loop is often late,
or this controller's was late at all recently. It also has it for some time after it was fenced so and came back
(`HUNG_AGAIN_S`). A broker that is cut off has it too, as it goes on serving clients.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from raftlog.base.env import shared_time
from raftlog.base.lateness import PATIENCE, Lateness
from raftlog.base.record_ages import MOST_APART_MS, ClockState, OtherClocks
from raftlog.controller.broker_availability import BrokerAvailability, availability_of
from raftlog.metadata.broker_requests import BrokerHeartbeatReply
from raftlog.metadata.image import EMPTY_IMAGE

CONNECT_WITHIN_S: Final = 0.2
"""A new controller waits this long for each unfenced broker before it probes it."""

SLOW_SESSION_S: Final = 9.0
"""Longest extended session for a slow broker, or under a slow controller, in seconds. Apache Kafka gives it to every
broker. A longer broker.session.timeout.ms has precedence.
"""

HUNG_SHARE: Final = 1 / 3
"""The share of its session after which a silent broker is probed that was on time."""

HUNG_AFTER_S: Final = 1.0
"""The least of that in seconds."""

HEARTBEATS_MISSED: Final = 2
"""The least of that in intervals of heartbeats. If that is the whole session, no broker is probed for its silence."""

SOONER_S: Final = 0.3
"""A new controller probes its predecessor so much sooner: most voters missed its messages, which come more often."""

PROBE_ENDS_S: Final = 0.35
"""A probe has a result within this where the controller is on time, in seconds."""

HUNG_AGAIN_S: Final = 600.0
"""Seconds in which a broker that hung and came back is not fenced before the end of its session."""

HUNG_REASON: Final = "no heartbeat, and no answer to a probe"
"""Why a broker is fenced that hangs."""

SAME_MS: Final = 1_000
"""A clock that moved by less counts as unchanged, since heartbeats take time."""

NEVER: Final = float("inf")

NEVER_HUNG: Final[Mapping[int, float]] = {}

ProbeResult = Literal["refused", "alive", "accepted", "silent", "unreachable"]
"""accepted: the machine accepted the connection, but no response came in time."""


class LivenessEntry:
    """The liveness of one broker. `lost`: its connection dropped, and no heartbeat came since."""

    __slots__ = (
        "fence_reason",
        "has_hung",
        "heard",
        "hung_at",
        "is_asked",
        "lost",
        "patient_until",
        "probe_at",
        "queued_at",
        "session_ends_at",
    )

    def __init__(self) -> None:
        self.session_ends_at = 0.0
        self.heard = False
        self.lost = False
        self.probe_at: float | None = None
        self.fence_reason: str | None = None
        self.queued_at = NEVER
        self.hung_at = NEVER
        """When it is probed for its silence."""
        self.is_asked = False
        """Whether that probe has no result yet."""
        self.has_hung = False
        """Whether it is fenced because it did not answer."""
        self.patient_until = -NEVER
        """Until then it has the whole session."""

    @property
    def due_at(self) -> float:
        """Return when to act on it, unless a heartbeat comes before."""
        due_at = min(self.session_ends_at, self.hung_at)
        return due_at if self.probe_at is None else min(due_at, self.probe_at)


class BrokerLiveness:
    """The liveness of the brokers in the image. `lateness`: of the controller's own loop. `interval_s`: of heartbeats.

    Deadlines are in one heap, a broker's at most once. A heartbeat extends a deadline without touching the heap, and a
    pop that comes too early pushes it back. So a heartbeat costs the same however many brokers there are.
    """

    def __init__(self, session_s: float, lateness: Lateness, *, interval_s: float = 0.0) -> None:
        self._session_s = session_s
        hung_after_s = max(HUNG_SHARE * session_s, HUNG_AFTER_S, HEARTBEATS_MISSED * interval_s)
        self._hung_after_s = hung_after_s if hung_after_s < session_s else NEVER
        self._lateness = lateness
        self._entries: dict[int, LivenessEntry] = {}
        self._queue: list[tuple[float, int]] = []
        self._probes: list[int] = []
        self._to_fence: dict[int, None] = {}
        self.suspected: frozenset[int] = frozenset()
        """The suspected brokers; a new object after each change."""
        self.without_room: frozenset[int] = frozenset()
        """The brokers that last reported a full log directory; a new object after each change."""
        self.cordoned: frozenset[int] = frozenset()
        """The brokers that last reported that all their log directories are cordoned; likewise."""

    def start_sessions(
        self,
        broker_ids: Iterable[int],
        now: float,
        *,
        connected: Container[int],
        predecessor: int,
        heard_at: float | None = None,
        hung_at: Mapping[int, float] = NEVER_HUNG,
    ) -> None:
        """Begin as a new controller: `broker_ids` are unfenced, and suspected until their first heartbeat.

        The predecessor's node is probed at once: its death is the likeliest reason why there is a new controller.
        `heard_at` is when the quorum last heard it, by default now. `hung_at` is when brokers were fenced that hung.
        """
        for broker_id in broker_ids:
            entry = self._entries[broker_id] = LivenessEntry()
            entry.session_ends_at = now + self._patience_s(0.0)
            if broker_id not in connected:
                entry.probe_at = now if broker_id == predecessor else now + CONNECT_WITHIN_S
            self._enqueue(broker_id, entry)
        self.suspected = frozenset(self._entries)
        for broker_id, fenced_at in hung_at.items():
            self._entries.setdefault(broker_id, LivenessEntry()).patient_until = fenced_at + HUNG_AGAIN_S
        self._probe_predecessor(predecessor, now, now if heard_at is None else heard_at)

    def _probe_predecessor(self, broker_id: int, now: float, heard_at: float) -> None:
        """Have one probe decide whether it hangs: the first, if it was silent for long enough."""
        entry = self._entries.get(broker_id)
        if entry is None or entry.probe_at != now or now < entry.patient_until:
            return
        entry.hung_at = max(now, self._hung_at(heard_at - SOONER_S))
        if entry.hung_at < now + PROBE_ENDS_S:
            entry.probe_at = None
        self._enqueue(broker_id, entry)

    def _patience_s(self, late_s: float) -> float:
        """Return the session timeout of a broker whose loop is this late: longer if it or this controller is slow."""
        more_s = max(self._lateness.patience_s, PATIENCE * late_s)
        return min(self._session_s + more_s, max(self._session_s, SLOW_SESSION_S))

    def _hung_at(self, heard_at: float) -> float:
        """Return when a broker is probed that is silent from a time on; the controller's own timers run then too."""
        return NEVER if self._hung_after_s == NEVER else shared_time(heard_at, self._hung_after_s)

    def _enqueue(self, broker_id: int, entry: LivenessEntry) -> None:
        due_at = entry.due_at
        if due_at < entry.queued_at:
            entry.queued_at = due_at
            heappush(self._queue, (due_at, broker_id))

    def _look(self, now: float) -> None:
        """Sort the due brokers: to be probed, to be fenced, or due later."""
        while self._queue and self._queue[0][0] <= now:
            at, broker_id = heappop(self._queue)
            entry = self._entries[broker_id]
            if at != entry.queued_at:
                continue  # its deadline was extended, and it is in the queue again
            entry.queued_at = NEVER
            if entry.probe_at is not None and entry.probe_at <= now:
                entry.probe_at = None
                self._probes.append(broker_id)
            if entry.hung_at <= now:
                entry.hung_at, entry.is_asked = NEVER, True
                self._probes.append(broker_id)
            if entry.session_ends_at <= now:
                self._to_fence[broker_id] = None
            else:
                self._enqueue(broker_id, entry)

    def on_heartbeat(self, broker_id: int, now: float, late_s: float = 0.0) -> bool:
        """Record a heartbeat of the current incarnation, with the lateness of its loop. Return whether it clears a
        suspicion.
        """
        entry = self._entries.get(broker_id)
        if entry is None:
            entry = self._entries[broker_id] = LivenessEntry()
        entry.session_ends_at = now + self._patience_s(late_s)
        if entry.has_hung:
            entry.has_hung, entry.patient_until = False, now + HUNG_AGAIN_S
        is_calm = not (late_s or self._lateness.was_late or now < entry.patient_until)
        entry.hung_at = self._hung_at(now) if is_calm else NEVER
        entry.is_asked = False
        entry.heard = True
        entry.lost = False
        entry.probe_at = entry.fence_reason = None
        self._to_fence.pop(broker_id, None)
        self._enqueue(broker_id, entry)
        doubtful = broker_id in self.suspected
        if doubtful:
            self.suspected -= {broker_id}
        return doubtful

    def note_room(self, broker_id: int, *, lacks_room: bool) -> bool:
        """Record what a heartbeat reports of the broker's disks. Return whether it changed."""
        if (broker_id in self.without_room) == lacks_room:
            return False
        self.without_room ^= {broker_id}
        return True

    def note_cordoned(self, broker_id: int, *, cordoned: bool) -> None:
        """Record what a heartbeat reports of the broker's cordoned log directories."""
        if (broker_id in self.cordoned) != cordoned:
            self.cordoned ^= {broker_id}

    def on_connect(self, broker_id: int) -> None:
        """Cancel the probe of a broker that has connected. It may be a new incarnation, so the suspicion remains."""
        entry = self._entries.get(broker_id)
        if entry is not None and not entry.lost:
            entry.probe_at = None

    def on_disconnect(self, broker_id: int, now: float) -> None:
        """Suspect a broker after its connection dropped, and have it probed at once."""
        entry = self._entries.get(broker_id)
        if entry is not None:
            entry.lost = True
            entry.probe_at, entry.hung_at, entry.is_asked = now, NEVER, False
            self.suspected |= {broker_id}
            self._enqueue(broker_id, entry)

    def on_probe_result(self, broker_id: int, result: ProbeResult) -> None:
        """Record the result of a probe: refused and unreachable mean dead; silent does only after a lost connection.

        Otherwise the session decides: a new or a slow incarnation may have answered.
        """
        entry = self._entries.get(broker_id)
        if entry is None:
            return
        if entry.is_asked:
            entry.is_asked = False
            if result == "accepted" and not self._lateness.was_late:
                entry.has_hung, entry.fence_reason = True, HUNG_REASON
                self._to_fence[broker_id] = None
                return
        if broker_id not in self.suspected:
            return
        if result == "refused":
            entry.fence_reason = "connection refused"
        elif result == "unreachable":
            entry.fence_reason = "host unreachable"
        elif result == "silent" and entry.lost:
            entry.fence_reason = "connection lost, then silence"
        if entry.fence_reason is not None:
            self._to_fence[broker_id] = None

    def has_valid_session(self, broker_id: int, now: float) -> bool:
        """Return whether the current incarnation of a broker has a valid session."""
        entry = self._entries.get(broker_id)
        return entry is not None and entry.heard and not entry.lost and now < entry.session_ends_at

    def take_due_probes(self, now: float) -> list[int]:
        """Return the brokers to probe now; each is returned once per suspicion."""
        self._look(now)
        due, self._probes = self._probes, []
        return due

    def brokers_to_fence(self, now: float) -> dict[int, str]:
        """Return the brokers to fence now, and why; the same brokers until a heartbeat or `mark_fenced`."""
        self._look(now)
        return {each: self._entries[each].fence_reason or "session expired" for each in self._to_fence}

    def mark_fenced(self, broker_id: int) -> None:
        """Drop a fenced or unregistered broker until its next heartbeat."""
        self._to_fence.pop(broker_id, None)

    def next_deadline(self) -> float:
        """Return when to check again: not after the next probe is due or session ends, perhaps before."""
        if self._to_fence:
            return -NEVER
        return self._queue[0][0] if self._queue else NEVER

    def postpone_all(self, seconds: float) -> None:
        """Extend all deadlines by the length of a stall of our own loop."""
        for entry in self._entries.values():
            entry.session_ends_at += seconds
            entry.hung_at += seconds
            if entry.is_asked:  # the answer may have come meanwhile
                entry.is_asked = False
            if entry.probe_at is not None:
                entry.probe_at += seconds
        for broker_id in tuple(self._to_fence):
            if self._entries[broker_id].fence_reason is None:
                del self._to_fence[broker_id]
                self._enqueue(broker_id, self._entries[broker_id])


class Reading(NamedTuple):
    """One clock."""

    lead_ms: int
    state: int


NO_READING: Final = Reading(0, ClockState.UNSAID)


class BrokerClocks:
    """The wall clocks that brokers reported since this controller became active.

    A clock is kept as its lead over the controller's own loop. So the controller's wall clock plays no part, and
    readings of different moments can be compared. The cost of a heartbeat does not grow with the number of brokers:
    sorted leads are rebuilt only where a clock, its state, or the brokers have changed.
    """

    def __init__(self) -> None:
        self._readings: dict[int, Reading] = {}
        self._availability = availability_of(EMPTY_IMAGE)
        self._leads: dict[int | None, list[int]] = {}
        """The leads of unfenced brokers, sorted: all of them (None), and by state."""
        self._compared: dict[tuple[Reading, bool], OtherClocks] = {}
        """Comparisons of brokers' readings with these leads, and whether the own reading is one of them."""
        self._alive = 0
        """How many brokers are unfenced, except releases that report no clock."""
        self._is_stale = True

    def note(self, broker_id: int, wall_clock_ms: int, state: int, now: float) -> None:
        """Note a broker's clock from its heartbeat. `state` is UNSAID if its release reports none."""
        reading = Reading(wall_clock_ms - int(now * 1000), state) if state else NO_READING
        known = self._readings.get(broker_id)
        if known is None or known.state != state or abs(known.lead_ms - reading.lead_ms) > SAME_MS:
            self._readings[broker_id] = reading
            self._is_stale = True

    def added_to(self, reply: Any, broker_id: int, availability: BrokerAvailability) -> Any:
        """Return a reply to a broker's heartbeat with the other clocks in it, if it reported its own."""
        own = self._readings.get(broker_id, NO_READING)
        if not own.state or not isinstance(reply, BrokerHeartbeatReply):
            return reply
        counts = broker_id in availability.alive or broker_id in availability.shutting_down
        self._sort_if_stale(availability)
        compared = self._compared.get((own, counts))
        if compared is None:
            compared = self._compared[own, counts] = self._compare(own, leave_out=counts)
        return replace(reply, clocks=compared)

    def compared_with(self, wall_clock_ms: int, now: float, availability: BrokerAvailability) -> OtherClocks:
        """Compare all brokers' clocks with the clock of a controller that is not a broker."""
        own = Reading(wall_clock_ms - int(now * 1000), ClockState.BELIEVED)
        self._sort_if_stale(availability)
        return self._compare(own, leave_out=False)

    def _sort_if_stale(self, availability: BrokerAvailability) -> None:
        if self._is_stale or availability is not self._availability:
            self._sort(availability)
            self._compared.clear()

    def _compare(self, own: Reading, *, leave_out: bool) -> OtherClocks:
        all_leads = self._leads[None]
        agreeing = self._count_near(None, own) - leave_out
        believing = self._count_near(ClockState.BELIEVED, own) - (
            leave_out and own.state == ClockState.BELIEVED
        )
        doubting = self._count_near(ClockState.DOUBTED, own) - (leave_out and own.state == ClockState.DOUBTED)
        reported = len(all_leads) - leave_out
        ahead_ms = 0
        if reported:
            middle = reported // 2
            # without its own, which comes before its equals
            middle += leave_out and middle >= bisect_left(all_leads, own.lead_ms)
            ahead_ms = all_leads[middle] - own.lead_ms
        return OtherClocks(self._alive - leave_out, reported, agreeing, believing, doubting, ahead_ms)

    def _count_near(self, state: int | None, own: Reading) -> int:
        leads = self._leads.get(state, [])
        return bisect_right(leads, own.lead_ms + MOST_APART_MS) - bisect_left(
            leads, own.lead_ms - MOST_APART_MS
        )

    def _sort(self, availability: BrokerAvailability) -> None:
        self._availability, self._is_stale = availability, False
        unfenced = availability.alive | availability.shutting_down
        readings = {each: self._readings[each] for each in unfenced if each in self._readings}
        self._alive = len(unfenced) - sum(1 for each in readings.values() if not each.state)
        self._leads = {None: sorted(each.lead_ms for each in readings.values() if each.state)}
        for each in sorted(readings.values()):
            self._leads.setdefault(each.state, []).append(each.lead_ms)
