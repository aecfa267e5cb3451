"""Honest clients at work during attacks: a stock producer (acks=all) at a steady pace, and a stock consumer in a group.

The producer sends on schedule, whether or not earlier records are acknowledged, so that a stall delays every record
that falls into it. Both record a history for the checkers of `raftlog_chaos.checkers`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from raftlog_chaos.attacks.verdict import Times, times_of
from raftlog_chaos.checkers import judge
from raftlog_chaos.history import Header, Op, Outcome, Recorder
from raftlog_chaos.workloads.port import Damaged, decode_value, encode_value

TOPIC: Final = "bystanders"
PARTITIONS: Final = 3
PACE_S: Final = 0.01
"""Between two records, of all partitions together."""
COMMIT_S: Final = 1.0
POLL_S: Final = 0.05
MAX_RECORDS: Final = 500
END_S: Final = 60.0
"""librdkafka may never return from a close when all brokers are gone; such a client is abandoned."""

COMMON: Final = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500}
PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "delivery.timeout.ms": 60_000,
    "socket.nagle.disable": True,
}
CONSUMER: Final = {
    "group.id": "bystanders",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
}


KeyedValue = tuple[str, int]
"""A key and a value of it."""


class Sent(NamedTuple):
    """One record of the producer, and when it was due (time.monotonic)."""

    at: float
    keyed_value: KeyedValue


def _times(sent: list[Sent], came_at: dict[KeyedValue, float], now: float) -> Times:
    took = [came_at[each.keyed_value] - each.at for each in sent if each.keyed_value in came_at]
    return times_of(took, [now - each.at for each in sent if each.keyed_value not in came_at])


def faults_of(ops: Sequence[Op], missing: Mapping[str, int]) -> list[str]:
    """Return the faults of a history; `missing`: by key, an acknowledged end that the last reading did not reach."""
    faults = [f"{key}: not read up to offset {end}, which was acknowledged" for key, end in missing.items()]
    return faults + judge(Header(place="attacks", workload="bystanders"), ops).faults()


class Bystanders:
    """`start` and `stop` them once; in between query their waiting times, and at the end check for missing records."""

    def __init__(
        self, bootstrap: str, still_s: float, client_settings: Mapping[str, str] | None = None
    ) -> None:
        self._settings = {"bootstrap.servers": bootstrap, **COMMON, **(client_settings or {})}
        self._still_s = still_s
        self._ops: list[Op] = []
        self._recorder = Recorder(time.monotonic_ns, self._ops.append)
        self._sent: list[Sent] = []
        """In the order of their times; only ever added to, since two threads look at it."""
        self._acked_at: dict[KeyedValue, float] = {}
        self._read_at: dict[KeyedValue, float] = {}
        self._ends: dict[str, int] = {}
        """The offset after the last acknowledged record, by key."""
        self._failed: list[str] = []
        self._stopping = threading.Event()
        self._reading_ends = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to send and to read."""
        for name, work in (("sender", self._send), ("reader", self._read)):
            self._threads.append(
                threading.Thread(target=self._guarded, args=(name, work), name=name, daemon=True)
            )
            self._threads[-1].start()

    def stop(self) -> None:
        """Stop both; wait, within limits, for outstanding acknowledgements."""
        self._stopping.set()
        self._threads[0].join(END_S)
        self._reading_ends.set()
        self._threads[1].join(END_S)

    def abandon(self) -> None:
        """Make both stop by themselves: there is no broker left to ask."""
        self._stopping.set()
        self._reading_ends.set()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # it would go unnoticed in a thread
            self._failed.append(f"bystanders: the {name} failed: {type(error).__name__}: {error}")

    # --- questions

    def failed(self) -> list[str]:
        """Return their errors since the last call."""
        found, self._failed = self._failed, []
        return found

    def acknowledged(self, since: float) -> int:
        """Return how many records that were sent after a moment are acknowledged."""
        return sum(
            1 for each in self._sent_between(since, time.monotonic()) if each.keyed_value in self._acked_at
        )

    def wait_still(self, since: float, until: float) -> None:
        """Wait until all records sent in a time are acknowledged and read, or progress stops."""
        wanted = [each.keyed_value for each in self._sent_between(since, until)]
        seen, moved_at = -1, time.monotonic()
        while time.monotonic() - moved_at < self._still_s:
            found = sum(
                (keyed_value in self._acked_at) + (keyed_value in self._read_at) for keyed_value in wanted
            )
            if found == 2 * len(wanted):
                return
            if found != seen:
                seen, moved_at = found, time.monotonic()
            time.sleep(POLL_S)

    def times(self, since: float, until: float) -> tuple[Times, Times]:
        """Return how long acknowledgements and reads took for records sent in a time (time.monotonic)."""
        sent, now = self._sent_between(since, until), time.monotonic()
        return _times(sent, self._acked_at, now), _times(sent, self._read_at, now)

    def _sent_between(self, since: float, until: float) -> list[Sent]:
        sent = self._sent[:]
        return sent[bisect_left(sent, Sent(since, ("", 0))) : bisect_left(sent, Sent(until, ("", 0)))]

    # --- sending

    def _send(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self._settings, **PRODUCER})
        number, next_at = 0, time.monotonic()
        while not self._stopping.is_set():
            while next_at <= time.monotonic():
                self._send_one(producer, number, next_at)
                number, next_at = number + 1, next_at + PACE_S
            producer.poll(max(0.0, next_at - time.monotonic()))
        left, moved_at = len(producer), time.monotonic()
        while left and time.monotonic() - moved_at < self._still_s:
            producer.flush(POLL_S)
            if len(producer) < left:
                left, moved_at = len(producer), time.monotonic()

    def _send_one(self, producer: Any, number: int, due_at: float) -> None:
        partition, value = number % PARTITIONS, number // PARTITIONS
        key, process = f"{TOPIC}-{partition}", self._recorder.new_process()
        self._sent.append(Sent(due_at, (key, value)))
        self._recorder.note(process, "invoke", "send", [["send", key, value]])

        def delivered(error: Any, message: Any) -> None:
            offset = None if error is not None else message.offset()
            outcome: Outcome = "info" if error is not None else "ok"
            self._recorder.note(process, outcome, "send", [["send", key, [offset, value]]])
            if error is not None:
                self._failed.append(f"bystanders: a record was not acknowledged: {error.str()}")
                return
            self._acked_at[key, value] = time.monotonic()
            self._ends[key] = max(self._ends.get(key, 0), message.offset() + 1)

        try:
            producer.produce(TOPIC, encode_value(key, value), partition=partition, on_delivery=delivered)
        except BufferError:
            self._failed.append("bystanders: the producer's queue is full")

    # --- reading

    def _read(self) -> None:
        from confluent_kafka import Consumer

        consumer, process = Consumer({**self._settings, **CONSUMER}), self._recorder.new_process()
        keys = [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)]
        self._recorder.note(process, "invoke", "subscribe", keys)
        consumer.subscribe([TOPIC])
        self._recorder.note(process, "ok", "subscribe", keys)
        commit_at = time.monotonic() + COMMIT_S
        while not self._reading_ends.is_set():
            for key, value in self._poll(consumer, process):
                self._read_at.setdefault((key, value), time.monotonic())
            if time.monotonic() >= commit_at:
                consumer.commit(asynchronous=True)
                commit_at = time.monotonic() + COMMIT_S
        consumer.close()

    def _poll(self, consumer: Any, process: int) -> list[tuple[str, int]]:
        """Poll once and write that down; return keys and values."""
        self._recorder.note(process, "invoke", "poll", [["poll"]])
        reads: dict[str, list[list[int]]] = {}
        first = consumer.poll(POLL_S)
        for message in [] if first is None else [first, *consumer.consume(MAX_RECORDS, 0)]:
            if message.error() is not None:
                continue  # its effect shows in the times and in missing records
            key = f"{message.topic()}-{message.partition()}"
            try:
                value = decode_value(key, message.value())
            except Damaged as error:
                self._failed.append(f"bystanders: {error}")
                continue
            reads.setdefault(key, []).append([message.offset(), value])
        self._recorder.note(process, "ok", "poll", [["poll", reads]])
        return [(key, each[1]) for key, records in reads.items() for each in records]

    # --- the end

    def read_back(self) -> list[str]:
        """Read everything again once both have stopped; return lost, doubled and changed records as faults."""
        return faults_of(self._ops, self._read_all() if self._ends else {})

    def _read_all(self) -> dict[str, int]:
        """Read every key from its beginning; return the ends that were not reached."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {**CONSUMER, "group.id": "read-back", "auto.offset.reset": "error"}
        consumer, process = Consumer({**self._settings, **settings}), self._recorder.new_process()
        self._recorder.note(process, "invoke", "assign", list(self._ends))
        consumer.assign([TopicPartition(TOPIC, int(key.rpartition("-")[2]), 0) for key in self._ends])
        self._recorder.note(process, "ok", "assign", list(self._ends))
        left, moved_at = dict(self._ends), time.monotonic()
        while left and time.monotonic() - moved_at < self._still_s:
            if self._poll(consumer, process):
                moved_at = time.monotonic()
                for each in consumer.position(consumer.assignment()):
                    key = f"{each.topic}-{each.partition}"
                    if each.offset >= left.get(key, each.offset + 1):
                        del left[key]
        consumer.close()
        return left
