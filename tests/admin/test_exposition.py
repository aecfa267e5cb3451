"""Claims about the metrics' text, and about how little of it is made at a time."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from raftlog.admin import metrics_shares
from raftlog.admin import scrape as scraping
from raftlog.admin.cluster_summary import SLICE
from raftlog.admin.exposition import SLICE_STEPS, histogram, labelled, labels, single, slices
from raftlog.admin.facts import (
    AccountFacts,
    AdmissionFacts,
    ClientMetricsFacts,
    CompactionFacts,
    ConnectionFacts,
    DeliveryCountFacts,
    DirectoryFacts,
    GroupFacts,
    PartitionFacts,
    RaftFacts,
    RefusedReplica,
    ShareFacts,
    ShareLag,
    SharePartitionFacts,
    TopicTraffic,
    TransactionFacts,
)
from raftlog.admin.loop_lag import LoopLag
from raftlog.admin.metrics import accepts_gzip, compressed, families
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.histogram import Histogram
from raftlog.base.recurring_failures import Failure
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.base.types import TopicPartition
from raftlog.broker.audit import Audit
from raftlog.broker.client_telemetry import (
    MAX_SERIES_PER_CLIENT,
    ClientAttributes,
    ClientTelemetry,
    Push,
)
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from tests.broker.fakes import TOPIC_ID
from tests.protocol.otlp_bytes import gauge, metrics_data, point

PARTITIONS = 5_000
SHARES = 5_000
NAMES_OF_OTHERS = {
    "kafka_consumergroup_current_offset_sum",
    "kafka_consumergroup_lag_sum",
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "kafka_server_socket_server_metrics_connection_count",
}
"""Gauges of kafka_exporter and the JMX exporter that end as parts of a histogram do; dashboards query them so."""


class Node:
    """A node with thousands of partitions that notes how much is asked of it at a time."""

    def __init__(self) -> None:
        self.asked = 0
        self.telemetry: ClientTelemetry | None = None
        self.parts_of_share = 1
        self.shares_asked = 0

    def partition_names(self) -> list[TopicPartition]:
        return [TopicPartition("t", index) for index in range(PARTITIONS)]

    def partition(self, name: TopicPartition) -> PartitionFacts | None:
        self.asked += 1
        return PartitionFacts(name.partition % 2 == 0, 1, 7, 9, 100, 1, 7)

    def traffic(self) -> Mapping[str, TopicTraffic]:
        return {}

    def connections(self) -> ConnectionFacts | None:
        return None

    def memory(self) -> list[AccountFacts]:
        return []

    def group_bytes(self) -> int:
        return 700

    def admission(self) -> AdmissionFacts | None:
        return None

    def directories(self) -> list[DirectoryFacts]:
        return []

    def refused_replicas(self) -> list[RefusedReplica]:
        return []

    def failed_replicas(self) -> dict[TopicPartition, str]:
        return {TopicPartition("t", 0): "leader 2 lacks committed records from offset 5 to 9"}

    def compaction(self) -> CompactionFacts | None:
        return None

    def failures(self) -> list[Failure]:
        return []

    def transactions(self) -> TransactionFacts | None:
        return TransactionFacts({"Ongoing": 2, "Empty": 1}, 7, 5, 2, 1, 1, 40_000)

    def shares(self) -> ShareFacts:
        counts = DeliveryCountFacts(9, 2, 1, 1, {"Accept": 5, "Release": 1})
        return ShareFacts(2, 3, Histogram(), [("work", counts), ("", counts)])

    def share_keys(self) -> list[Hashable]:
        return list(range(SHARES))

    def share_partition(self, key: Hashable) -> SharePartitionFacts | None:
        assert isinstance(key, int)
        self.shares_asked += 1
        if key == 1:
            return None  # it was dropped meanwhile
        return SharePartitionFacts("work", f"t{key // 2}", key % 2, 7, 3, 2.5, {1: 3, 4: 1})

    def share_parts(self, key: Hashable) -> int:
        return self.parts_of_share

    def share_state_keys(self) -> list[Hashable]:
        return list(range(SHARES))

    def share_lag(self, key: Hashable) -> ShareLag | None:
        assert isinstance(key, int)
        return None if key == 1 else ShareLag("work", f"t{key // 2}", 5)

    def audit(self) -> Audit:
        found = Audit()
        found.denials[0] += 1
        return found

    def client_metrics(self) -> ClientMetricsFacts | None:
        return self.telemetry

    def raft(self) -> RaftFacts | None:
        return RaftFacts(1, 3, 10, 11, True, True)

    async def groups(self) -> list[GroupFacts]:
        return [GroupFacts('g"\n', "Stable", 2, {("t", 0): 3, ("t", 1): 9, ("elsewhere", 0): 1})]


def view(node: Node) -> NodeView:
    states = tuple(PartitionState((1, 2), (1,), 1, 3) for _ in range(PARTITIONS))
    image = MetadataImage(
        offset=9,
        controller_id=1,
        topics={"t": TopicState("t", TOPIC_ID, states)},
        topic_names={TOPIC_ID: "t"},
    )
    return NodeView(NodeConfig(node_id=1), lambda: image, list, lambda: 0.0, facts=node)


def test_text_is_what_prometheus_reads() -> None:
    """Judged by its own client library: names, kinds, labels with anything in them, buckets that add up."""
    observed = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        observed.observe(value)
    text = "".join(
        slices(
            [
                single("a_total", "counter", "Of one.", 3),
                labelled("b", "gauge", "Of some.", [(labels(x='q"\\\n'), 1.5), (labels(x="none"), None)]),
                histogram("c_seconds", "Of many.", [("", observed), (labels(x="y"), observed)]),
            ]
        )
    )
    found = {each.name: each for each in parse(text)}
    assert [(each.labels, each.value) for each in found["a"].samples] == [({}, 3)]
    assert [(each.labels, each.value) for each in found["b"].samples] == [({"x": 'q"\\\n'}, 1.5)]
    buckets = [each.value for each in found["c_seconds"].samples if each.name == "c_seconds_bucket"]
    assert buckets == [2, 3, 4] * 2
    assert found["c_seconds"].type == "histogram"


async def test_thousands_of_partitions_are_gathered_in_slices() -> None:
    """The loop runs others after PARTS_AT_ONCE partitions at most, however many there are."""
    node = Node()
    most, seen, running = 0, 0, True

    async def others() -> None:
        nonlocal most, seen
        while running:
            most, seen = max(most, node.asked - seen), node.asked
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(others())
    found = await scraping.gather(view(node), node, LoopLag())
    running = False
    await watching
    assert node.asked == PARTITIONS == len(found.rows)
    assert 0 < most <= PARTS_AT_ONCE
    assert SLICE < PARTITIONS


async def test_share_partitions_with_many_ranges_are_gathered_in_smaller_slices() -> None:
    """The sum over a share partition is as many parts as it says."""
    node = Node()
    node.parts_of_share = PARTS_AT_ONCE // 2
    most, seen, running = 0, 0, True

    async def others() -> None:
        nonlocal most, seen
        while running:
            most, seen = max(most, node.shares_asked - seen), node.shares_asked
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(others())
    await scraping.gather(view(node), node, LoopLag())
    running = False
    await watching
    assert node.shares_asked == SHARES
    assert most == 2


async def test_thousands_of_partitions_are_exported_in_slices() -> None:
    """No piece has more samples than SLICE_STEPS, plus a few fixed samples; skipped samples count too."""
    node = Node()
    found = await scraping.gather(view(node), node, LoopLag())
    pieces = list(slices(families(found, "all")))
    assert len(pieces) > PARTITIONS * 10 / SLICE_STEPS
    most = max(sum(not line.startswith("#") for line in piece.splitlines()) for piece in pieces)
    assert most <= SLICE_STEPS + 5
    exported = {each.name: each for each in parse("".join(pieces))}
    assert len(exported["raftlog_partition_high_watermark"].samples) == PARTITIONS
    assert [each.value for each in exported["raftlog_group_memory_bytes"].samples] == [700]
    assert len(exported["kafka_topic_partition_current_offset"].samples) == PARTITIONS / 2
    assert (
        exported["kafka_server_replicamanager_underreplicatedpartitions"].samples[0].value == PARTITIONS / 2
    )


async def test_share_groups_are_exported_by_group_and_topic_in_bounded_series() -> None:
    """Partitions of a topic are summed up; topics beyond the limit are counted, and the dropped partition is not."""
    node = Node()
    found = await scraping.gather(view(node), node, LoopLag())
    exported = {each.name: each for each in parse("".join(slices(families(found, "all"))))}
    lags = {each.labels["topic"]: each.value for each in exported["raftlog_share_group_lag"].samples}
    assert (len(lags), lags["t0"], lags["t1"]) == (metrics_shares.MOST_SERIES, 5, 10)
    assert (
        exported["raftlog_share_series_left_out"].samples[0].value == SHARES / 2 - metrics_shares.MOST_SERIES
    )
    assert exported["raftlog_share_partitions"].samples[0].value == SHARES - 1
    in_flight = {
        (each.labels["topic"], each.labels["deliveries"]): each.value
        for each in exported["raftlog_share_group_in_flight"].samples
    }
    assert (in_flight["t1", "1"], in_flight["t1", "4"]) == (6, 2)
    archived = {each.labels["group"]: each.value for each in exported["raftlog_share_group_archived"].samples}
    assert archived == {"work": 1, "": 1}
    kinds = exported["kafka_server_sharegroupmetrics_recordacknowledgements"].samples
    assert {each.labels["acktype"]: each.value for each in kinds} == {"Accept": 10, "Release": 2}
    in_kafka = exported["kafka_server_sharepartitionmetrics_inflightmessagecount"].samples
    assert len(in_kafka) == metrics_shares.MOST_SERIES


async def test_pairs_without_a_lag_are_counted() -> None:
    """The node leads none of the share partitions that it coordinates."""
    node = Node()
    found = await scraping.gather(view(node), node, LoopLag())
    found.shares.clear()
    exported = {each.name: each for each in parse("".join(slices(families(found, "all"))))}
    assert len(exported["raftlog_share_group_lag"].samples) == metrics_shares.MOST_SERIES
    assert (
        exported["raftlog_share_series_left_out"].samples[0].value == SHARES / 2 - metrics_shares.MOST_SERIES
    )


async def test_lag_is_exported_where_the_end_is_known() -> None:
    """A position beyond the end is no lag. The lag of a partition of another broker is not guessed."""
    node = Node()
    found = await scraping.gather(view(node), node, LoopLag())
    exported = {each.name: each for each in parse("".join(slices(families(found, "kafka"))))}
    lags = {each.labels["partition"]: each.value for each in exported["kafka_consumergroup_lag"].samples}
    assert lags == {"0": 4, "1": 0}
    assert [each.value for each in exported["kafka_consumergroup_lag_sum"].samples] == [4]
    assert "raftlog_group_lag" not in exported


class Positions(dict[tuple[str, int], int]):
    """Committed positions that note how many of them are looked at."""

    looked_at = 0

    def items(self) -> Any:
        for each in super().items():
            self.looked_at += 1
            yield each


async def test_group_of_thousands_of_partitions_is_summed_in_slices() -> None:
    """A sum needs all of them, but not at once."""
    positions = Positions({("t", index): 3 for index in range(PARTITIONS)})

    class Busy(Node):
        async def groups(self) -> list[GroupFacts]:
            return [GroupFacts("g", "Stable", 1, positions)]

    node = Busy()
    found = await scraping.gather(view(node), node, LoopLag())
    seen, text = [positions.looked_at], ""
    for piece in slices(families(found, "kafka")):
        seen.append(positions.looked_at)
        text += piece
    assert max(after - before for before, after in pairwise(seen)) <= SLICE_STEPS
    exported = {each.name: each for each in parse(text)}
    assert [each.value for each in exported["kafka_consumergroup_lag_sum"].samples] == [4 * PARTITIONS]
    assert [each.value for each in exported["kafka_consumergroup_current_offset_sum"].samples] == [
        3 * PARTITIONS
    ]


async def test_what_clients_pushed_is_text_that_prometheus_reads() -> None:
    """Clients and metrics (KIP-714) are shown under any name, and in slices like everything else."""
    node = Node()
    node.telemetry = ClientTelemetry()
    image = MetadataImage(configs={("client-metrics", "all"): {"metrics": "*"}})
    names = [f'odd "{number}"\n' for number in range(MAX_SERIES_PER_CLIENT)]
    for number in (1, 2):
        client = UUID(int=number)
        attributes = ClientAttributes(str(client), 'q"\\\n', "", "", "", "")
        asked = node.telemetry.subscribe(client, attributes, image, now=0.0)
        pushed = metrics_data(*(gauge(name, point(number, **{"a b": 'x"'})) for name in names))
        push = Push(asked.subscription_id, 0, pushed, False)
        for _ in node.telemetry.push(client, attributes, image, push, max_bytes=1 << 20, now=0.0):
            pass
    scrape = await scraping.gather(view(node), node, LoopLag())
    pieces = list(slices(families(scrape, "clients")))
    assert len(pieces) > 2 * MAX_SERIES_PER_CLIENT / SLICE_STEPS
    found = {each.name: each for each in parse("".join(pieces))}
    assert found["raftlog_client_telemetry_clients"].samples[0].value == 2
    assert found["raftlog_client_telemetry_series"].samples[0].value == 2 * MAX_SERIES_PER_CLIENT
    samples = found["kafka_client_odd__7__"].samples
    assert [each.value for each in samples] == [1, 2]
    assert samples[0].labels == {
        "client_id": 'q"\\\n',
        "client_instance_id": str(UUID(int=1)),
        "a_b": 'x"',
    }


async def test_names_end_as_prometheus_has_it_except_names_that_dashboards_query() -> None:
    """Counters end in _total. No other metric ends so, or in a suffix of histograms (promtool check metrics)."""
    node = Node()
    scrape = await scraping.gather(view(node), node, LoopLag())
    odd = set()
    for each in families(scrape, "all"):
        ends_as_part = each.name.endswith(("_sum", "_count", "_bucket", "_info_total"))
        if ends_as_part or (each.kind == "counter") != each.name.endswith("_total"):
            odd.add(each.name)
    assert odd <= NAMES_OF_OTHERS
    assert "kafka_consumergroup_lag_sum" in odd


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0, *", False),
        ("gzip;q=0.000", False),
        ("identity", False),
        ("", False),
        ("gzip;q=x", False),
    ],
)
def test_only_clients_that_ask_for_gzip_get_it(header: str, taken: bool) -> None:
    """RFC 9110: a weight of zero is a no."""
    assert accepts_gzip(header) == taken


async def test_a_scrape_of_thousands_of_partitions_is_compressed_piece_by_piece() -> None:
    """Only what is made between two turns of the loop is compressed between them."""
    node = Node()
    scrape = await scraping.gather(view(node), node, LoopLag())
    plain = [piece.encode() for piece in slices(families(scrape, "raftlog"))]
    taken: list[int] = []

    def counted() -> Iterator[bytes]:
        for piece in plain:
            taken.append(len(piece))
            yield piece

    small = b""
    for piece in compressed(counted()):
        small += piece
    assert gzip.decompress(small) == b"".join(plain)
    assert max(taken) < 100_000 and len(small) < sum(taken) / 10
