"""Claims about queues under load: what is on its way, what counts, and the two protocols that are spoken by hand."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from raftlog.testing.ports import LOOPBACK
from raftlog_chaos.compare import amqp_wire
from raftlog_chaos.compare.amqp_wire import AmqpConnection, AmqpError, Delivery, acknowledge, publish
from raftlog_chaos.compare.clients import queue as clients_queue
from raftlog_chaos.compare.clients.queue import Accepting, measure_queue, stamped
from raftlog_chaos.compare.clients.redis_queue import RedisConnection, Refusal
from raftlog_chaos.compare.loads import OVERTIME_S, Answer, Load, Measured, Usage
from raftlog_chaos.compare.parts import queue as part
from raftlog_chaos.compare.parts.bench import Bench, Scale
from raftlog_chaos.compare.systems.nats import Nats
from raftlog_chaos.compare.systems.system import Refused, System

LOAD = Load(kind="queue", clients=2, locks=20, seconds=0.1, warmup_s=0.01, record_bytes=50)


class Memory:
    """A queue in memory."""

    def __init__(self, load: Load) -> None:
        self.accepting = Accepting(load)
        self.most = 0
        self._records: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def send(self, records: Sequence[bytes]) -> None:
        for each in records:
            self._records.put(each)
        self.most = max(self.most, self.accepting.on_their_way)

    def work(self, worker: int) -> None:
        while True:
            record = self._records.get()
            self.accepting.note_delivered([record])
            self.accepting.note_accepted(worker, [record])


def test_without_a_rate_twice_as_many_records_as_locks_are_on_their_way():
    """So all workers find as many as they may have."""
    memory = Memory(LOAD)
    answer = measure_queue(LOAD, memory.accepting, memory.send, memory.work)
    assert memory.most == 2 * LOAD.locks
    assert answer.records > 0 and answer.took_ms is not None and answer.failed == 0
    assert answer.delivered_ms is None  # it would be the length of the queue


def test_with_a_rate_each_record_that_was_due_counts():
    """Records of the warm-up do not."""
    load = Load(kind="queue", clients=2, locks=20, seconds=0.1, warmup_s=0.05, rate=500, record_bytes=50)
    memory = Memory(load)
    answer = measure_queue(load, memory.accepting, memory.send, memory.work)
    assert answer.records == len(memory.accepting.delivered_s) == 50
    assert answer.took_ms is not None and answer.delivered_ms is not None
    assert 0 < answer.delivered_ms[0] <= answer.took_ms[0]


def test_a_worker_that_ends_ends_the_load():
    """A load with fewer workers is another load."""
    memory = Memory(LOAD)

    def work(worker: int) -> None:
        raise Refusal

    with pytest.raises(Refusal):
        measure_queue(LOAD, memory.accepting, memory.send, work)


def test_a_slow_queue_ends_in_its_time():
    """Whatever it waits for, its client is not ended as one that hangs."""
    waits_s = clients_queue.BEGIN_S + max(clients_queue.SETTLE_S, 2 * clients_queue.DRAIN_S)
    assert waits_s < OVERTIME_S - 5


def test_a_record_counts_from_its_stamp_whatever_follows():
    """Its worker may get more bytes than the stamp has."""
    accepting = Accepting(LOAD)
    accepting.begin()
    accepting.note_sent(2)
    accepting.note_accepted(0, [stamped(0.5, 50)])
    accepting.note_accepted(1, [stamped(0.5, 50)], failed=True)
    assert (accepting.accepted, accepting.failed, accepting.on_their_way) == (1, 1, 0)
    assert len(accepting.took_s) == 1 and not accepting.all_work
    assert len(stamped(0.5, 50)) == 50


# -- AMQP and RESP


class Server(threading.Thread):
    """Calls `answer` with whatever comes, and sends what it returns."""

    def __init__(self, answer: Callable[[bytes], Sequence[bytes]]) -> None:
        super().__init__(daemon=True)
        self._answer = answer
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, self._listener:
            while came := connection.recv(1 << 20):
                for each in self._answer(came):
                    connection.sendall(each)


def rabbit(*after: bytes) -> Callable[[bytes], Iterator[bytes]]:
    """Answer a login, and the first `consume` with these bytes."""
    answers = {
        b"AMQP": amqp_wire.START,
        amqp_wire.START_OK: amqp_wire.TUNE,
        amqp_wire.OPEN: amqp_wire.OPEN_OK,
        amqp_wire.CHANNEL_OPEN: amqp_wire.CHANNEL_OPEN_OK,
        amqp_wire.QOS: amqp_wire.QOS_OK,
        amqp_wire.CONSUME: amqp_wire.CONSUME_OK,
    }

    def answer(came: bytes) -> Iterator[bytes]:
        if came.startswith(b"AMQP"):
            yield amqp_wire.method(answers[b"AMQP"], channel=0)
            return
        while came:
            (size,) = struct.unpack_from(">I", came, 3)
            method = struct.unpack_from(">HH", came, 7)
            came = came[8 + size :]
            if method in answers:
                yield amqp_wire.method(answers[method])
            if method == amqp_wire.CONSUME:
                yield from after

    return answer


def delivery(tag: int, body: bytes) -> bytes:
    consumer = b"\x03tag"
    given = amqp_wire.method(amqp_wire.DELIVER, consumer + struct.pack(">QB", tag, 0) + b"\0\1q")
    return given + publish("q", [body]).partition(amqp_wire.END)[2]


def test_a_message_is_whole_however_its_bytes_come():
    """Messages that come before the answer of a second `consume` are kept."""
    sent = delivery(7, b"one") + delivery(8, b"two")
    connection = AmqpConnection(Server(rabbit(sent[:20], sent[20:50], sent[50:])).address)
    connection.consume("q", prefetch=10)
    found: list[Delivery] = []
    while len(found) < 2:
        found += connection.deliveries()
    assert found == [(7, b"one"), (8, b"two")]
    connection.close()


def test_a_server_that_closes_the_channel_is_an_error_with_its_reason():
    """Such as a queue that there is not."""
    reason = b"NOT_FOUND"
    closed = amqp_wire.method((20, 40), struct.pack(">HB", 404, len(reason)) + reason + bytes(4))
    connection = AmqpConnection(Server(rabbit(closed)).address)
    with pytest.raises(AmqpError, match="404: NOT_FOUND"):
        connection.consume("q", prefetch=10)
        connection.deliveries()
    connection.close()


def test_an_acknowledgement_names_one_message_or_all_before_it():
    """AMQP 0-9-1, basic.ack: a tag, and a bit."""
    assert acknowledge(5, multiple=False) == b"\1\0\1\0\0\0\r\0\x3c\0\x50\0\0\0\0\0\0\0\5\0\xce"
    assert acknowledge(5, multiple=True)[-2:] == b"\1\xce"


def test_answers_of_redis_are_values():
    """Arrays in arrays, whatever bytes are in them, however they come."""
    text = b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nd\r\n$4\r\na\r\nb\r\n:2\r\n*-1\r\n"
    server = Server(lambda came: (text[:9], text[9:40], text[40:]))
    connection = RedisConnection(Load(kind="queue", servers=[server.address]))
    assert connection.ask(b"?", 3) == [[[b"s", [[b"1-0", [b"d", b"a\r\nb"]]]]], 2, []]


def test_a_refusal_of_redis_is_an_error():
    """With the server's words."""
    server = Server(lambda came: (b"-NOGROUP No such key\r\n",))
    connection = RedisConnection(Load(kind="queue", servers=[server.address]))
    with pytest.raises(Refusal, match="NOGROUP"):
        connection.ask(b"?")


# -- the part


def test_delivery_has_figures_of_its_own(tmp_path):
    """Each compares with a plain consumer's: one that only reads, and one that commits each record."""

    class Steady(Nats):
        kinds = ("queue", "arrival", "committed")

        def run(self, load: Load) -> Measured:
            times = {
                "took_ms": (3.0, 4.0, 5.0),
                "delivered_ms": (1.0, 2.0, 3.0) if load.kind == "queue" else None,
            }
            answer = Answer(records=load.rate * 2, seconds=2.0, client_s=0.1, **times)
            return Measured(load, answer, Usage(0.0, 0.0, 0.0, None, 0))

    bench = Bench(
        Steady(tmp_path), Scale(seconds=1.0), 0.0, False, pytest.fail, open=lambda *_, **__: pytest.fail()
    )
    found = {each.name: each.value for each in part._steady(bench)}
    assert found["200/s, accepted one at a time, p50"] == 3.0
    assert found["200/s, delivered to a worker, p50"] == 1.0
    assert found["200/s, arrived at a plain consumer, p99"] == 4.0
    assert found["200/s, committed by a plain consumer, p50"] == 3.0


def test_a_system_without_queues_says_so(tmp_path):
    """The part ends with one note for all of its loads."""
    bench = Bench(Nats(tmp_path), Scale(), 0.0, False, lambda why: None, open=lambda *_, **__: pytest.fail())
    with pytest.raises(Refused, match="no load 'queue'"):
        next(part.queue(bench))


def test_each_load_has_a_topic_of_its_own():
    """Records that a load leaves behind are none of the next load's."""
    topics = [
        part._load(f"{locks}-{per_ack}", seconds=1.0).topic
        for locks in part.LOCKS
        for per_ack in part.PER_ACK
    ]
    assert len(set(topics)) == 4


def test_no_system_is_forgotten():
    """Those that people use as queues."""
    from raftlog_chaos.compare.registry import SYSTEMS

    able: list[type[System]] = [each for each in SYSTEMS.values() if "queue" in each.kinds]
    assert {"raftlog", "raftlog-os", "kafka", "kafka-flush", "redis", "rabbitmq"} <= {
        each.key for each in able
    }
