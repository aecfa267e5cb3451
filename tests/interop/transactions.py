"""Transactional producers of every library, led step by step, and readers that see what is committed, or all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, KafkaError, TopicPartition

from raftlog.testing.cluster import Cluster
from tests.interop.member_kinds import TransactorKind
from tests.kit.waits import PATIENCE_S, poll_until

TIMEOUT_MS = 60_000


class Transactor:
    """A process that holds one transactional id; each step is done when its answer is there."""

    def __init__(
        self, maker: TransactorKind, cluster: Cluster, name: str, *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self._process = subprocess.Popen(
            [*maker.command, cluster.bootstrap_servers, name, str(timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def attempt(self, step: str) -> str:
        """Take a step; returns `done`, or `failed` and why."""
        assert self._process.stdin is not None
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()
        return self._answer()

    def take(self, *steps: str) -> None:
        """Take steps that must go well."""
        for step in steps:
            answer = self.attempt(step)
            assert answer == "done", f"{step}: {answer}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


@contextmanager
def transactors(
    maker: TransactorKind, cluster: Cluster, *names: str, timeout_ms: int = TIMEOUT_MS
) -> Iterator[list[Transactor]]:
    """Producers of a library with these transactional ids, dead at the end."""
    with ExitStack() as stack:
        found = []
        for name in names:
            found.append(Transactor(maker, cluster, name, timeout_ms=timeout_ms))
            stack.callback(found[-1].kill)
        yield found


def values(cluster: Cluster, topic: str, partitions: int = 1, *, committed: bool) -> list[str]:
    """Return what a reader of that isolation level finds in a topic, up to the end that it sees."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[str] = []
    ended: set[int] = set()

    def at_the_end() -> bool:
        for message in reader.consume(500, 0.2):
            if message.error() is None:
                found.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == partitions

    poll_until(at_the_end, f"{topic} is read to its end")
    reader.close()
    return found
