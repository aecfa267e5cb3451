"""The demo's producer: confluent-kafka, keyed, idempotent and acks=all by default.

It notes which records were acknowledged, and when.
Record `n` of the text carries `n` in the header "n". One thread at a time calls `bulk`, `start_trickle` or `finish`;
another may ask for the gaps.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from raftlog.cli.demo.text import Text
from raftlog.testing.progress import Wait, signs_of_descendants, wait_until
from raftlog_chaos.runs.meter import longest_gap

TICK_S = 0.005
FLUSH_S = 0.2
PROGRESS_EVERY = 1_000

HUNG_MS = 5_000
"""How long the client waits for a paused leader, which keeps its connection: only this makes it look elsewhere."""

CLIENT_SETTINGS = {
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "retry.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": HUNG_MS,
    "message.timeout.ms": 0,  # no limit: the stream's own waits end when acknowledgements stop
}


class Stream:
    """Sends a text's records in order, and knows what became of each."""

    def __init__(self, bootstrap: str, topic: str, *, text: Text, partitions: int, acks: str) -> None:
        from confluent_kafka import Producer

        promise = {"acks": acks, "enable.idempotence": acks == "all"}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "log_level": 0, **CLIENT_SETTINGS, **promise}
        )
        self._topic = topic
        self._text = text
        self._ack_times = [array("d") for _ in range(partitions)]
        self._timed = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.asked_to_end = threading.Event()
        """Set to end `bulk`; the setter raises KeyboardInterrupt as well, which may get lost."""
        self.sent = 0
        self.bytes = 0
        self.acked = 0
        self.failed: dict[int, str] = {}

    # --- sending

    def bulk(self, count: int, *, progress: Callable[[int], None]) -> float:
        """Send `count` records as fast as the client can and wait for them; returns the seconds it took.

        Raises Stalled.
        """
        began = time.monotonic()
        for index in range(count):
            self._send()
            if index % PROGRESS_EVERY == 0:
                self._check_asked()
                self._producer.poll(0)
                progress(self.acked)
        self._flush()
        return time.monotonic() - began

    def start_trickle(self, per_second: int) -> None:
        """Send `per_second` records from a thread of its own, timing each acknowledgement, until `finish`."""
        self._timed = True
        self._thread = threading.Thread(
            target=self._trickle, args=(per_second,), name="demo-stream", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Stop the trickle and wait for what is under way. Raises Stalled."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._flush()

    def _flush(self) -> None:
        def flushed() -> bool:
            self._check_asked()
            return self._producer.flush(FLUSH_S) == 0

        wait_until(flushed, "every record is acknowledged", seen=self._progress)

    def _check_asked(self) -> None:
        if self.asked_to_end.is_set():
            raise KeyboardInterrupt

    def _progress(self) -> str:
        return f"{self.acked:,} of {self.sent:,} records acknowledged"

    def _trickle(self, per_second: int) -> None:
        began, base = time.monotonic(), self.sent
        while not self._stopped.is_set():
            due = base + int((time.monotonic() - began) * per_second)
            while self.sent < due and len(self._producer) < per_second:
                self._send()
            began, base = self._hold_back(began, base, due)
            self._producer.poll(TICK_S)

    def _hold_back(self, began: float, base: int, due: int) -> tuple[float, int]:
        """After an outage go on at the usual pace, rather than catch up with what was not sent meanwhile."""
        return (began, base) if self.sent >= due else (time.monotonic(), self.sent)

    def _send(self) -> None:
        number = self.sent
        key, value = self._text.record(number)
        wait: Wait | None = None
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    headers=[("n", number.to_bytes(8, "big"))],
                    on_delivery=partial(self._delivered, number),
                )
                break
            except BufferError:
                wait = wait or Wait(
                    "there is room for a record", seen=self._progress, signs=signs_of_descendants
                )
                wait.pause()
                self._producer.poll(TICK_S)
        self.sent = number + 1
        self.bytes += len(key) + len(value)

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failed[number] = str(error)
            return
        self.acked += 1
        if self._timed:
            self._ack_times[message.partition()].append(time.monotonic())

    # --- gaps

    def every_partition_acked_since(self, moment: float) -> bool:
        """Return whether each partition had a record acknowledged after `moment` (of time.monotonic)."""
        return all(times and times[-1] > moment for times in self._ack_times)

    def longest_gap_s(self, began: float, ended: float, partitions: Iterable[int] | None = None) -> float:
        """Return the longest time that a partition, by default any, went without an acknowledgement around
        [began, ended].
        """
        chosen = range(len(self._ack_times)) if partitions is None else partitions
        return max((longest_gap(self._ack_times[each], began, ended).seconds for each in chosen), default=0.0)
