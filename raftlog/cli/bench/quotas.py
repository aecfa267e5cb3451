"""The part of `raftlog bench` about quotas: a modest client beside a greedy client, with and without a quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from raftlog.cli.bench.figure import Figure
from raftlog.cli.quota import Part, alter_quotas
from raftlog.cli.target import Target
from raftlog.testing.cluster import Cluster
from raftlog_chaos.bench import measure
from raftlog_chaos.bench.greedy import CLIENT_ID, greedy_client

TOPIC: Final = "bench"
PARTITIONS: Final = 6
QUOTA: Final = 2_000_000
"""Bytes a second of the greedy client, on each broker."""

RATE: Final = 100
SECONDS: Final = 20.0
"""Longer than all windows of a quota: a burst of ten seconds' worth comes first."""

Make = Callable[..., Figure]


def beside_a_greedy_client(make: Make, create: Callable[[Cluster, str, int], None]) -> Iterator[Figure]:
    """Yield how long a modest client waits for acknowledgements: alone, and beside a greedy client."""
    with closing(Cluster()) as cluster:
        cluster.start()
        create(cluster, TOPIC, PARTITIONS)
        yield from _modest(cluster, make, "alone")
        with greedy_client(cluster.bootstrap_servers, TOPIC):
            yield from _modest(cluster, make, "beside a greedy client")
        limits: dict[str, float | None] = {"producer_byte_rate": float(QUOTA)}
        alter_quotas(Target(cluster.bootstrap_servers), [Part("client-id", CLIENT_ID)], limits)
        with greedy_client(cluster.bootstrap_servers, TOPIC):
            yield from _modest(cluster, make, f"beside one limited to {QUOTA / 1e6:g} MB/s a broker")


def _modest(cluster: Cluster, make: Make, where: str) -> Iterator[Figure]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "modest"}
    acks = measure.ack_latency(config, TOPIC, rate=RATE, seconds=SECONDS)
    yield make("quotas", f"ack p50 {where}", acks.p50, "ms", note=f"at {RATE}/s")
    yield make("quotas", f"ack p99 {where}", acks.p99, "ms", note=f"at {RATE}/s")
