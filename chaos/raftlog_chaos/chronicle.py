"""The chronicle of a run: which node did what when, kept per partition, and reduced to the few lines that explain a
failure.

Observers write it (invariants, hosts, clients); it does not judge. It is kept only in the replay of a failed seed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from raftlog.base.types import TopicPartition

KEPT_EVENTS: Final = 20_000
"""Newest events kept per partition, and of the cluster."""

TIMELINE_LINES: Final = 60
"""Longest scenario."""

LEAD_IN_LINES: Final = 6

Kind = Literal["appended", "truncated", "high watermark", "acked", "role", "metadata", "fault", "violated"]

_OFFSET = re.compile(r"\b(?:at|offset|from|to)(?: offset)? (\d+)")
_CROWD: Final = frozenset({"appended", "truncated", "high watermark", "acked"})
"""Frequent kinds: shown only where they concern the offset in question."""

_PLAIN: Final = (
    (" power_loss=True", ", unsynced writes lost"),
    (" power_loss=False", ""),
    (" silent=True", ", without a word to its peers"),
    (" silent=False", ""),
    ("healed * *", "all links healed"),
)


class Event(NamedTuple):
    """An event of a node (or a client, or the network). `start` to `end`: the offsets concerned, if any."""

    at_s: float
    node: str
    kind: Kind
    text: str
    start: int = -1
    end: int = -1
    number: int = 0
    """In the order of notice: time stands still within a step."""


class Chronicle:
    """Takes events in the order of virtual time; `now` gives it, in seconds since the beginning."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._count = 0
        self._cluster: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._partitions: dict[TopicPartition, deque[Event]] = {}

    def note(
        self,
        node: str,
        kind: Kind,
        text: str,
        *,
        where: TopicPartition | None = None,
        offsets: tuple[int, int] = (-1, -1),
    ) -> None:
        """Add what happened now, to a partition or to all. `offsets`: first and end."""
        self._count += 1
        event = Event(self._now(), node, kind, text, *offsets, self._count)
        if where is None:
            self._cluster.append(event)
            return
        events = self._partitions.setdefault(where, deque(maxlen=KEPT_EVENTS))
        last = events[-1] if events else None
        if last is not None and (last.node, last.kind, last.end) == (node, kind, offsets[0]) != (
            node,
            kind,
            -1,
        ):
            events[-1] = last._replace(end=offsets[1])  # one more of the same
        else:
            events.append(event)

    def note_world(self, _now: float, host: str, text: str) -> None:
        """Add what happened to a host or to the network (`Trace.on_note`)."""
        for told, plain in _PLAIN:
            text = text.replace(told, plain)
        self.note(host, "fault", text)

    def explain(self, failure: str) -> list[Event]:
        """Return the events that explain a failure: the events of the partitions and offsets in its text.

        If it names none, leaders and ISRs are shown for all partitions except raftlog's own topics.
        """
        named = [each for each in self._partitions if _is_named(each, failure)]
        offsets = {int(found) for found in _OFFSET.findall(failure)} if named else set()
        events = list(self._cluster)
        told = named or [each for each in self._partitions if not each.topic.startswith("__")]
        for where in told:
            mark = f"{where.topic}-{where.partition}: " if len(told) > 1 else ""
            for each in self._partitions[where]:
                if named or each.kind == "metadata":
                    events.append(each._replace(text=mark + each.text))
        events.sort(key=lambda each: each.number)
        return _shortened([each for each in _until_violated(events) if _concerns(each, offsets)])


def _until_violated(events: list[Event]) -> list[Event]:
    """Events after the first violation do not explain it."""
    ends = (at for at, each in enumerate(events) if each.kind == "violated")
    return events[: next(ends, len(events)) + 1]


def _shortened(events: list[Event]) -> list[Event]:
    """Begin shortly before the offset in question appears, and leave the middle out of what is still too long."""
    first = next((at for at, each in enumerate(events) if each.kind in _CROWD), 0)
    events = events[max(0, first - LEAD_IN_LINES) :]
    if len(events) <= TIMELINE_LINES:
        return events
    head, tail = events[: TIMELINE_LINES // 3], events[-TIMELINE_LINES * 2 // 3 :]
    left_out = len(events) - len(head) - len(tail)
    return [*head, Event(head[-1].at_s, "…", "fault", f"{left_out} more events"), *tail]


def _is_named(where: TopicPartition, text: str) -> bool:
    topic, index = where
    forms = (f"({topic!r}, {index})", f"{topic}-{index}", f"topic={topic!r}, partition={index})")
    return any(re.search(rf"(?<![\w-]){re.escape(form)}(?!\d)", text) for form in forms)


def _concerns(event: Event, offsets: set[int]) -> bool:
    if event.kind not in _CROWD:
        return True
    return not offsets or any(event.start <= offset < event.end for offset in offsets)
