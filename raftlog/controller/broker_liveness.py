"""The active controller's memory of brokers beside the image: when it heard of them, and whom it doubts.

Soft: it is no part of the replicated state, dies with the leadership, and a new controller begins with a fresh one, in
which every unfenced broker must come within CONNECT_WITHIN_S or is probed. Only a heartbeat clears a doubt, because it
alone proves which incarnation is alive. Deadlines are loop seconds; a stall of the controller's own loop shifts them
all, so that nobody is fenced for the controller's pause.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, Literal

from raftlog.base.lateness import PATIENCE, Lateness

CONNECT_WITHIN_S: Final = 0.2
"""So long a new controller waits for each unfenced broker before it probes it."""

SLOW_SESSION_S: Final = 9.0
"""Longest patience with a broker whose loop is slow, or that a slow controller hears of late, seconds. Apache Kafka has
it with every broker. A longer broker.session.timeout.ms stands."""

ProbeResult = Literal["refused", "alive", "accepted", "silent"]
"""accepted: the machine took the connection, but no answer came in time."""


class LivenessEntry:
    """The liveness of one broker. `on_disconnect`: its connection dropped and nothing was heard of it since."""

    __slots__ = ("fence_reason", "heard", "lost", "probe_at", "session_ends_at", "suspected")

    def __init__(self, session_ends_at: float) -> None:
        self.session_ends_at = session_ends_at
        self.heard = False
        self.lost = False
        self.suspected = False
        self.probe_at: float | None = None
        self.fence_reason: str | None = None


class BrokerLiveness:
    """The contacts of the brokers that the image knows. `lateness`: of the controller's own loop."""

    def __init__(self, session_s: float, lateness: Lateness) -> None:
        self._session_s = session_s
        self._lateness = lateness
        self._contacts: dict[int, LivenessEntry] = {}

    def start_sessions(
        self, broker_ids: Iterable[int], now: float, *, connected: Container[int], predecessor: int
    ) -> None:
        """Begin as a new controller: `broker_ids` are unfenced, and doubtful until they are heard of.

        The predecessor's node is probed at once: its death is the likeliest reason why there is a new controller.
        """
        for broker_id in broker_ids:
            contact = self._contacts[broker_id] = LivenessEntry(now + self._patience_s(0.0))
            contact.suspected = True
            if broker_id not in connected:
                contact.probe_at = now if broker_id == predecessor else now + CONNECT_WITHIN_S

    def _patience_s(self, late_s: float) -> float:
        """Return how long to wait for a broker whose loop is so late: longer, if it or we are slow."""
        more_s = max(self._lateness.patience_s, PATIENCE * late_s)
        return min(self._session_s + more_s, max(self._session_s, SLOW_SESSION_S))

    def on_heartbeat(self, broker_id: int, now: float, late_s: float = 0.0) -> bool:
        """A heartbeat of the current incarnation came, whose loop is so late. Returns whether this clears a doubt."""
        contact = self._contacts.get(broker_id)
        if contact is None:
            contact = self._contacts[broker_id] = LivenessEntry(0.0)
        doubtful = contact.suspected
        contact.session_ends_at = now + self._patience_s(late_s)
        contact.heard = True
        contact.lost = contact.suspected = False
        contact.probe_at = contact.fence_reason = None
        return doubtful

    def on_connect(self, broker_id: int) -> None:
        """A connection came, so that no probe is needed. It may be a new incarnation: the doubt remains."""
        contact = self._contacts.get(broker_id)
        if contact is not None and not contact.lost:
            contact.probe_at = None

    def on_disconnect(self, broker_id: int, now: float) -> None:
        """A connection dropped: probe at once."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.lost = contact.suspected = True
            contact.probe_at = now

    def on_probe_result(self, broker_id: int, result: ProbeResult) -> None:
        """Note what became of a probe: refused means dead; silent does only after a lost connection.

        Else the session decides: it may be a new incarnation that answered, or a slow one that has yet to.
        """
        contact = self._contacts.get(broker_id)
        if contact is None or not contact.suspected:
            return
        if result == "refused":
            contact.fence_reason = "connection refused"
        elif result == "silent" and contact.lost:
            contact.fence_reason = "connection lost, then silence"

    def has_valid_session(self, broker_id: int, now: float) -> bool:
        """Say whether the current incarnation of a broker is heard of at this moment."""
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.heard and not contact.lost and now < contact.session_ends_at

    def suspected(self) -> set[int]:
        return {broker_id for broker_id, contact in self._contacts.items() if contact.suspected}

    def take_due_probes(self, now: float) -> list[int]:
        """Return the brokers to probe now; each is returned once per doubt."""
        due = [
            broker_id
            for broker_id, contact in self._contacts.items()
            if contact.probe_at is not None and contact.probe_at <= now
        ]
        for broker_id in due:
            self._contacts[broker_id].probe_at = None
        return due

    def fence_reason(self, broker_id: int, now: float) -> str | None:
        """Return why an unfenced broker must be fenced now, or None."""
        contact = self._contacts.get(broker_id)
        if contact is None:
            return None
        if contact.fence_reason is None and now >= contact.session_ends_at:
            return "session expired"
        return contact.fence_reason

    def next_deadline(self, unfenced: Iterable[int]) -> float:
        """Return when the next probe is due or session of an unfenced broker ends; infinity if never."""
        deadline = float("inf")
        for broker_id in unfenced:
            contact = self._contacts.get(broker_id)
            if contact is not None:
                deadline = min(deadline, contact.session_ends_at)
                if contact.probe_at is not None:
                    deadline = min(deadline, contact.probe_at)
        return deadline

    def postpone_all(self, seconds: float) -> None:
        """Put all deadlines off by the length of a stall of our own."""
        for contact in self._contacts.values():
            contact.session_ends_at += seconds
            if contact.probe_at is not None:
                contact.probe_at += seconds
