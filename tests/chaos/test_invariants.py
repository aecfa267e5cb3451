"""Each invariant is broken once, on a real cluster where that is possible, and the break is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import msgspec
import pytest

from raftlog.metadata.image import (
    EMPTY_IMAGE,
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
    Usage,
)
from raftlog.metadata.usage import usage_of
from raftlog.records.header import iter_headers
from raftlog_chaos.invariants import Invariants, Violations
from raftlog_chaos.replica_watch import PartitionTruth, ReplicaWatch
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.raw_client import Client
from raftlog_chaos.workloads.simple import SimpleClient

TOPIC_ID = UUID(int=7)
SOUND = PartitionState(replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9)


def image_of(state: PartitionState, *, offset: int = 5) -> MetadataImage:
    brokers = {each: BrokerState(each, each, UUID(int=each), (), fenced=each == 3) for each in (1, 2, 3)}
    topic = TopicState("t", TOPIC_ID, (state,))
    image = MetadataImage(offset=offset, brokers=brokers, topics={"t": topic}, topic_names={TOPIC_ID: "t"})
    return msgspec.structs.replace(image, usage=usage_of(image))


def watched(*images: MetadataImage, twice: bool = False) -> list[str]:
    """Show images to the invariants as a node's, and perhaps the last one again, altered, as another node's."""
    loop = SimLoop(1)
    failures = Violations()
    invariants = Invariants(failures)
    take = invariants.began(loop.host("node1"), 1, None)  # type: ignore[arg-type]  # images need no node
    for image in images[: len(images) - twice]:
        take(image)
    if twice:
        invariants.began(loop.host("node2"), 2, None)(images[-1])  # type: ignore[arg-type]
    loop.close()
    return failures


def test_a_sound_history_of_a_partition_is_not_blamed() -> None:
    """An election and an ISR change, as they should be."""
    later = PartitionState(replicas=(1, 2, 3), isr=(2,), leader=2, leader_epoch=5, partition_epoch=10)
    assert watched(image_of(SOUND), image_of(later, offset=6)) == []


@pytest.mark.parametrize(
    ("after", "blame"),
    [
        (PartitionState((1, 2, 3), (), -1, 5, 10), "the ISR is ()"),
        (PartitionState((1, 2), (1, 3), 1, 4, 10), "the ISR is (1, 3)"),
        (PartitionState((1, 2, 3), (2,), 1, 4, 10), "leader 1 is not in the ISR"),
        (PartitionState((1, 2, 3), (3,), 3, 5, 10), "leader 3 is fenced"),
        (PartitionState((1, 2, 3), (1, 2), 2, 4, 10), "within epoch 4"),
        (PartitionState((1, 2, 3), (1, 2), 2, 3, 10), "went from (4, 9) to (3, 10)"),
        (PartitionState((1, 2, 3), (1,), 1, 4, 9), "went from (4, 9) to (4, 9)"),
    ],
)
def test_metadata_that_breaks_a_law_of_partitions_is_blamed(after: PartitionState, blame: str) -> None:
    """ISR never empty and ⊆ replicas; leader ∈ ISR and alive; one leader per epoch; epochs never go back."""
    faults = watched(image_of(SOUND), image_of(after, offset=6))
    assert faults and blame in "; ".join(faults)


def test_metadata_that_goes_back_or_differs_is_blamed() -> None:
    """Offsets and controller epochs only grow; at one offset there is one image."""
    assert "went back" in "; ".join(watched(image_of(SOUND), EMPTY_IMAGE))
    other = image_of(PartitionState((1, 2, 3), (1,), 1, 4, 10))
    assert "other metadata at offset 5" in "; ".join(watched(image_of(SOUND), other, twice=True))


def test_metadata_whose_usage_is_miscounted_is_blamed() -> None:
    """The controller would admit too many changes, or none."""
    image = msgspec.structs.replace(image_of(SOUND), usage=Usage(partitions=2))
    assert "miscounts its metadata at offset 5" in "; ".join(watched(image))


async def served(loop: SimLoop, meddle: Callable[[SimCluster], None]) -> list[str]:
    """Run a cluster, have a topic written, meddle with what the invariants know, restart all; returns the blame."""
    cluster = SimCluster(loop)
    cluster.start()
    await cluster.until_ready()
    client = SimpleClient(Client("c", cluster.bootstrap))
    await client.create_topic("t")
    for number in range(20):
        while True:
            try:
                await client.produce("t", 0, b"%d" % number)
                break
            except OSError:
                await asyncio.sleep(0.05)
    await cluster.until(cluster.all_in_sync, 10, "all in sync")
    assert not cluster.failures
    meddle(cluster)
    for node_id in cluster.nodes:
        cluster.crash(node_id)
        cluster.start(node_id)
    await asyncio.sleep(5)
    return list(cluster.failures)


def truth_of(cluster: SimCluster) -> PartitionTruth:
    (truth,) = cluster.invariants._truths.values()
    return truth


def other_record(cluster: SimCluster) -> None:
    end, crc, epoch = truth_of(cluster).batches[3]
    truth_of(cluster).batches[3] = (end, crc ^ 1, epoch)


def read_further(cluster: SimCluster) -> None:
    truth = truth_of(cluster)
    truth.readable[max(truth.readable)] = 120


def other_leader(cluster: SimCluster) -> None:
    truth = truth_of(cluster)
    truth.leaders.update(dict.fromkeys(range(max(truth.leaders) + 1, 100), 99))


def other_controller(cluster: SimCluster) -> None:
    known = cluster.invariants._controllers
    known.update(dict.fromkeys(range(max(known) + 1, 100), 99))


def other_entry(cluster: SimCluster) -> None:
    entries = cluster.invariants._entries
    entries.update({index: (term, checksum ^ 1) for index, (term, checksum) in entries.items()})


@pytest.mark.parametrize(
    ("meddle", "blame"),
    [
        (other_record, "committed offset 3 holds another batch"),
        (read_further, "clients could read up to offset 120"),
        (read_further, "the latest offset for clients went back from 120"),
        (other_leader, "both lead epoch"),
        (other_controller, "both controllers of term"),
        (other_entry, "another committed metadata entry at index"),
    ],
)
def test_a_cluster_that_contradicts_its_past_is_blamed(
    meddle: Callable[[SimCluster], None], blame: str
) -> None:
    """Records, what clients could read, leaders, controllers and metadata entries: one truth over all lives."""
    faults = simulate(lambda loop: served(loop, meddle), seed=3).result
    assert blame in "; ".join(faults)


def test_a_batch_that_rotted_out_of_its_place_is_not_taken_for_another_record() -> None:
    """No CRC covers its offset. As after a wrong CRC, readers and recovery find it; no record was replaced."""
    faults: list[str] = []

    def rot(cluster: SimCluster) -> None:
        disk, replica = cluster.nodes[1].host.disk, cluster.replica(1, "t", 0)
        assert replica is not None and replica.high_watermark > 4
        (path,) = (f"/data/t-0/{each}" for each in disk.listdir("/data/t-0") if each.endswith(".log"))
        position, header = list(iter_headers(disk.read_file(path)))[2]
        assert header.base_offset == 2
        disk.flip_bit(path, position + 7)  # it says 3 now
        watch = ReplicaWatch(cluster.nodes[1].host, replica, truth_of(cluster), None)
        faults.extend(watch.look())

    simulate(lambda loop: served(loop, rot), seed=3)
    assert faults == []


def test_a_cluster_that_is_true_to_its_past_is_not_blamed() -> None:
    """The same without meddling: what the cases above find is what was meddled with."""
    assert simulate(lambda loop: served(loop, lambda _: None), seed=3).result == []
