"""The nodes' own logs of a run: the phases of a failover, the elections, and events that must not occur.

A log is JSON lines, one event each, stamped with wall time; a line that is no event is a traceback or worse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

LANDMARKS: Final = {
    "lost": ("broker_connection_lost",),
    "elected": ("controller_became_active",),
    "fenced": ("controller_fenced_broker", "controlled_shutdown_began"),
    "led": ("roles_changed",),
}
"""Moments of a failover, and the log events that mark them. A round adds the beginning and the end of its longest gap:
stalled (before the strike, if something else stood still) and acknowledged."""

KINDS: Final = {
    "server_started": "start",
    "node_ready": "start",
    "node_stopping": "stop",
    "node_stopped": "stop",
    "node_failed": "stop",
    "uncaught_exception": "stop",
    "quorum_leader_changed": "election",
    "controller_became_active": "election",
    "controller_resigned": "election",
    "controller_fenced_broker": "fence",
    "controlled_shutdown_began": "fence",
    "controller_unfenced_broker": "unfence",
    "roles_changed": "leaders",
    "isr_shrunk": "isr",
    "isr_expanded": "isr",
    "isr_lost": "isr",
    "disk_full": "disk",
    "disk_full_ended": "disk",
    "log_directory_failed": "disk",
    "quorum_disk_full": "disk",
    "quorum_disk_full_ended": "disk",
    "quorum_out_of_files": "disk",
    "quorum_out_of_files_ended": "disk",
}
"""The events that a timeline shows, and what kind of thing each is."""

DETAILS: Final = (
    "topic",
    "partition",
    "broker_id",
    "leader",
    "term",
    "controller_epoch",
    "leading",
    "following",
    "isr",
    "reason",
)
ALARMS: Final = ("Traceback (most recent call last)", "AssertionError", "panicked", "Fatal Python error")
LINE_CHARACTERS: Final = 400


class Event(NamedTuple):
    """One event of a node's log. `wall_s` is seconds since the epoch."""

    node_id: int
    wall_s: float
    name: str
    level: str
    fields: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The event in words: its name and what it is about."""
        about = " ".join(f"{key}={self.fields[key]}" for key in DETAILS if key in self.fields)
        return f"{self.name} {about}".strip()


def read_events(node_id: int, lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of one node's log; what is no event is skipped."""
    for line in lines:
        entry = _entry(line)
        if entry is not None:
            yield Event(node_id, _seconds(entry), entry["event"], str(entry.get("level", "")), entry)


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
        if isinstance(entry["event"], str) and entry["timestamp"]:
            return dict(entry)
    except (ValueError, KeyError, TypeError):
        pass  # not an event: a traceback, say
    return None


def _seconds(entry: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(entry["timestamp"]).timestamp()
    except (ValueError, TypeError):
        return 0.0


def violations(node_id: int, lines: Iterable[str], expected: Iterable[str]) -> Iterator[str]:
    """Yield what no fault excuses: tracebacks and failed assertions, and error events that are not `expected`."""
    excused = frozenset(expected)
    for line in lines:
        entry = _entry(line)
        alarmed = any(alarm in line for alarm in ALARMS)
        if entry is None:
            if alarmed:
                yield f"node {node_id}: {line.strip()[:LINE_CHARACTERS]}"
        elif entry["event"] not in excused and (entry.get("level") == "error" or alarmed):
            yield f"node {node_id}: {line.strip()[:LINE_CHARACTERS]}"


def silent(nodes: Iterable[int], logs: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield each node without a log: its actions are unknown, which is no better than a traceback."""
    for node_id in nodes:
        if not logs.get(node_id):
            yield f"node {node_id}: left no log"


def moments(lines: Iterable[str], since: float) -> dict[str, float]:
    """Return, for each landmark seen in JSON log lines after `since` (wall clock seconds), how many seconds after."""
    return first_moments(read_events(0, lines), since)


def first_moments(events: Iterable[Event], since: float, until: float = float("inf")) -> dict[str, float]:
    """Return, for each landmark seen from `since` to `until` (wall clock seconds), how many seconds after `since`."""
    first: dict[str, float] = {}
    for event in events:
        if since <= event.wall_s <= until:
            for landmark, names in LANDMARKS.items():
                if event.name in names:
                    first[landmark] = min(first.get(landmark, float("inf")), event.wall_s - since)
    return first


def count_events(lines: Iterable[str], event: str, since: float) -> int:
    """Count an event in JSON log lines after `since` (wall clock seconds)."""
    return sum(each.name == event and each.wall_s >= since for each in read_events(0, lines))
