"""Every stock library does everything: topics, configs, records with each codec, offsets, groups, the cluster."""

from __future__ import annotations

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import batches_on_disk, bytes_on_disk
from tests.clients.stock import ClientRefused, Config, StockClient
from tests.clients.with_confluent import Confluent
from tests.kit.waits import until

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES = [b"%d " % number * 40 for number in range(50)]

UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


def test_topics_are_created_grown_and_deleted(stock: StockClient, topic: str) -> None:
    """CreateTopics, CreatePartitions, DeleteTopics, and Metadata that follows them."""
    stock.create_topic(topic, 2, 3)
    replicas = stock.topics()[topic]
    assert [sorted(each) for each in replicas] == [[1, 2, 3]] * 2
    stock.grow_topic(topic, 5)
    stock.wait_known(topic, 5)
    grown = stock.topics()[topic]
    assert (len(grown), grown[:2]) == (5, replicas)
    stock.produce(topic, [b"in the newest partition"], partition=4)
    stock.delete_topic(topic)
    until(lambda: topic not in stock.topics(), "every node knows that the topic is gone")


def test_what_cannot_be_done_to_a_topic_is_refused_with_kafkas_code(stock: StockClient, topic: str) -> None:
    """TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS for fewer, UNKNOWN_TOPIC_OR_PARTITION."""
    stock.create_topic(topic, 2, 1)
    refusals = {
        TOPIC_ALREADY_EXISTS: lambda: stock.create_topic(topic, 2, 1),
        INVALID_PARTITIONS: lambda: stock.grow_topic(topic, 1),
        UNKNOWN_TOPIC_OR_PARTITION: lambda: stock.delete_topic(f"not-{topic}"),
        INVALID_CONFIG: lambda: stock.set_config(topic, "retention.ms", "soon"),
    }
    for code, call in refusals.items():
        with pytest.raises(ClientRefused) as refused:
            call()
        assert refused.value.code == code


def test_configs_are_described_and_altered(stock: StockClient, topic: str) -> None:
    """DescribeConfigs lists all of them; what was set says so, at creation and by (Incremental)AlterConfigs."""
    stock.create_topic(topic, 1, 3, segment_bytes="1048576")
    stock.set_config(topic, "retention.ms", "3600000")
    configs: dict[str, Config] = {}

    def is_known() -> bool:
        configs.update(stock.configs(topic))
        return configs["retention.ms"] == ("3600000", True)

    until(is_known, "the node that is asked knows the new config")
    assert configs["segment.bytes"].set_on_topic == stock.keeps_other_configs
    assert configs["min.insync.replicas"].set_on_topic is False
    assert len(configs) > 25


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_records_of_each_codec_come_back_as_they_went(
    stock: StockClient, cluster: Cluster, topic: str, codec: str | None
) -> None:
    """Idempotent, acks=all; the codec passes through untouched to every replica's disk."""
    stock.create_topic(topic, 1, 3)
    acknowledged = stock.produce(topic, VALUES, key=b"key", compression=codec)
    assert [record_metadata.offset for record_metadata in acknowledged] == list(range(len(VALUES)))
    records = stock.read(topic, 0, 0, len(VALUES))
    assert [(each.offset, each.key, each.value) for each in records] == [
        (offset, b"key", value) for offset, value in enumerate(VALUES)
    ]
    headers = batches_on_disk(cluster, 1, topic)
    assert {header.codec for header in headers} == {CODECS.get(codec or "", 0)}
    assert all(header.producer_id >= 0 for header in headers)
    leaders = bytes_on_disk(cluster, 1, topic)
    for other in (2, 3):
        until(lambda other=other: bytes_on_disk(cluster, other, topic) == leaders, "replicas are alike")


def test_an_assigned_consumer_seeks_to_offsets_and_times(stock: StockClient, topic: str) -> None:
    """Fetch at any offset, in the middle of a batch too; ListOffsets by time, and of the ends."""
    stock.create_topic(topic, 1, 3)
    stock.produce(topic, VALUES, partition=0)
    everything = stock.read(topic, 0, 0, len(VALUES))
    for start in (1, 17, len(VALUES) - 1):
        assert stock.read(topic, 0, start, len(VALUES) - start) == everything[start:]
    assert stock.bounds(topic, 0) == (0, len(VALUES))
    for record in (everything[0], everything[-1]):
        first = min(each.offset for each in everything if each.timestamp_ms >= record.timestamp_ms)
        assert stock.offset_at(topic, 0, record.timestamp_ms) == first
    assert stock.offset_at(topic, 0, 0) == 0
    assert stock.offset_at(topic, 0, everything[-1].timestamp_ms + 1) is None


def test_a_group_of_one_resumes_where_it_committed(stock: StockClient, topic: str) -> None:
    """JoinGroup to LeaveGroup twice over: each record comes once."""
    stock.create_topic(topic, 3, 3)
    for partition in range(3):
        stock.produce(topic, VALUES[:20], partition=partition)
    first = stock.consume_as_group(topic, f"group-of-{topic}", 25)
    second = stock.consume_as_group(topic, f"group-of-{topic}", 60 - len(first))
    acknowledged = [(each.partition, each.offset) for each in first + second]
    assert sorted(acknowledged) == [(partition, offset) for partition in range(3) for offset in range(20)]


def test_a_second_member_waits_for_its_turn_and_gets_its_share(
    stock: StockClient, cluster: Cluster, topic: str
) -> None:
    """With librdkafka as the first member: when that has left, the second reads what was not committed."""
    holder = Confluent(cluster.bootstrap_servers)
    stock.create_topic(topic, 1, 3)
    stock.produce(topic, [b"one"])
    with holder.member(topic, f"group-of-{topic}"):
        pass
    (record,) = stock.consume_as_group(topic, f"group-of-{topic}", 1)
    assert record.value == b"one"


def test_deleted_records_are_gone_and_the_rest_is_not(stock: StockClient, topic: str) -> None:
    """DeleteRecords moves the log start, to any offset and to the high watermark (-1)."""
    stock.create_topic(topic, 1, 3)
    stock.produce(topic, VALUES, partition=0)
    assert stock.delete_records(topic, 0, 7) == 7
    assert stock.bounds(topic, 0) == (7, len(VALUES))
    assert stock.read(topic, 0, 7, 1)[0].value == VALUES[7]
    assert stock.delete_records(topic, 0, -1) == len(VALUES)
    assert stock.bounds(topic, 0) == (len(VALUES), len(VALUES))
    assert stock.produce(topic, [b"next"], partition=0) == [(0, len(VALUES))]


def test_groups_are_listed(stock: StockClient, topic: str) -> None:
    """ListGroups of every broker together."""
    stock.create_topic(topic, 1, 3)
    stock.produce(topic, [b"one"])
    names = {f"{topic}-{number}" for number in range(4)}
    for name in names:
        stock.consume_as_group(topic, name, 1)
    assert names <= stock.groups()


def test_the_cluster_is_described(stock: StockClient, cluster: Cluster) -> None:
    """DescribeCluster, or what the library makes of Metadata."""
    described = stock.describe()
    assert described.broker_ids == {1, 2, 3}
    assert described.controller_id in described.broker_ids
    assert len(described.cluster_id) == 22
