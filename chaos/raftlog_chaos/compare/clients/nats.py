"""The client of NATS JetStream: one connection that publishes with a window, and another that receives pushed messages.

A partition is a stream of its own. acks=all is JetStream's only acknowledgement: a majority of the replicas has it.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final

from raftlog.base.readable import readable
from raftlog_chaos.compare.clients.pace import Pace
from raftlog_chaos.compare.clients.speech import Clock, main, measure_stream
from raftlog_chaos.compare.loads import Answer, Load
from raftlog_chaos.compare.nats_wire import RECEIVED_AT_ONCE, NatsConnection, stream_of

WINDOW: Final = 4_000
"""Messages without an acknowledgement, as in NATS's own clients."""
WINDOW_BYTES: Final = 16 << 20
CHUNK_BYTES: Final = 64 << 10
DRAIN_S: Final = 5.0
PUSHED_TO: Final = "push"
_ACKED: Final = re.compile(rb"MSG _INBOX\.ack\.(\d+) ")
_STAMP: Final = re.compile(rb"@(\d+\.\d+)@")
_PUSHED: Final = b"$JS.ACK"
_LONGEST_MATCH: Final = 64


class _Stream:
    """Publishes as fast as the window lets it."""

    def __init__(self, load: Load) -> None:
        self.connection = NatsConnection(load.servers[0])
        self.connection.subscribe("_INBOX.ack")
        payload = os.urandom(load.record_bytes // 2 + 1).hex().encode()[: load.record_bytes]
        self._acks = load.acks != "0"
        self._count = max(1, min(500, CHUNK_BYTES // load.record_bytes))
        reply = " _INBOX.ack" if self._acks else ""
        self._chunks = [
            f"PUB {stream_of(load.topic, each)}{reply} {len(payload)}\r\n".encode() + payload + b"\r\n"
            for each in range(load.partitions)
        ]
        self._chunks = [each * self._count for each in self._chunks]
        self._window = max(self._count, min(WINDOW, WINDOW_BYTES // load.record_bytes))
        self._turn = 0
        self._rest = b""
        self.sent = self.acknowledged = self.failed = 0

    def run(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while (left_s := until - time.perf_counter()) > 0:
            waiting = self.sent - self.acknowledged - self.failed
            if not self._acks or waiting + self._count <= self._window:
                self._turn += 1
                self.connection.socket.sendall(self._chunks[self._turn % len(self._chunks)])
                self.sent += self._count
                left_s = 0
            if self._acks and readable([self.connection.socket], left_s):
                self._hear()
        if not self._acks:
            self.connection.ping()
            self.acknowledged = self.sent

    def _hear(self) -> None:
        lines = (self._rest + self.connection.socket.recv(RECEIVED_AT_ONCE)).split(b"\n")
        self._rest = lines.pop()
        answers = [line for line in lines if line.startswith(b"{")]
        failed = sum(b'"error"' in line for line in answers)
        self.failed += failed
        self.acknowledged += len(answers) - failed


def produce(load: Load) -> Answer:
    """Publish as fast as possible."""
    return measure_stream(_Stream(load), load)


def _push_from(receiver: NatsConnection, load: Load, policy: str) -> int:
    """Have all streams pushed to a connection; returns how many messages they hold now.

    The requests go over another connection, so that no message comes between a request and its answer.
    """
    receiver.subscribe(PUSHED_TO)
    receiver.ping()
    connection, held = NatsConnection(load.servers[0]), 0
    for partition in range(load.partitions):
        stream = stream_of(load.topic, partition)
        held += connection.request(f"$JS.API.STREAM.INFO.{stream}")["state"]["messages"]
    for partition in range(load.partitions):
        stream = stream_of(load.topic, partition)
        config = {
            "deliver_subject": PUSHED_TO,
            "ack_policy": "none",
            "deliver_policy": policy,
            "num_replicas": 1,
        }
        connection.request(f"$JS.API.CONSUMER.CREATE.{stream}", stream_name=stream, config=config)
    connection.close()
    return held


def consume(load: Load) -> Answer:
    """Have the streams pushed from their beginning."""
    clock, connection = Clock(), NatsConnection(load.servers[0])
    held = _push_from(connection, load, "all")
    clock.begin()
    deadline, seen, rest = time.perf_counter() + load.seconds, 0, b""
    while seen < held and time.perf_counter() < deadline:
        if readable([connection.socket], 0.1):
            came = rest + connection.socket.recv(RECEIVED_AT_ONCE)
            seen += came.count(_PUSHED)
            rest = came[-len(_PUSHED) + 1 :]
    clock.end()
    return clock.answer(seen, consumed=seen)


class _Marks:
    """Finds marks in what a connection receives, also marks that two reads cut in half."""

    def __init__(self, connection: NatsConnection, pattern: re.Pattern[bytes]) -> None:
        self._socket = connection.socket
        self._pattern = pattern
        self._rest = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def take(self) -> list[bytes]:
        came = self._rest + self._socket.recv(RECEIVED_AT_ONCE)
        found = list(self._pattern.finditer(came))
        self._rest = came[max(found[-1].end() if found else 0, len(came) - _LONGEST_MATCH) :]
        return [each[1] for each in found]


def _subject(load: Load, number: int) -> str:
    return stream_of(load.topic, number % load.partitions)


def ack(load: Load) -> Answer:
    """Publish at a steady rate and time each acknowledgement."""
    clock, connection = Clock(), NatsConnection(load.servers[0])
    connection.subscribe("_INBOX.ack.*")
    marks = _Marks(connection, _ACKED)
    payload = b"x" * load.record_bytes + b"\r\n"
    due_at: list[float] = []
    took_s: list[float] = []

    def send(due: list[float]) -> None:
        heads = (
            f"PUB {_subject(load, number)} _INBOX.ack.{number} {load.record_bytes}\r\n".encode()
            for number in range(len(due_at), len(due_at) + len(due))
        )
        connection.socket.sendall(b"".join(head + payload for head in heads))
        due_at.extend(due)

    def take(first: int) -> None:
        now = time.perf_counter()
        took_s.extend(now - due_at[int(each)] for each in marks.take() if int(each) >= first)

    def run(seconds: float, first: int) -> None:
        pace = Pace(load.rate, seconds)
        while not pace.over:
            if due := pace.take():
                send(due)
            if readable([marks], pace.wait_s()):
                take(first)

    run(max(load.warmup_s, 0.2), 1 << 62)
    clock.begin()
    first = len(due_at)
    run(load.seconds, first)
    clock.end()
    while len(took_s) < len(due_at) - first and readable([marks], DRAIN_S):
        take(first)
    return clock.answer(len(took_s), failed=len(due_at) - first - len(took_s), took_s=took_s)


def arrival(load: Load) -> Answer:
    """Publish at a steady rate and time each message's arrival at a consumer that is pushed to."""
    clock, sender, receiver = Clock(), NatsConnection(load.servers[0]), NatsConnection(load.servers[-1])
    _push_from(receiver, load, "new")
    marks = _Marks(receiver, _STAMP)
    took_s: list[float] = []
    sent = 0

    def take() -> None:
        stamps = marks.take()
        now = time.perf_counter()
        took_s.extend(now - float(each) for each in stamps)

    def run(seconds: float, *, stamped: bool) -> None:
        nonlocal sent
        pace = Pace(load.rate, seconds)
        while not pace.over:
            for number, due_at in enumerate(pace.take(), pace.taken):
                stamp = f"@{due_at:.9f}@" if stamped else ""
                line = f"PUB {_subject(load, number)} {load.record_bytes}\r\n{stamp.ljust(load.record_bytes)}\r\n"
                sender.socket.sendall(line.encode())
            if readable([marks], pace.wait_s()):
                take()
        sent = pace.taken

    run(max(load.warmup_s, 0.2), stamped=False)
    clock.begin()
    run(load.seconds, stamped=True)
    clock.end()
    while len(took_s) < sent and readable([marks], DRAIN_S):
        take()
    return clock.answer(len(took_s), failed=sent - len(took_s), took_s=took_s)


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "ack": ack, "arrival": arrival})
