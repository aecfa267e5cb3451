"""`raftlog produce` and `consume` while the leader that they talk to is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.kit.waits import ended, until

HALF = 2_000


def start(cluster: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "raftlog",
        *arguments,
        "-b",
        cluster.bootstrap_servers,
        "--timeout",
        "60",
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def closed_at_the_end(cluster: Cluster, *processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the processes, and have all nodes run again."""
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()
            for stream in (each.stdin, each.stdout, each.stderr):
                if stream is not None:
                    stream.close()
        cluster.heal()


def bytes_of(cluster: Cluster, topic: str, node_id: int) -> int:
    """Return how many bytes of the partition are in a node's segments."""
    folders = map(Path, cluster.nodes[node_id].folders)
    return sum(each.stat().st_size for folder in folders for each in folder.glob(f"{topic}-0/*.log"))


def test_each_record_is_there_once_and_in_order_after_the_leader_is_killed(cluster: Cluster) -> None:
    """Written by one process and followed by another, both from before the kill to after it."""
    cluster.create_topic("rides", partitions=1)
    lines = [b"%d\n" % number for number in range(2 * HALF)]
    reader = start(cluster, "consume", "-t", "rides", "-c", str(len(lines)), "-u", "-q")
    writer = start(cluster, "produce", "-t", "rides")
    with closed_at_the_end(cluster, reader, writer):
        assert writer.stdin is not None and reader.stdout is not None
        writer.stdin.write(b"".join(lines[:HALF]))
        writer.stdin.flush()
        read = [reader.stdout.readline() for _ in range(HALF)]
        cluster.kill_leader("rides")
        writer.stdin.write(b"".join(lines[HALF:]))
        writer.stdin.close()
        assert ended(writer) == 0, writer.stderr and writer.stderr.read()
        read += reader.stdout.readlines()
        assert ended(reader) == 0, reader.stderr and reader.stderr.read()
    assert read == lines
    assert CommandLine(cluster.bootstrap_servers)("consume", "-t", "rides", "-e").out == b"".join(lines)


def test_a_batch_that_the_next_leader_has_is_not_written_again(cluster: Cluster) -> None:
    """The leader dies between replicating and acknowledging it, because a third replica does not follow meanwhile."""
    cluster.create_topic("trips", partitions=1)
    leader, successor, third = cluster.partitions("trips")[0].replicas
    lines = [b"%d\n" % number for number in range(HALF)]
    writer = start(cluster, "produce", "-t", "trips")
    with closed_at_the_end(cluster, writer):
        assert writer.stdin is not None
        writer.stdin.write(lines[0])
        writer.stdin.flush()
        until(lambda: bytes_of(cluster, "trips", third) > 0, "the writer is connected")
        first = bytes_of(cluster, "trips", leader)
        cluster.pause(third)  # a second later the ISR is smaller
        writer.stdin.write(b"".join(lines[1:]))
        writer.stdin.close()
        until(
            lambda: first < bytes_of(cluster, "trips", leader) == bytes_of(cluster, "trips", successor),
            "the successor has the batch",
            seen=lambda: bytes_of(cluster, "trips", successor),
        )
        assert writer.poll() is None, "it was acknowledged without the third replica"
        cluster.kill(leader)
        cluster.resume(third)
        assert ended(writer) == 0, writer.stderr and writer.stderr.read()
    assert CommandLine(cluster.bootstrap_servers)("consume", "-t", "trips", "-e").out == b"".join(lines)
