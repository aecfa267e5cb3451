"""`raftlog produce` and `consume` while the leader that they talk to is killed."""

from __future__ import annotations

import subprocess
import sys

from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.kit.waits import ended

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


def test_each_record_is_there_once_and_in_order_after_the_leader_is_killed(cluster: Cluster) -> None:
    """Written by one process and followed by another, both from before the kill to after it."""
    cluster.create_topic("rides", partitions=1)
    lines = [b"%d\n" % number for number in range(2 * HALF)]
    reader = start(cluster, "consume", "-t", "rides", "-c", str(len(lines)), "-u", "-q")
    writer = start(cluster, "produce", "-t", "rides")
    try:
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
    finally:
        for each in (reader, writer):
            each.kill()
            each.wait()
            for stream in (each.stdin, each.stdout, each.stderr):
                if stream is not None:
                    stream.close()
        cluster.heal()
    assert read == lines
    assert CommandLine(cluster.bootstrap_servers)("consume", "-t", "rides", "-e").out == b"".join(lines)
