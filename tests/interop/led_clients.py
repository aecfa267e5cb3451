"""A Go client that takes steps, line by line, and a writer that writes until it is ended."""

from __future__ import annotations

import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from raftlog.testing.cluster import Cluster
from tests.interop.member_kinds import go_command
from tests.kit.waits import PATIENCE_S, ended, until

MAX_COMPLAINTS = 5


class Read(NamedTuple):
    """A record as a client read it."""

    offset: int
    key: str
    value: str


class LedClient:
    """A process that takes a step for each line, and answers before the next."""

    def __init__(self, library: str, cluster: Cluster, codec: str) -> None:
        self._process = subprocess.Popen(
            go_command(library, "client", cluster.bootstrap_servers, codec),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def attempt(self, *words: object) -> str:
        """Take a step; returns `done` and what it found, or `failed` and why."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def take(self, *words: object) -> list[str]:
        """Take a step that must go well; returns the words that it found."""
        word, *found = self.attempt(*words).split()
        assert word == "done", f"{words}: {found}"
        return found

    def read(self, topic: str, partition: int = 0) -> list[Read]:
        """Read a partition from its first record to its last."""
        found = []
        for word in self.take("read", topic, partition):
            offset, _, record = word.partition(":")
            key, _, value = record.partition("=")
            found.append(Read(int(offset), key, value))
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


@contextmanager
def led_client(library: str, cluster: Cluster, codec: str = "none") -> Iterator[LedClient]:
    client = LedClient(library, cluster, codec)
    try:
        yield client
    finally:
        client.kill()


class Writer:
    """A process that writes NAME-0, NAME-1, … over a topic's partitions in turn, until it is closed."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.name = command[-3]
        self.acknowledged: list[str] = []
        self.lost: list[str] = []
        """The work that the client gave up, and why."""
        self.complaints: deque[str] = deque(maxlen=MAX_COMPLAINTS)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return (
            f"<{self.name} wrote {len(self.acknowledged)}, lost {self.lost[:3]} {'; '.join(self.complaints)}>"
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "wrote":
                self.acknowledged.append(rest)
            elif word == "lost":
                self.lost.append(rest)
            else:
                self.complaints.append(line.strip())

    def wait_more(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        goal = len(self.acknowledged) + count

        def is_there() -> bool:
            assert self._process.poll() is None, f"the writer ended: {self}"
            return len(self.acknowledged) >= goal

        until(is_there, f"{count} more records are acknowledged", seen=lambda: self)

    def close(self) -> None:
        """Let it finish what it has begun."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert ended(self._process) == 0, self
        self._reader.join(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


@contextmanager
def writers(*commands: tuple[str, ...]) -> Iterator[list[Writer]]:
    """Writers that are dead at the end."""
    found: list[Writer] = []
    try:
        for command in commands:
            found.append(Writer(command))
        yield found
    finally:
        for each in found:
            each.kill()


def go_writer(library: str, cluster: Cluster, topic: str, *, partitions: int, rate: int) -> tuple[str, ...]:
    """Return the command of a writer with values that begin with the library's name.

    Sarama 1.43 is not to be idempotent: after a failover it gives other records the sequence numbers of stored records.
    """
    where = (cluster.bootstrap_servers, topic, library, str(partitions), str(rate))
    return go_command(library, "plain-writer" if library == "sarama-1.43" else "writer", *where)
