"""The client of Redis Streams: XADD in pipelines, and WAIT for the replicas at the end of each (acks=all).

WAIT says that the replicas have received the records; Redis 7.0 cannot say that they have synced them.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Final

from raftlog.base.readable import readable
from raftlog_chaos.compare.clients.pace import Pace
from raftlog_chaos.compare.clients.speech import Clock, main, measure_stream
from raftlog_chaos.compare.loads import Answer, Load

REPLICAS: Final = 2
WAIT_MS: Final = 5_000
CONNECTIONS: Final = 8
"""WAIT blocks its connection, so that several of them keep the server busy."""
PIPELINE_BYTES: Final = 256 << 10
READ_AT_ONCE: Final = 1_000
RECEIVED_AT_ONCE: Final = 1 << 20
ANSWER_S: Final = 10.0
FIELD: Final = b"\r\n*2\r\n$1\r\nd\r\n"
"""The mark between an entry's id and its only field's value."""
_REFUSAL: Final = re.compile(rb"(?:^|\r\n)-([^\r]*)\r\n")
_STAMP: Final = re.compile(rb"@(\d+\.\d+)@")


def words(*parts: bytes) -> bytes:
    """Return a command as RESP."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class _Pipeline:
    """One connection with at most one pipeline of records on its way."""

    def __init__(self, load: Load) -> None:
        host, _, port = load.servers[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waits = load.acks == "all"
        self._wait = words(b"WAIT", b"%d" % REPLICAS, b"%d" % WAIT_MS) if self._waits else b""
        self._heard = b""
        self.on_their_way = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, commands: bytes, count: int) -> None:
        """Send commands that add `count` records."""
        self.on_their_way = count
        self.socket.sendall(commands + self._wait)

    def hear(self) -> bool | None:
        """Take what came; returns whether all records were taken, and None as long as answers are missing."""
        came = self.socket.recv(RECEIVED_AT_ONCE)
        if not came:
            raise OSError("the server closed the connection")
        self._heard += came
        if refusal := _REFUSAL.search(self._heard):
            raise OSError(f"the server answered: {refusal[1].decode(errors='replace')}")
        if self._heard.count(b"$") < self.on_their_way or not self._heard.endswith(b"\r\n"):
            return None
        last = self._heard[:-2].rpartition(b"\n")[2]
        if last.startswith(b"$") or (self._waits and not last.startswith(b":")):
            return None
        self._heard, self.on_their_way = b"", 0
        return not self._waits or int(last[1:]) >= REPLICAS


def _key(load: Load, number: int) -> bytes:
    return f"{load.topic}-{number % load.partitions}".encode()


class _Stream:
    """Adds records as fast as the server takes them."""

    def __init__(self, load: Load) -> None:
        self._idle = [_Pipeline(load) for _ in range(CONNECTIONS)]
        self._busy: list[_Pipeline] = []
        payload = os.urandom(load.record_bytes // 2 + 1).hex().encode()[: load.record_bytes]
        self._count = max(1, min(500, PIPELINE_BYTES // load.record_bytes))
        adds = [words(b"XADD", _key(load, each), b"*", b"d", payload) for each in range(load.partitions)]
        self._commands = [each * self._count for each in adds]
        self._turn = 0
        self.acknowledged = self.failed = 0

    def run(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while (left_s := until - time.perf_counter()) > 0:
            while self._idle:
                pipeline = self._idle.pop()
                self._turn += 1
                pipeline.send(self._commands[self._turn % len(self._commands)], self._count)
                self._busy.append(pipeline)
            for pipeline in readable(self._busy, left_s):
                taken = pipeline.hear()
                if taken is not None:
                    self._busy.remove(pipeline)
                    self._idle.append(pipeline)
                    self.acknowledged += self._count if taken else 0
                    self.failed += 0 if taken else self._count


def produce(load: Load) -> Answer:
    """Add records as fast as possible."""
    return measure_stream(_Stream(load), load)


class _Reader:
    """Reads entries of one stream, each of `record_bytes`, from an id on."""

    def __init__(self, load: Load, key: bytes, last: bytes) -> None:
        self.pipeline = _Pipeline(load)
        self._key = key
        self._tail_bytes = len(b"$%d\r\n" % load.record_bytes) + load.record_bytes + 2
        self._last = last
        self._heard = b""

    def ask(self, *, block: bool = False) -> None:
        """Request the entries behind the last received entry."""
        count = b"%d" % READ_AT_ONCE
        blocking = (b"BLOCK", b"0") if block else ()
        self.pipeline.socket.sendall(
            words(b"XREAD", b"COUNT", count, *blocking, b"STREAMS", self._key, self._last)
        )

    def hear(self) -> bytes | None:
        """Return the whole answer, or None as long as some of it is missing; empty: there are no entries."""
        self._heard += self.pipeline.socket.recv(RECEIVED_AT_ONCE)
        if self._heard in (b"*-1\r\n", b"$-1\r\n"):
            self._heard = b""
            return b""
        head = re.match(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n", self._heard)
        last_at = self._heard.rfind(FIELD)
        if head is None or len(self._heard) < last_at + len(FIELD) + self._tail_bytes:
            return None
        if self._heard.count(FIELD) < int(head[1]):
            return None
        answer, self._heard = self._heard, b""
        self._last = answer[:last_at].rpartition(b"\n")[2]
        return answer


def consume(load: Load) -> Answer:
    """Read the streams from their beginning, one after the other."""
    clock = Clock()
    clock.begin()
    deadline, seen = time.perf_counter() + load.seconds, 0
    for partition in range(load.partitions):
        reader = _Reader(load, _key(load, partition), b"0")
        answer: bytes | None = b"?"
        while answer != b"" and time.perf_counter() < deadline:
            reader.ask()
            answer = None
            while answer is None:
                answer = reader.hear()
            seen += answer.count(FIELD)
    clock.end()
    return clock.answer(seen, consumed=seen)


class _Steady:
    """Adds what is due in one pipeline after the other, and keeps how long each record took."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.pipeline = _Pipeline(load)
        self._due_at: list[float] = []
        self.took_s: list[float] = []
        self.failed = self.sent = 0
        self.measured = False

    def send(self, due_at: list[float], *, stamped: bool, partitions: int) -> None:
        """Send records that were due at these moments; they contain the moment if `stamped`."""
        keys = [f"{self._load.topic}-{each}".encode() for each in range(partitions)]
        stamps = (f"@{each:.9f}@".encode() if stamped else b"x" for each in due_at)
        adds = (
            words(b"XADD", keys[number % partitions], b"*", b"d", stamp.ljust(self._load.record_bytes))
            for number, stamp in enumerate(stamps, self.sent)
        )
        self._due_at = due_at if self.measured else []
        self.pipeline.send(b"".join(adds), len(due_at))
        self.sent += len(due_at)

    def hear(self) -> None:
        taken = self.pipeline.hear()
        if taken is None:
            return
        now = time.perf_counter()
        if taken:
            self.took_s.extend(now - each for each in self._due_at)
        else:
            self.failed += len(self._due_at)
        self._due_at = []


def _run_steady(
    steady: _Steady, pace: Pace, reader: _Reader | None, took_s: list[float], *, partitions: int
) -> None:
    """Send at a steady rate until the pace is over; take acknowledgements, and what a reader is sent."""
    while not pace.over or steady.pipeline.on_their_way:
        if not steady.pipeline.on_their_way and (due_at := pace.take()):
            steady.send(due_at, stamped=reader is not None and steady.measured, partitions=partitions)
        wait_s = 0.01 if steady.pipeline.on_their_way else pace.wait_s()
        sockets = [steady.pipeline] if reader is None else [steady.pipeline, reader.pipeline]
        for each in readable(sockets, wait_s):
            if each is steady.pipeline:
                steady.hear()
            elif reader is not None:
                _take(reader, took_s)


def _take(reader: _Reader, took_s: list[float]) -> None:
    answer = reader.hear()
    if answer is not None:
        now = time.perf_counter()
        took_s.extend(now - float(each) for each in _STAMP.findall(answer))
        reader.ask(block=True)


def _measure(load: Load, reader: _Reader | None, partitions: int) -> Answer:
    clock, steady = Clock(), _Steady(load)
    took_s: list[float] = []
    if reader is not None:
        reader.ask(block=True)
    warm_up = Pace(load.rate, max(load.warmup_s, 0.2))
    _run_steady(steady, warm_up, reader, took_s, partitions=partitions)
    clock.begin()
    steady.measured = True
    _run_steady(steady, Pace(load.rate, load.seconds), reader, took_s, partitions=partitions)
    clock.end()
    while reader is not None and readable([reader.pipeline], 0.5):
        _take(reader, took_s)
    took_s = steady.took_s if reader is None else took_s
    return clock.answer(len(took_s), failed=steady.failed, took_s=took_s)


def ack(load: Load) -> Answer:
    """Add records at a steady rate and time the acknowledgement of their pipeline."""
    return _measure(load, None, load.partitions)


def arrival(load: Load) -> Answer:
    """Add records to one stream at a steady rate and time their arrival at a reader that waits for them."""
    return _measure(load, _Reader(load, _key(load, 0), b"$"), 1)


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "ack": ack, "arrival": arrival})
