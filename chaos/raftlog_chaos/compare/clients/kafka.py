"""The client of all systems that speak Kafka's protocol: librdkafka, as confluent-kafka brings it.

Throughput goes through its C interface (`BatchProducer`), so that Python handles thousands of records in one call.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Final

from raftlog_chaos.bench.measure import LATENCY_CONFIG, PRODUCER_CONFIG
from raftlog_chaos.bench.rdkafka import OFFSET_BEGINNING, OFFSET_END, BatchProducer, CountingConsumer
from raftlog_chaos.compare.clients.speech import Clock, main, paced
from raftlog_chaos.compare.loads import Answer, Load

QUEUE_BYTES: Final = 32 << 20
"""A producer's queue, so that little is left to be sent when the measured time is over."""
ARRAY_BYTES: Final = 4 << 20
COMPRESSED_BATCH_BYTES: Final = 256 << 10
"""The size of a compressed batch. A larger batch takes so long that few are done in the measured time."""
SETTLE_S: Final = 5.0
SETTLE_STEP_S: Final = 0.1
FLUSH_S: Final = 10.0
CONNECT_S: Final = 15.0


def _config(load: Load, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": ",".join(load.servers), "log_level": 0, **load.settings, **more}


def _producer_config(load: Load) -> dict[str, str]:
    given = {
        **PRODUCER_CONFIG,
        "acks": load.acks,
        "compression.codec": load.codec,
        "queue.buffering.max.kbytes": str(QUEUE_BYTES >> 10),
    }
    if load.codec != "none":
        given |= {"batch.size": str(COMPRESSED_BATCH_BYTES)}
    if load.codec == "gzip":
        given |= {"compression.level": "1"}
    return {name: str(value) for name, value in _config(load, **given).items()}


class _Stream:
    """Produces as fast as the cluster takes it. `acknowledged` is exact only up to what waits in the queue."""

    def __init__(self, load: Load) -> None:
        self.producer = BatchProducer(_producer_config(load), load.topic)
        count = max(50, min(5_000, ARRAY_BYTES // load.record_bytes))
        self._queued_records = QUEUE_BYTES // load.record_bytes
        payloads = [
            os.urandom(load.record_bytes // 2 + 1).hex().encode()[: load.record_bytes] for _ in range(count)
        ]
        self._messages = self.producer.prepare(payloads)
        self.sent = 0

    @property
    def acknowledged(self) -> int:
        return self.sent - self.producer.outstanding() - self.producer.failed

    def warm_up(self, seconds: float) -> None:
        """Connect, and run until acknowledgements come as steadily as records leave.

        A queue's worth of acknowledged records says so. A slow system would seem to stand still otherwise.
        """
        self.sent += self.producer.produce(self._messages)
        self.producer.flush(CONNECT_S)
        self.run(seconds)
        until = time.perf_counter() + SETTLE_S
        while self.acknowledged < self._queued_records and time.perf_counter() < until:
            self.run(SETTLE_STEP_S)

    def run(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            taken = self.producer.produce(self._messages)
            self.sent += taken
            if taken < len(self._messages):
                self.producer.poll(5)

    def close(self) -> int:
        """End without waiting for what is on its way; returns how many records failed before."""
        failed = self.producer.failed
        self.producer.purge()
        self.producer.flush(FLUSH_S)
        self.producer.close()
        return failed


def produce(load: Load) -> Answer:
    """Produce as fast as possible."""
    clock, stream = Clock(), _Stream(load)
    stream.warm_up(load.warmup_s)
    clock.begin()
    before = stream.acknowledged
    stream.run(load.seconds)
    records = stream.acknowledged - before
    clock.end()
    return clock.answer(records, failed=stream.close())


CONSUMER_CONFIG: Final = {
    "group.id": "compare",
    "enable.auto.commit": "false",
    "fetch.wait.max.ms": "100",
    "fetch.min.bytes": "1",
    "queued.max.messages.kbytes": str(QUEUE_BYTES >> 10),
    "queued.min.messages": "1000000",
}


def _counting(load: Load, offset: int) -> CountingConsumer:
    config = {name: str(value) for name, value in _config(load, **CONSUMER_CONFIG).items()}
    return CountingConsumer(config, load.topic, load.partitions, offset)


def _bounds(consumer: Any, load: Load) -> list[tuple[int, int]]:
    """Return the first and the end offset of each partition."""
    from confluent_kafka import TopicPartition

    every = (TopicPartition(load.topic, each) for each in range(load.partitions))
    return [consumer.get_watermark_offsets(each, CONNECT_S) for each in every]


def consume(load: Load) -> Answer:
    """Read what the topic has from its beginning."""
    from confluent_kafka import Consumer

    asker = Consumer(_config(load, **CONSUMER_CONFIG))
    there = sum(end - first for first, end in _bounds(asker, load))
    asker.close()
    clock = Clock()
    consumer = _counting(load, OFFSET_BEGINNING)
    seen = 0
    there -= consumer.count(int(CONNECT_S * 1000))  # the first answer means that all connections are open
    clock.begin()
    deadline = time.perf_counter() + load.seconds
    while seen < there and time.perf_counter() < deadline:
        seen += consumer.count(100)
    clock.end()
    consumer.close()
    return clock.answer(seen, consumed=seen)


def both(load: Load) -> Answer:
    """Produce as fast as possible, and consume meanwhile what is produced."""
    clock, stream, ended = Clock(), _Stream(load), threading.Event()
    seen = 0
    consumer = _counting(load, OFFSET_END)

    def read() -> None:
        nonlocal seen
        while not ended.is_set():
            seen += consumer.count(100)

    reader = threading.Thread(target=read)
    reader.start()
    stream.warm_up(load.warmup_s)
    clock.begin()
    acknowledged, consumed = stream.acknowledged, seen
    stream.run(load.seconds)
    acknowledged, consumed = stream.acknowledged - acknowledged, seen - consumed
    clock.end()
    ended.set()
    reader.join()
    consumer.close()
    return clock.answer(acknowledged, failed=stream.close(), consumed=consumed)


class _Acks:
    """A producer of one record at a time, and how long each took. A thread waits for acknowledgements."""

    def __init__(self, load: Load) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(_config(load, **{**LATENCY_CONFIG, "acks": load.acks}))
        self._topic = load.topic
        self._partitions = load.partitions
        self._payload = b"x" * load.record_bytes
        self.took_s: list[float] = []
        self.failed = 0
        self.measured = False
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll)

    def connect(self) -> None:
        """Send a first record to each partition, and wait for them, so that all connections are open."""
        for partition in range(self._partitions):
            self._producer.produce(self._topic, b"", partition=partition)
        self._producer.flush(CONNECT_S)
        self._poller.start()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(0.1)

    def send(self, due_at: float) -> None:
        measured = self.measured

        def delivered(error: Any, _message: object) -> None:
            if error is not None:
                self.failed += 1
            elif measured:
                self.took_s.append(time.perf_counter() - due_at)

        self._producer.produce(self._topic, self._payload, on_delivery=delivered)

    def send_stamped(self, due_at: float) -> None:
        """Send a record with its due time, or an unmarked record before the measured time."""
        stamp = repr(due_at) if self.measured else ""
        self._producer.produce(self._topic, stamp.encode().ljust(len(self._payload)))

    def close(self) -> None:
        """End, once all records are acknowledged or FLUSH_S is over."""
        self._ended.set()
        self._poller.join()
        self._producer.flush(FLUSH_S)


def ack(load: Load) -> Answer:
    """Produce at a steady rate and time each acknowledgement."""
    clock, acks = Clock(), _Acks(load)
    acks.connect()
    paced(acks.send, rate=load.rate, seconds=max(load.warmup_s, 0.2))
    clock.begin()
    acks.measured = True
    paced(acks.send, rate=load.rate, seconds=load.seconds)
    clock.end()
    acks.close()
    return clock.answer(len(acks.took_s), failed=acks.failed, took_s=acks.took_s)


def _assigned(load: Load) -> Any:
    """Return a consumer that waits at the end of all partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(_config(load, **CONSUMER_CONFIG))
    bounds = _bounds(consumer, load)
    consumer.assign([TopicPartition(load.topic, each, end) for each, (_, end) in enumerate(bounds)])
    return consumer


def arrival(load: Load) -> Answer:
    """Produce at a steady rate and time each record's arrival at a waiting consumer."""
    return _arrival(load, commits=False)


def committed(load: Load) -> Answer:
    """Do the same with a consumer that commits each record's offset, and time the answer to that."""
    return _arrival(load, commits=True)


def _arrival(load: Load, *, commits: bool) -> Answer:
    clock, acks = Clock(), _Acks(load)
    consumer = _assigned(load)
    expected = int(load.rate * load.seconds)
    took_s: list[float] = []
    deadline = time.perf_counter() + load.warmup_s + load.seconds + FLUSH_S

    def read() -> None:
        while len(took_s) < expected and time.perf_counter() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and (stamp := message.value().strip()):
                if commits:
                    consumer.commit(message=message, asynchronous=False)
                took_s.append(time.perf_counter() - float(stamp))

    reader = threading.Thread(target=read)
    reader.start()
    acks.connect()
    paced(acks.send_stamped, rate=load.rate, seconds=max(load.warmup_s, 0.2))
    clock.begin()
    acks.measured = True
    paced(acks.send_stamped, rate=load.rate, seconds=load.seconds)
    clock.end()
    deadline = time.perf_counter() + FLUSH_S
    reader.join()
    acks.close()
    consumer.close()
    return clock.answer(len(took_s), took_s=took_s)


def producers(load: Load) -> Answer:
    """Let many producers send in turn, at a steady rate over all of them."""
    clock, all_acks = Clock(), [_Acks(load) for _ in range(load.clients)]
    for each in all_acks:
        each.connect()
    turn = iter(range(1 << 62))

    def send(due_at: float) -> None:
        all_acks[next(turn) % load.clients].send(due_at)

    paced(send, rate=load.rate, seconds=max(load.warmup_s, load.clients / load.rate))
    clock.begin()
    for each in all_acks:
        each.measured = True
    paced(send, rate=load.rate, seconds=load.seconds)
    clock.end()
    closers = [threading.Thread(target=each.close) for each in all_acks]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    took_s = [took for each in all_acks for took in each.took_s]
    return clock.answer(len(took_s), failed=sum(each.failed for each in all_acks), took_s=took_s)


if __name__ == "__main__":
    main(
        {
            "produce": produce,
            "consume": consume,
            "both": both,
            "ack": ack,
            "arrival": arrival,
            "committed": committed,
            "producers": producers,
        }
    )
