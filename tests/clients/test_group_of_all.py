"""confluent-kafka, kafka-python and aiokafka in one group, members killed and added: every record is processed.

Each member is a process of its own, so that a kill is a kill. What it has read it tells, then commits.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.stock import PATIENCE_S
from tests.clients.with_confluent import Confluent

PARTITIONS = 6
KINDS = ("confluent", "kafka-python", "aiokafka")
SESSION_S = 6.0
LOOK_S = 0.05


def until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Look now and then: what is looked at does not wait itself."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(LOOK_S)


class MemberProcess:
    """A consumer; `values` and `partitions` are what it told so far."""

    def __init__(self, kind: str, bootstrap: str, topic: str, group: str) -> None:
        program = Path(__file__).with_name("member.py")
        self.values: set[bytes] = set()
        self.partitions: frozenset[int] = frozenset()
        self._process = subprocess.Popen(
            [sys.executable, str(program), kind, bootstrap, topic, group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(b" ")
            if word == b"read":
                self.values.add(rest)
            elif word == b"has":
                self.partitions = frozenset(map(int, rest.split()))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def close(self) -> None:
        """Let it leave the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def members(cluster: Cluster, topic: str, *kinds: str) -> Iterator[list[MemberProcess]]:
    started: list[MemberProcess] = []
    try:
        started += [join(cluster, topic, kind) for kind in kinds]
        yield started
    finally:
        for each in started:
            each.kill()


def join(cluster: Cluster, topic: str, kind: str) -> MemberProcess:
    return MemberProcess(kind, cluster.bootstrap_servers, topic, f"all-of-{topic}")


def shared_by(group: list[MemberProcess]) -> bool:
    """Whether every partition has one owner, and every member some partition."""
    owned = [index for each in group for index in each.partitions]
    return sorted(owned) == list(range(PARTITIONS)) and all(each.partitions for each in group)


def read_by(group: list[MemberProcess]) -> set[bytes]:
    return set().union(*(each.values for each in group))


@pytest.mark.timeout(180)
def test_clients_of_all_libraries_share_a_group_while_members_come_and_go(three: Cluster, topic: str) -> None:
    """Three libraries, one killed, one added, one that leaves, and the coordinator killed: nothing is left out."""
    writer = Confluent(three.bootstrap_servers)
    writer.create_topic(topic, PARTITIONS, 3)
    sent: set[bytes] = set()

    def write(count: int) -> None:
        for index in range(PARTITIONS):
            values = [b"%d-%d" % (index, len(sent) + number) for number in range(count)]
            writer.produce(topic, values, partition=index)
            sent.update(values)

    with members(three, topic, *KINDS) as group:
        everybody = list(group)
        until(lambda: shared_by(group), "three libraries share the partitions", 2 * PATIENCE_S)
        write(30)
        until(lambda: read_by(everybody) >= sent, "all is read by three")
        group[0].kill()
        write(30)
        until(lambda: read_by(everybody) >= sent, "all is read by two", SESSION_S + PATIENCE_S)
        newcomer = join(three, topic, "kafka-python")
        everybody.append(newcomer)
        group.append(newcomer)
        until(lambda: shared_by(group[1:]), "the newcomer has its share", PATIENCE_S)
        kill_coordinator(three, f"all-of-{topic}")
        write(30)
        until(lambda: read_by(everybody) >= sent, "all is read after the coordinator died", PATIENCE_S)
        group[2].close()
        write(30)
        until(lambda: read_by(everybody) >= sent, "all is read by the rest", PATIENCE_S)
    writer.close()


def kill_coordinator(cluster: Cluster, group: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    node_id = admin.describe_consumer_groups([group])[group].result(10).coordinator.id
    cluster.kill(node_id)
    cluster.restart(node_id)
    cluster.wait_ready()
