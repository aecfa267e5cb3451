"""A queue under load, for any protocol: a producer, and workers that take records and accept them.

Without a rate, `2 * locks` records are on their way at any time: a record is produced for each that is accepted. So all
workers find as many records as they may have. With a rate, records are produced when they are due. Each record has that
moment in it, and counts from then until its worker knows that it is accepted. With a rate, the time until its worker
has it is measured too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from raftlog_chaos.compare.clients.pace import Pace
from raftlog_chaos.compare.clients.speech import Clock, quantiles_ms
from raftlog_chaos.compare.loads import Answer, Load

AT_ONCE: Final = 500
"""The most records that the producer sends at once."""
BEGIN_S: Final = 12.0
"""The time in which each worker should have accepted a record. A worker that has not counts all the same.

With the times below it is less than a load may take longer than its measured time (`OVERTIME_S`).
"""
SETTLE_S: Final = 3.0
"""The time in which the first records should be accepted: they had to wait until all workers had begun."""
DRAIN_S: Final = 5.0
PAUSE_S: Final = 0.0005
STAMP_BYTES: Final = 20


class Accepting:
    """The records that were sent and accepted. Workers and producer call it from their own threads."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._workers: set[int] = set()
        self._measured_from = self._measured_until = float("inf")
        self.sent = self.accepted = self.failed = 0
        self.took_s: list[float] = []
        self.delivered_s: list[float] = []
        """With a rate: the time until records were delivered. Redelivered records count again."""
        self.error: Exception | None = None
        """Why a worker ended: a load without all of its workers is another load."""

    @property
    def on_their_way(self) -> int:
        """The records that are not accepted. Raises what ended a worker."""
        if self.error is not None:
            raise self.error
        return self.sent - self.accepted - self.failed

    @property
    def all_work(self) -> bool:
        return len(self._workers) == self._load.clients

    def note_sent(self, count: int) -> None:
        with self._lock:
            self.sent += count

    def note_delivered(self, stamps: Sequence[bytes]) -> None:
        """Count records that a worker has, and is about to accept. They begin with a stamp."""
        if self._load.rate:
            now = time.perf_counter()
            with self._lock:
                self.delivered_s += self._times(stamps, now)

    def note_accepted(self, worker: int, stamps: Sequence[bytes], *, failed: bool = False) -> None:
        """Count records that a worker knows to be accepted, or not to be. They begin with a stamp."""
        now = time.perf_counter()
        with self._lock:
            if failed:
                self.failed += len(stamps)
                return
            self._workers.add(worker)
            self.accepted += len(stamps)
            if now < self._measured_from:
                return
            if self._load.rate:
                self.took_s += self._times(stamps, now)
            elif now < self._measured_until:
                self.took_s += [now - _due_at(each) for each in stamps]

    def _times(self, stamps: Sequence[bytes], now: float) -> list[float]:
        """Return how long the records took that were due in the measured time."""
        due_at = map(_due_at, stamps)
        return [now - each for each in due_at if self._measured_from <= each < self._measured_until]

    def begin(self) -> None:
        """Measure from now on."""
        with self._lock:
            self._measured_from = time.perf_counter()

    def end(self) -> None:
        """Measure no later records."""
        with self._lock:
            self._measured_until = time.perf_counter()


class Send(Protocol):
    """Sends records. It returns when others may follow, and knows which have failed only later."""

    def __call__(self, records: Sequence[bytes]) -> None: ...


def stamped(due_at: float, size_bytes: int) -> bytes:
    """Return a record that was due at a moment."""
    return (b"%.9f" % due_at).ljust(STAMP_BYTES).ljust(size_bytes, b".")


def _due_at(stamp: bytes) -> float:
    return float(stamp[:STAMP_BYTES])


class _Producer:
    def __init__(self, load: Load, accepting: Accepting, send: Send) -> None:
        self._load = load
        self._accepting = accepting
        self._send = send

    def fill(self, until: float, *, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Keep `2 * locks` records on their way."""
        while time.perf_counter() < until and not is_enough():
            wanted = min(AT_ONCE, 2 * self._load.locks - self._accepting.on_their_way)
            if wanted > 0:
                self._produce([time.perf_counter()] * wanted)
            else:
                time.sleep(PAUSE_S)

    def pace(self, seconds: float) -> None:
        """Send the records that are due."""
        pace = Pace(self._load.rate, seconds)
        while not pace.over:
            if due_at := pace.take():
                self._produce(due_at)
            else:
                time.sleep(pace.wait_s())

    def drain(self) -> None:
        """Wait until all records are accepted, or too long."""
        until = time.perf_counter() + DRAIN_S
        while self._accepting.on_their_way > 0 and time.perf_counter() < until:
            time.sleep(PAUSE_S)

    def _produce(self, due_at: Sequence[float]) -> None:
        self._accepting.note_sent(len(due_at))
        self._send([stamped(each, self._load.record_bytes) for each in due_at])


def measure_queue(load: Load, accepting: Accepting, send: Send, work: Callable[[int], None]) -> Answer:
    """Run the workers, each in a thread, and a producer; measure once all have work."""

    def run(worker: int) -> None:
        try:
            work(worker)
        except Exception as error:
            accepting.error = error

    for worker in range(load.clients):
        threading.Thread(target=run, args=(worker,), daemon=True).start()
    clock, producer = Clock(), _Producer(load, accepting, send)
    producer.fill(time.perf_counter() + BEGIN_S, is_enough=lambda: accepting.all_work)
    if load.rate:
        producer.drain()
        producer.pace(load.warmup_s)
    else:
        producer.fill(time.perf_counter() + load.warmup_s)
        until = time.perf_counter() + SETTLE_S
        producer.fill(until, is_enough=lambda: accepting.accepted >= 2 * load.locks)
    clock.begin()
    accepting.begin()
    if load.rate:
        producer.pace(load.seconds)
    else:
        producer.fill(time.perf_counter() + load.seconds)
    accepting.end()
    clock.end()
    if load.rate:
        producer.drain()
    took_s = list(accepting.took_s)
    answer = clock.answer(len(took_s), failed=accepting.failed, took_s=took_s)
    if delivered_s := list(accepting.delivered_s):
        answer.delivered_ms = quantiles_ms(delivered_s)
    return answer
