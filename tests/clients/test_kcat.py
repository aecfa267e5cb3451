"""kcat, the command line that people reach for first: list, produce, consume, query."""

from __future__ import annotations

import json
import shutil

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent
from tests.kit.waits import PATIENCE_S, run

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = pytest.mark.skipif(
    KCAT is None,
    reason="NO KCAT ON THIS MACHINE: install it (Debian: kcat), these claims are not being tested",
)


def kcat(cluster: Cluster, *arguments: str, stdin: bytes = b"") -> bytes:
    command = [str(KCAT), "-b", cluster.bootstrap_servers, "-m", str(PATIENCE_S), *arguments]
    ran = run(command, stdin=stdin)
    ran.check_returncode()
    return ran.stdout


@pytest.fixture
def made(cluster: Cluster, topic: str) -> str:
    """A topic of two partitions."""
    client = Confluent(cluster.bootstrap_servers)
    client.create_topic(topic, 2, 3)
    client.close()
    return topic


def test_l_lists_brokers_topics_and_replicas(cluster: Cluster, made: str) -> None:
    """kcat -L -J"""
    listed = json.loads(kcat(cluster, "-L", "-J"))
    assert {broker["id"] for broker in listed["brokers"]} == {1, 2, 3}
    (partitions,) = [each["partitions"] for each in listed["topics"] if each["topic"] == made]
    assert [each["partition"] for each in partitions] == [0, 1]
    assert all({replica["id"] for replica in each["isrs"]} == {1, 2, 3} for each in partitions)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_p_produces_and_c_consumes(cluster: Cluster, made: str, codec: str) -> None:
    """kcat -P with keys and headers in each codec, kcat -C from an offset to the end."""
    lines = [b"key-%d:value %d %s" % (number, number, b"x" * 100) for number in range(100)]
    stdin = b"\n".join(lines) + b"\n"
    kcat(cluster, "-P", "-t", made, "-p", "1", "-K", ":", "-H", "colour=green", "-z", codec, stdin=stdin)
    arguments = ["-C", "-t", made, "-p", "1", "-o", "10", "-e", "-q", "-f", "%o %k:%s %h\n"]
    read = kcat(cluster, *arguments).splitlines()
    assert read == [b"%d %s colour=green" % (offset, lines[offset]) for offset in range(10, 100)]


def test_q_asks_for_offsets_by_time(cluster: Cluster, made: str) -> None:
    """kcat -Q with -1 (end), -2 (beginning) and a time."""
    kcat(cluster, "-P", "-t", made, "-p", "0", stdin=b"one\ntwo\nthree\n")
    for timestamp, offset in ((-1, 3), (-2, 0), (1_000, 0)):
        answer = kcat(cluster, "-Q", "-J", "-t", f"{made}:0:{timestamp}")
        assert json.loads(answer)[made]["0"]["offset"] == offset


def test_g_consumes_as_a_group(cluster: Cluster, made: str) -> None:
    """kcat -G twice: the second goes on where the first committed."""
    for number in range(2):
        kcat(cluster, "-P", "-t", made, stdin=b"line %d\n" % number)
        group = ["-G", f"group-of-{made}", "-X", "auto.offset.reset=earliest", "-c", "1", "-q", made]
        assert kcat(cluster, *group) == b"line %d\n" % number
