"""The part of `raftlog bench` about racks: how soon consumers read there, and the bytes that they fetch from others.

It measures racks of processes and, as root on Linux, racks that are network namespaces with slow links.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.cli.bench.figure import Figure
from raftlog.testing.cluster import Cluster, ClusterError
from raftlog_chaos.bench import far_reads, measure
from raftlog_chaos.sweep import silence

TOPIC: Final = "bench"
PARTITIONS: Final = 6
NODES: Final = (1, 2, 3)
RECORD_BYTES: Final = 1_000
RECORDS: Final = 20_000
PATIENCE_S: Final = 60.0
STATISTICS_MS: Final = 200
BEGINNING: Final = 0

Make = Callable[..., Figure]


def between_racks(make: Make, create: Callable[[Cluster, str, int], None]) -> Iterator[Figure]:
    """Yield what consumers in three racks, with a node in each, receive from other racks: by librdkafka's counters.

    Before that, how soon they read at the followers in their racks, in the simulator and in network namespaces.
    """
    yield from _at_followers(make)
    yield from _apart(make)
    racks = {each: {"broker.rack": rack_of(each)} for each in NODES}
    settings = {"replica.selector.class": RACK_AWARE_SELECTOR}
    with closing(Cluster(len(NODES), settings=settings, node_settings=racks)) as cluster:
        cluster.start()
        create(cluster, TOPIC, PARTITIONS)
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        written = measure.throughput(config, TOPIC, record_bytes=RECORD_BYTES, records=RECORDS)
        records = written.records + RECORDS // 10
        for where in ("without client.rack", "with client.rack"):
            crossed = total = 0
            for each in NODES:
                rack = {"client.rack": rack_of(each)} if where == "with client.rack" else {}
                received = _read({**config, **rack}, records)
                total += sum(received.values())
                crossed += sum(size for node, size in received.items() if node != each)
            note = f"of {total / 1e6:.0f} MB that a consumer in each rack reads"
            yield make("racks", f"from other racks, {where}", crossed / 1e6, "MB", note=note)


def _at_followers(make: Make) -> Iterator[Figure]:
    """Yield the medians of writing and reading with racks 2 ms and 40 ms apart."""
    silence()  # the simulated nodes log into this process
    found = far_reads.measure_far_reads()
    yield make("racks", "acks=all p50, simulated", found[0].produced_s * 1e3, "ms")
    for each in found:
        what = f"p50 at a follower {each.round_s * 1e3:g} ms away"
        note = "simulated; the aim is that of acks=all and one round"
        yield make(
            "racks", what, each.consumed_s * 1e3, "ms", round(each.bound_s * 1e3, 1), "at most", note=note
        )


def _apart(make: Make) -> Iterator[Figure]:
    """Yield the same and the bytes between racks, of processes with slow links between them."""
    from raftlog_chaos.bench import rack_reads

    try:
        found = rack_reads.measure_rack_reads()
    except (OSError, ClusterError) as error:
        print(f"raftlog: no racks in network namespaces: {error}", file=sys.stderr)
        return
    apart = ", ".join(f"{delay_s * 1e3:g}" for delay_s in rack_reads.DELAYS_S.values())
    note = f"one way between the racks: {apart} ms"
    yield make("racks", "acks=all p50, namespaces", found.reads[0].produced_s * 1e3, "ms", note=note)
    for each in found.reads:
        what = f"{each.round_s * 1e3:g} ms away, namespaces"
        yield make("racks", f"p50 at the leader, {what}", each.at_leader_s * 1e3, "ms")
        bound = round(each.bound_s * 1e3, 1)
        yield make("racks", f"p50 at a follower, {what}", each.at_follower_s * 1e3, "ms", bound, "at most")
    read, *crossed = found.crossed
    for where, size in zip(("without client.rack", "with client.rack"), crossed, strict=True):
        if any(crossed):
            note = f"of {read / 1e6:.0f} MB that are read, as the links count"
            yield make("racks", f"between namespaces, {where}", size / 1e6, "MB", note=note)


def rack_of(node_id: int) -> str:
    return f"zone-{node_id}"


def _read(config: dict[str, Any], records: int) -> dict[int, int]:
    """Read the topic's records; return the bytes received from each node."""
    from confluent_kafka import Consumer, TopicPartition

    received: dict[int, int] = {}

    def note(text: str) -> None:
        for each in json.loads(text)["brokers"].values():
            if each["nodeid"] in NODES:
                received[each["nodeid"]] = each["rxbytes"]

    consumer = Consumer(
        {
            **config,
            "group.id": "bench",
            "auto.offset.reset": "error",
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": note,
        }
    )
    consumer.assign([TopicPartition(TOPIC, each, BEGINNING) for each in range(PARTITIONS)])
    left, deadline = records, time.monotonic() + PATIENCE_S
    while left > 0 and time.monotonic() < deadline:
        left -= sum(each.error() is None for each in consumer.consume(5_000, timeout=0.1))
    consumer.poll(2 * STATISTICS_MS / 1000)  # which calls `note` once more
    consumer.close()
    return received
