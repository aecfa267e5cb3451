"""compression.type of a topic with stock libraries: they read what a leader gave another codec than they chose."""

from __future__ import annotations

import pytest

from raftlog.records.compression import CODEC_NAMES
from raftlog.testing.cluster import Cluster
from tests.clients.nodes import batches_on_disk, bytes_on_disk
from tests.clients.stock import StockClient
from tests.kit.waits import until

VALUES = [b"%d " % number * 40 for number in range(50)]
LARGE = [b"%d " % number * 40_000 for number in range(3)]


@pytest.mark.parametrize("compression_type", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_all_replicas_hold_the_topics_codec_and_every_library_reads_it(
    stock: StockClient, cluster: Cluster, topic: str, compression_type: str
) -> None:
    """Small batches and large batches, sent with another codec and without."""
    stock.create_topic(topic, 1, 3, compression_type=compression_type)
    other = "gzip" if compression_type != "gzip" else "lz4"
    stock.produce(topic, VALUES, partition=0, compression=other)
    stock.produce(topic, LARGE, partition=0, compression=other)
    stock.produce(topic, VALUES, partition=0)
    sent = VALUES + LARGE + VALUES
    assert [each.value for each in stock.read(topic, 0, 0, len(sent))] == sent
    assert {each.codec for each in batches_on_disk(cluster, 1, topic)} == {CODEC_NAMES[compression_type]}
    for node_id in (2, 3):
        until(
            lambda node_id=node_id: (
                bytes_on_disk(cluster, node_id, topic) == bytes_on_disk(cluster, 1, topic)
            ),
            "replicas are alike",
        )
