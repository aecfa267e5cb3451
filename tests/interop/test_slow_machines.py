"""Claims about an idle cluster of real processes that get a tenth of the time: no leadership moves.

Each node is stopped and continued in a rhythm of its own, by signals to the processes that this test started. Events
are read from the nodes' logs, so that no node is kept busy with requests.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.with_confluent import Confluent

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("RAFTLOG_SLOW_SECONDS", "60"))
"""How long a rhythm lasts; ten minutes are RAFTLOG_SLOW_SECONDS=600."""

MOVES = (
    "controller_became_active",
    "controller_fenced_broker",
    "partition_became_leader",
)
"""The events that are logged when a leader of anything changes, or a broker is taken for dead."""


def moves(cluster: Cluster) -> Counter[str]:
    """Count what moved so far, by node and event."""
    return Counter(
        f"{node_id} {event}"
        for node_id, node in cluster.nodes.items()
        for line in node.log_path.read_text().splitlines()
        for event in MOVES
        if event in line
    )


@contextmanager
def a_tenth_of_the_time(cluster: Cluster, runs_s: float, stands_s: float) -> Iterator[None]:
    """Let every node run for a while and then not, over and over."""
    done = threading.Event()

    def beat(node_id: int) -> None:
        while not done.is_set():
            cluster.pause(node_id)
            done.wait(stands_s)
            cluster.resume(node_id)
            done.wait(runs_s)

    threads = [threading.Thread(target=beat, args=(node_id,)) for node_id in cluster.nodes]
    for number, each in enumerate(threads):
        each.start()
        done.wait(stands_s * number / len(threads))
    try:
        yield
    finally:
        done.set()
        for each in threads:
            each.join()


@pytest.mark.parametrize(("runs_s", "stands_s"), [(0.02, 0.18), (0.1, 0.9)], ids=["20-180", "100-900"])
def test_a_quiet_cluster_with_a_tenth_of_the_time_stays_as_it_is(runs_s: float, stands_s: float) -> None:
    """No controller changes, no broker is fenced, no leader epoch moves."""
    with Cluster(3) as cluster:
        client = Confluent(cluster.bootstrap_servers)
        client.create_topic("quiet", 6, 3)
        client.produce("quiet", [b"before"], partition=0)
        client.close()
        before = moves(cluster)
        with a_tenth_of_the_time(cluster, runs_s, stands_s):
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(1)
        assert moves(cluster) == before
        assert any("node_slow" in node.log_path.read_text() for node in cluster.nodes.values())
