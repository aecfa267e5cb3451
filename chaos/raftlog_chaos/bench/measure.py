"""Measurements of a running cluster through stock clients: throughput, latency, cost. Every loop is bounded.

Machines are noisy, so each figure comes with a yardstick from the same run. It is librdkafka against its own mock
broker for throughput, the disk's bare fdatasync for latency.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from raftlog.base.disk import sync_data
from raftlog.testing.progress import Wait
from raftlog_chaos.bench.rdkafka import BatchProducer

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

IDLE_SHARE = 0.02
"""The share of a core that an idle node takes at most."""

PRODUCER_CONFIG = {
    "acks": "all",
    "linger.ms": "5",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1048576",
    "message.timeout.ms": "60000",
}

FILL_CONFIG = {
    **PRODUCER_CONFIG,
    "enable.idempotence": "true",
    "queue.buffering.max.kbytes": "65536",
    "message.timeout.ms": "300000",
}
"""Retries write no batch twice. The queue is small: records must not wait in it for so long that they time out."""

FILL_PIECE = 5_000
"""Records that are handed to the producer at once."""

LATENCY_CONFIG = {"acks": "all", "linger.ms": "0", "socket.nagle.disable": "true"}
"""Without the last option, Linux holds a small request back until the previous request is acknowledged."""


@dataclass(frozen=True, slots=True)
class Throughput:
    record_bytes: int
    records: int
    seconds: float
    failed: int
    broker_cpu_s: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_per_s(self) -> float:
        return self.records * self.record_bytes / self.seconds / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.broker_cpu_s / (self.records * self.record_bytes / 1e9)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Milliseconds."""

    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, values_ms: Sequence[float]) -> Quantiles:
        cuts = statistics.quantiles(values_ms, n=100, method="inclusive")
        return cls(cuts[49], cuts[98], max(values_ms))


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the user and system time that processes have used so far."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK_TICKS


def wait_until_idle(pids: Sequence[int], *, still_s: float = 2.0, most_s: float = 20.0) -> None:
    """Block until processes are idle, or for `most_s`.

    A node imports what clients will need for a second after it is ready; measurements meanwhile would be slower.
    """
    began = time.monotonic()
    while time.monotonic() - began < most_s:
        before = cpu_seconds(pids)
        time.sleep(still_s)
        if cpu_seconds(pids) - before <= IDLE_SHARE * still_s:
            return


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_bytes(pid: int) -> int:
    """Return what a process has read so far, from files, their cache and sockets."""
    with open(f"/proc/{pid}/io") as file:
        return int(file.readline().removeprefix("rchar:"))


def throughput(
    config: dict[str, str], topic: str, *, record_bytes: int, records: int, pids: Sequence[int] = ()
) -> Throughput:
    """Produce `records` records as fast as the cluster takes them; a warm-up of a tenth is not counted."""
    producer = BatchProducer({**PRODUCER_CONFIG, **config}, topic)
    messages = producer.prepare([os.urandom(record_bytes // 2).hex().encode()[:record_bytes]] * 5_000)
    try:
        _produce(producer, messages, max(records // 10, 1), deadline_s=60)
        cpu, started = cpu_seconds(pids), time.perf_counter()
        sent = _produce(producer, messages, records, deadline_s=120)
        seconds = time.perf_counter() - started
        return Throughput(record_bytes, sent, seconds, producer.failed, cpu_seconds(pids) - cpu)
    finally:
        producer.close()


def _produce(producer: BatchProducer, messages: Any, records: int, *, deadline_s: float) -> int:
    deadline = time.monotonic() + deadline_s
    sent = 0
    while sent < records and time.monotonic() < deadline:
        taken = producer.produce(messages)
        sent += taken
        if taken < len(messages):
            producer.poll(5)
    outstanding = producer.flush(max(1.0, deadline - time.monotonic()))
    return sent - outstanding


def fill(
    config: dict[str, str],
    topic: str,
    *,
    record_bytes: int,
    records: int,
    on_progress: Callable[[int], None] = lambda _acknowledged: None,
) -> int:
    """Write so many records, however slow the disk is; return how many failed. Raises Stalled."""
    producer = BatchProducer({**FILL_CONFIG, **config}, topic)
    payload = os.urandom(record_bytes // 2).hex().encode()[:record_bytes]
    messages = producer.prepare([payload] * FILL_PIECE)
    sent, waiting = 0, 0
    wait = Wait(f"{records:,} records are written", seen=lambda: sent - waiting)
    try:
        while sent < records or waiting:
            left = min(records - sent, FILL_PIECE)
            sent += producer.produce(messages, FILL_PIECE - left) if left else 0
            producer.poll(int(1000 * wait.pause()))
            waiting = producer.outstanding()
            on_progress(sent - waiting)
        return producer.failed
    finally:
        producer.close()


def write_to_each(bootstrap: str, topic: str, partitions: int, *, timeout_s: float = 60.0) -> int:
    """Have every partition acknowledge one record with acks=all; returns how many did not."""
    from confluent_kafka import Producer

    from raftlog_chaos.runs.meter import QUICK_CLIENT

    acknowledged = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **QUICK_CLIENT})
    for partition in range(partitions):
        producer.produce(topic, b"x", partition=partition, on_delivery=on_delivery)
    producer.flush(timeout_s)
    return partitions - acknowledged


def mock_throughput(*, record_bytes: int, records: int) -> Throughput:
    """Measure the same producer against librdkafka's in-process mock broker, which neither stores nor
    copies records.
    """
    config = {"test.mock.num.brokers": "3", "bootstrap.servers": "mock", "log_level": "0"}
    return throughput(config, "mock", record_bytes=record_bytes, records=records)


def ack_latency(
    config: dict[str, str], topic: str, *, rate: int, seconds: float, record_bytes: int = 100
) -> Quantiles:
    """Produce at a steady rate from a stock client and time each acknowledgement."""
    from confluent_kafka import Producer

    producer = Producer({**LATENCY_CONFIG, **config})
    payload = b"x" * record_bytes
    latencies: list[float] = []

    def on_delivery(sent_at: float) -> Any:
        def acknowledged(error: object, _message: object) -> None:
            if error is None:
                latencies.append((time.perf_counter() - sent_at) * 1000)

        return acknowledged

    def send() -> None:
        producer.produce(topic, payload, on_delivery=on_delivery(time.perf_counter()))

    for _ in range(20):
        send()
        producer.flush(5)
    latencies.clear()
    _paced(producer, send, rate=rate, seconds=seconds)
    return Quantiles.of(latencies)


def _paced(producer: Any, send: Callable[[], None], *, rate: int, seconds: float) -> None:
    """Call `send` at a steady rate, acknowledgements being taken on a thread that sleeps until there are some.

    (librdkafka's poll counts whole milliseconds: polling between two sends would burn the core that brokers need.)
    """
    ended = Event()

    def poll() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    poller = Thread(target=poll)
    poller.start()
    started = time.perf_counter()
    for number in range(int(rate * seconds)):
        pause = started + number / rate - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        send()
    ended.set()
    poller.join()
    producer.flush(10)


def end_to_end_latency(config: dict[str, str], topic: str, *, rate: int, seconds: float) -> Quantiles:
    """Time from produce() to the record's arrival at a waiting consumer, both stock clients of one process."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            **config,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.min.bytes": 1,
        }
    )
    consumer.assign(
        [TopicPartition(topic, 0, consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1])]
    )
    consumer.poll(1)
    expected = int(rate * seconds)
    latencies: list[float] = []

    def consume() -> None:
        deadline = time.monotonic() + seconds + 15
        while len(latencies) < expected and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                latencies.append((time.perf_counter() - float(message.value() or 0)) * 1000)

    reader = Thread(target=consume)
    reader.start()
    producer = Producer({**LATENCY_CONFIG, **config})

    def send() -> None:
        producer.produce(topic, repr(time.perf_counter()).encode(), partition=0)

    _paced(producer, send, rate=rate, seconds=seconds)
    reader.join()
    consumer.close()
    return Quantiles.of(latencies)


def fdatasync_latency(directory: str, *, rounds: int = 300, record_bytes: int = 200) -> Quantiles:
    """Measure the disk alone: append a little, call fdatasync, and repeat."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        samples = []
        for _ in range(rounds):
            os.write(file.fileno(), b"x" * record_bytes)
            started = time.perf_counter()
            sync_data(file.fileno())
            samples.append((time.perf_counter() - started) * 1000)
    return Quantiles.of(samples)
