"""Measures how long a partition accepts no acks=all record around a fault. A closed loop each, one record in flight.

The clock starts at the last acknowledgement before the fault and stops at the first acknowledgement after it, per
partition. So a partition that stalled without an error counts as well.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

QUICK_CLIENT: Final = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": 10_000,
}
"""librdkafka settings of a client that wants to follow a failover quickly."""

PATIENCE: Final = {"socket.timeout.ms": 1_000}
"""A paused node keeps its connections: only its own timeout makes a client try another node."""

PACE_S: Final = 0.002
"""Pause between an acknowledgement and the next record of that partition, seconds."""
FLUSH_S: Final = 5.0
UNKNOWN_PAUSE_S: Final = 0.05
"""Before a partition is tried again that the client does not know yet."""


class Beats(NamedTuple):
    """One partition's acknowledged records: when each was acknowledged (ascending), and how long that took, seconds."""

    acked_at: array[float]
    took_s: array[float]


class Meter(Protocol):
    """Closed loops, one per partition, on the clock of the run's loop."""

    @property
    def beats(self) -> Sequence[Beats]: ...

    @property
    def errors(self) -> list[str]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class UnavailabilityMeter:
    """Runs the loops in a thread between `with` and its end; `longest_gaps` asks about a time span."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, pace_s: float = PACE_S, **config: Any
    ) -> None:
        from confluent_kafka import Producer

        self.errors: list[str] = []
        self.beats = tuple(Beats(array("d"), array("d")) for _ in range(partitions))
        self._topic = topic
        self._pace_s = pace_s
        self._due: dict[int, float] = dict.fromkeys(range(partitions), 0.0)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                **QUICK_CLIENT,
                **config,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="unavailability-meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def acknowledged(self, since: float) -> bool:
        """Return whether every partition acknowledged a record sent after `since` (time.monotonic)."""
        return all(each.acked_at and each.acked_at[-1] > since for each in self.beats)

    def longest_gaps(self, started: float, ended: float) -> list[Gap]:
        """Return, per partition, the longest time between two acknowledgements that overlaps [started, ended]."""
        return [longest_gap(each.acked_at, started, ended) for each in self.beats]

    def _run(self) -> None:
        while not self._stopping.is_set():
            now = time.monotonic()
            for partition in [each for each, due in self._due.items() if due <= now]:
                del self._due[partition]
                self._send(partition, now)
            self._producer.poll(0.001)
        self._producer.flush(FLUSH_S)

    def _send(self, partition: int, sent_at: float) -> None:
        from confluent_kafka import KafkaException

        def delivered(error: Any, _message: Any) -> None:
            now = time.monotonic()
            if error is None:
                self.beats[partition].acked_at.append(now)
                self.beats[partition].took_s.append(now - sent_at)
            else:
                self.errors.append(f"partition {partition}: {error.name()} {error.str()}")
            self._due[partition] = now + self._pace_s

        try:
            self._producer.produce(self._topic, b"beat", partition=partition, on_delivery=delivered)
        except KafkaException:  # the topic is so new that this client, or its broker, does not know it yet
            self._due[partition] = sent_at + UNKNOWN_PAUSE_S


class Gap(NamedTuple):
    """A time without an acknowledgement; the moment at which it ended."""

    seconds: float
    ended_at: float


def longest_gap(times: Sequence[float], started: float, ended: float) -> Gap:
    """Return the longest time between two acknowledgements (moments, ascending) that overlaps [started, ended].

    A record that has not been acknowledged by `ended` counts up to there.
    """
    longest = Gap(0.0, started)
    first = max(bisect_left(times, started) - 1, 0)
    before: float | None = None
    for acked_at in times[first:]:
        if before is not None and before > ended:
            return longest
        if before is not None and acked_at >= started:
            longest = max(longest, Gap(acked_at - before, acked_at))
        before = acked_at
    if before is None or before < ended:
        longest = max(longest, Gap(ended - (started if before is None else before), ended))
    return longest


class Spread(NamedTuple):
    """The spread of some gaps, in seconds."""

    times: int
    median_s: float
    p99_s: float
    max_s: float


def spread(values: Sequence[float]) -> Spread:
    """Return median, 99th percentile and maximum (nearest rank); zeros for no values."""
    if not values:
        return Spread(0, 0.0, 0.0, 0.0)
    ordered = sorted(values)
    return Spread(len(ordered), rank(ordered, 0.5), rank(ordered, 0.99), ordered[-1])


def rank(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of ascending values, at least a single value."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def by_name(pairs: Sequence[tuple[str, float]]) -> Mapping[str, Spread]:
    """Return the spread of the values of each name, names in order of first sight."""
    gathered: dict[str, list[float]] = {}
    for name, value in pairs:
        gathered.setdefault(name, []).append(value)
    return {name: spread(values) for name, values in gathered.items()}
