"""The client of queues on Redis Streams: a consumer group, XADD, XREADGROUP and XACK, each XADD and XACK with WAIT.

WAIT says that both replicas have received the command. A worker knows that its records are accepted only then.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from raftlog_chaos.compare.clients.queue import Accepting, measure_queue
from raftlog_chaos.compare.clients.redis import (
    ANSWER_S,
    CONNECTIONS,
    RECEIVED_AT_ONCE,
    REPLICAS,
    WAIT_MS,
    words,
)
from raftlog_chaos.compare.clients.speech import main
from raftlog_chaos.compare.loads import Answer, Load

GROUP: Final = b"g"
BLOCK_MS: Final = 100
WAIT: Final = words(b"WAIT", b"%d" % REPLICAS, b"%d" % WAIT_MS)


class Refusal(Exception):
    """The server answered with an error."""


class RedisConnection:
    """One connection, with answers in the order of their commands."""

    def __init__(self, load: Load) -> None:
        host, _, port = load.servers[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard = b""
        self._at = 0

    def ask(self, commands: bytes, count: int = 1) -> list[Any]:
        """Send commands, and return their answers. Raises Refusal."""
        self.send(commands)
        return self.answers(count)

    def send(self, commands: bytes) -> None:
        self._socket.sendall(commands)

    def answers(self, count: int) -> list[Any]:
        """Return the answers of commands that were sent. Raises Refusal."""
        return [self._answer() for _ in range(count)]

    def _answer(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise Refusal(rest.decode(errors="replace"))
        if kind == b"*":
            return [self._answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._take(int(rest))
        return int(rest) if kind == b":" else rest

    def _line(self) -> bytes:
        while (end := self._heard.find(b"\r\n", self._at)) < 0:
            self._receive()
        line, self._at = self._heard[self._at : end], end + 2
        return line

    def _take(self, size: int) -> bytes:
        while len(self._heard) < self._at + size + 2:
            self._receive()
        text, self._at = self._heard[self._at : self._at + size], self._at + size + 2
        return text

    def _receive(self) -> None:
        came = self._socket.recv(RECEIVED_AT_ONCE)
        if not came:
            raise OSError("the server closed the connection")
        self._heard, self._at = self._heard[self._at :] + came, 0


class _Queue:
    """The streams of a load, and the connections of its producer and workers.

    WAIT blocks a connection, so that the producer has several.
    """

    def __init__(self, load: Load, accepting: Accepting) -> None:
        self._load = load
        self._accepting = accepting
        self._producers = deque((RedisConnection(load), 0) for _ in range(CONNECTIONS))
        """The connections, with the number of answers that are due on each."""
        self._keys = [f"{load.topic}-{each}".encode() for each in range(load.partitions)]
        for key in self._keys:
            self._producers[0][0].ask(words(b"XGROUP", b"CREATE", key, GROUP, b"0", b"MKSTREAM"))

    def send(self, records: Sequence[bytes]) -> None:
        """Add records on the connection that was used least recently, once both replicas have its former records."""
        producer, due = self._producers.popleft()
        if due and producer.answers(due)[-1] < REPLICAS:
            raise Refusal("a replica did not receive the records in time")
        adds = (
            words(b"XADD", self._keys[number % len(self._keys)], b"*", b"d", each)
            for number, each in enumerate(records, self._accepting.sent)
        )
        producer.send(b"".join(adds) + WAIT)
        self._producers.append((producer, len(records) + 1))

    def work(self, worker: int) -> None:
        """Take records and accept them, for ever."""
        connection = RedisConnection(self._load)
        most = max(1, self._load.locks // self._load.clients // len(self._keys))
        keys = self._keys[worker % len(self._keys) :] + self._keys[: worker % len(self._keys)]
        read = words(
            *(b"XREADGROUP", b"GROUP", GROUP, b"%d" % worker, b"COUNT", b"%d" % most),
            *(b"BLOCK", b"%d" % BLOCK_MS, b"STREAMS", *keys, *[b">"] * len(keys)),
        )
        while True:
            streams = connection.ask(read)[0] or []
            entries = [(key, *each) for key, some in streams for each in some]
            self._accepting.note_delivered([fields[1] for _, _, fields in entries])
            for begins in range(0, len(entries), self._load.per_ack):
                self._accept(connection, worker, entries[begins : begins + self._load.per_ack])

    def _accept(self, connection: RedisConnection, worker: int, entries: Sequence[Any]) -> None:
        by_key: dict[bytes, list[bytes]] = {}
        for key, entry_id, _ in entries:
            by_key.setdefault(key, []).append(entry_id)
        accepts = b"".join(words(b"XACK", key, GROUP, *ids) for key, ids in by_key.items())
        *accepted, replicas = connection.ask(accepts + WAIT, len(by_key) + 1)
        failed = sum(accepted) < len(entries) or replicas < REPLICAS
        self._accepting.note_accepted(worker, [fields[1] for _, _, fields in entries], failed=failed)


def queue(load: Load) -> Answer:
    """Add to streams, and let a consumer group accept their entries."""
    accepting = Accepting(load)
    streams = _Queue(load, accepting)
    return measure_queue(load, accepting, streams.send, streams.work)


if __name__ == "__main__":
    main({"queue": queue})
