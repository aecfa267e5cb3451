"""Clients in Go and Java with a rack read from the follower in it (KIP-392)."""

from __future__ import annotations

import subprocess

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.clients.failover.test_follower_reads import COUNT, counted, filled, racked
from tests.interop.led_clients import led_client
from tests.interop.member_kinds import java_command

__all__ = ["racked"]


@pytest.mark.go
def test_franz_go_reads_from_the_follower_in_its_rack(racked: AdminCluster) -> None:
    """By the counters of the brokers: the leader has sent no record. Without a rack it sends all."""
    leader, follower = filled(racked, "nearest")
    fetches = "raftlog_follower_fetches_total"
    with led_client("franz-go", racked) as led:
        near = led.take("read", "nearest", 0, f"zone-{follower}")
        assert counted(racked, follower, fetches, "nearest") > 0
        assert counted(racked, leader, "raftlog_topic_bytes_out_total", "nearest") == 0
        assert near == led.take("read", "nearest", 0)
        assert counted(racked, leader, "raftlog_topic_bytes_out_total", "nearest") > 0
    offsets = [int(word.partition(":")[0]) for word in near if ":" in word]
    assert offsets == list(range(COUNT))


@pytest.mark.java
def test_java_names_the_follower_in_its_metric(racked: AdminCluster) -> None:
    """preferred-read-replica, as Kafka's own test of KIP-392 looks at it."""
    leader, follower = filled(racked, "nearest-to-java")
    command = java_command("raftlog.Nearest")
    words = (racked.bootstrap_servers, "nearest-to-java", f"zone-{follower}", str(COUNT))
    ended = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.split() == ["preferred", str(follower)], ended.stderr
    assert counted(racked, leader, "raftlog_topic_bytes_out_total", "nearest-to-java") == 0
