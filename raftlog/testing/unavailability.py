"""How long does a partition take no acks=all record around a fault? A closed loop each, one record in flight.

The clock starts at the last acknowledgement before the fault and stops at the first one after it, per partition, so a
partition that stalled without an error counts as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

QUICK_CLIENT = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": 10_000,
}
"""librdkafka settings of a client that wants to follow a failover quickly."""

PACE_S = 0.002
"""Pause between an acknowledgement and the next record of that partition, seconds."""


class UnavailabilityMeter:
    """Runs the loops in a thread between `with` and its end; `longest_gap` asks about a time span."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **config: Any) -> None:
        from confluent_kafka import Producer

        self.errors: list[str] = []
        self._topic = topic
        self._acked_at: list[list[float]] = [[] for _ in range(partitions)]
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
        self._thread = threading.Thread(target=self._run, name="unavailability-meter")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def acknowledged(self, since: float) -> bool:
        """Has every partition acknowledged a record that was sent and acked after `since` (time.monotonic)?"""
        return all(times and times[-1] > since for times in self._acked_at)

    def wait_acknowledged(self, since: float, *, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.acknowledged(since):
                return True
            time.sleep(0.005)
        return False

    def longest_gaps(self, started: float, ended: float) -> list[Gap]:
        """Return, per partition, the longest time between two acknowledgements that overlaps [started, ended]."""
        return [longest_gap(times, started, ended) for times in self._acked_at]

    def _run(self) -> None:
        while not self._stopping.is_set():
            now = time.monotonic()
            for partition in [each for each, due in self._due.items() if due <= now]:
                del self._due[partition]
                self._send(partition)
            self._producer.poll(0.001)
        self._producer.flush(5)

    def _send(self, partition: int) -> None:
        def delivered(error: Any, _message: Any) -> None:
            now = time.monotonic()
            if error is None:
                self._acked_at[partition].append(now)
            else:
                self.errors.append(f"partition {partition}: {error}")
            self._due[partition] = now + PACE_S

        self._producer.produce(self._topic, b"beat", partition=partition, on_delivery=delivered)


class Gap(NamedTuple):
    """A time without an acknowledgement; the moment at which it ended."""

    seconds: float
    ended_at: float


def longest_gap(times: Sequence[float], started: float, ended: float) -> Gap:
    """Return the longest time between two acknowledgements (moments, ascending) that overlaps [started, ended].

    What has not been acknowledged by `ended` counts up to there.
    """
    longest = Gap(0.0, started)
    before: float | None = None
    for acked_at in times:
        if before is not None and before > ended:
            return longest
        if before is not None and acked_at >= started:
            longest = max(longest, Gap(acked_at - before, acked_at))
        before = acked_at
    if before is None or before < ended:
        longest = max(longest, Gap(ended - (started if before is None else before), ended))
    return longest
