"""The time until consumers read at the followers in their racks, beside that until an acknowledgement (KIP-392).

Three racks have a node and clients each, and are 2 ms and 40 ms of round trip away from the leader's rack. They are
simulated, so that the figures are exact on any machine and kernel. A consumer at a follower may see a record one round
later than its producer gets the acknowledgement. The leader must first send the follower the new high watermark.
"""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any, Final, NamedTuple

from raftlog.base.config.broker import RACK_AWARE_SELECTOR
from raftlog.records.batch import build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.testbeds.testbed import NODE_ID
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import FETCH, PRODUCE, Client, create_topic, shapes

ROUNDS_S: Final = (0.002, 0.040)
"""The round trips between the leader's rack and the others. The two others are as far apart as the farther."""

HERE_S: Final = 0.000_1
"""The round trip within a rack."""

TOPIC: Final = "far"
RECORDS: Final = 200
EVERY_S: Final = 0.05
WARM_UP_S: Final = 2.0
"""Until consumers know the replica in their rack."""

SETTINGS: Final = {
    "broker.rack": f"rack{NODE_ID}",
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "min.insync.replicas": "2",
}


class FarRead(NamedTuple):
    """A consumer in a rack this round trip away from the leader; seconds, medians."""

    round_s: float
    produced_s: float
    consumed_s: float
    at_follower: int
    """How many of its fetches a follower answered with records."""

    @property
    def bound_s(self) -> float:
        return self.produced_s + self.round_s


def measure_far_reads(seed: int = 1) -> list[FarRead]:
    """Return what a consumer sees in each of the other racks."""
    return simulate(_course, seed=seed).result


async def _course(loop: SimLoop) -> list[FarRead]:
    cluster = SimCluster(loop, 3, settings=SETTINGS)
    cluster.start()
    await cluster.until_ready()
    await loop.host("admin").start(create_topic(Client("admin", cluster.bootstrap), TOPIC, partitions=1))
    await cluster.until(cluster.all_in_sync, 10.0, "all replicas in sync")
    led = cluster.leader_replica(TOPIC, 0)
    assert led is not None
    leader = next(node_id for node_id, each in cluster.nodes.items() if each is led[0])
    near, far = (each for each in cluster.nodes if each != leader)
    racks = {each: [cluster.nodes[each].host, loop.host(f"client{each}")] for each in cluster.nodes}
    for one, hosts in racks.items():
        for other, others in racks.items():
            apart_s = HERE_S if one == other else ROUNDS_S[far in (one, other)]
            _keep_apart(loop, hosts, others, apart_s)
    written: dict[bytes, float] = {}
    readers = {each: _Reader(cluster, each, written) for each in (near, far)}
    for each, reader in readers.items():
        racks[each][1].start(reader.run())
    produced = await racks[leader][1].start(_write(cluster, written))
    await cluster.until(
        lambda: all(len(each.seen_s) == RECORDS for each in readers.values()), 10.0, "all is read"
    )
    for reader in readers.values():
        reader.stopping = True
    return [
        FarRead(round_s, median(produced), median(each.seen_s), each.client.read_from_followers)
        for round_s, each in zip(ROUNDS_S, readers.values(), strict=True)
    ]


def _keep_apart(loop: SimLoop, hosts: list[Host], others: list[Host], round_s: float) -> None:
    for host in hosts:
        for other in others:
            if host is not other:
                loop.network.link(host, other).latency_s = (round_s / 2, round_s / 2)


async def _write(cluster: SimCluster, written: dict[bytes, float]) -> list[float]:
    """Write records with acks=all; return after how many seconds each was acknowledged."""
    loop, client = asyncio.get_running_loop(), Client("writer", cluster.bootstrap)
    await client.refresh(TOPIC)
    await asyncio.sleep(WARM_UP_S)
    found = []
    for number in range(RECORDS):
        value = b"%d" % number
        began = written[value] = loop.time()
        batch = build_batch([new_record(None, value, timestamp=-1)])
        response = await client.ask_leader(TOPIC, 0, PRODUCE, produce_request((TOPIC, 0), batch))
        assert int(response.responses[0].partition_responses[0].error_code) == 0
        found.append(loop.time() - began)
        await asyncio.sleep(EVERY_S)
    return found


class _Reader:
    """A consumer in the rack of a node."""

    def __init__(self, cluster: SimCluster, node_id: int, written: dict[bytes, float]) -> None:
        self.client = Client(f"reader{node_id}", cluster.bootstrap, rack=f"rack{node_id}")
        self.stopping = False
        self.seen_s: list[float] = []
        """How long after its producer sent it each record was read."""
        self._written = written
        self._offset = 0

    async def run(self) -> None:
        await self.client.refresh(TOPIC)
        while not self.stopping:
            response = await self.client.fetch(TOPIC, 0, self._request())
            records = memoryview(response.responses[0].partitions[0].records or b"")
            now = asyncio.get_running_loop().time()
            for position, header in iter_headers(records):
                for record in iter_records(records[position : position + header.length]):
                    self.seen_s.append(now - self._written[bytes(record.value or b"")])
                self._offset = header.end_offset

    def _request(self) -> Any:
        make = shapes(FETCH)
        partition = make.FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=self._offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        return make.FetchRequest(
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            rack_id=self.client.rack,
            topics=(make.FetchTopic(topic=TOPIC, partitions=(partition,)),),
        )
