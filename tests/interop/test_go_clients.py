"""Sarama, kafka-go and franz-go: records, topics, groups, compacted logs to their end, and a leader that is killed."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from raftlog.testing.cluster import Cluster
from tests.clients.members import MemberKind, group_members
from tests.clients.nodes import batches_on_disk, folder, leader_of
from tests.clients.test_group_of_all import kill_coordinator
from tests.clients.with_confluent import Confluent
from tests.interop.led_clients import LedClient, Read, go_writer, led_client, writers
from tests.interop.member_kinds import GO_LIBRARIES, case, go_kind
from tests.interop.transactions import values
from tests.kit.waits import PATIENCE_S, until

pytestmark = pytest.mark.go

every_library = pytest.mark.parametrize("library", GO_LIBRARIES)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_DELETE_RECORDS = {"kafka-go"}
"""The libraries that cannot ask for DeleteRecords."""

NOT_IDEMPOTENT = {"kafka-go", "sarama-1.43"}

COMPACTED = (
    "cleanup.policy=compact",
    "segment.bytes=4000",
    "min.cleanable.dirty.ratio=0.01",
    "delete.retention.ms=100",
)
KEYS, ROUNDS = 5, 40


@every_library
@pytest.mark.taste
def test_records_of_every_codec_are_read_by_their_writer_and_by_librdkafka(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """Offset, key, value and header are what was sent, whichever client reads."""
    client.create_topic(topic, 1, 3)
    for number, codec in enumerate(CODECS):
        with led_client(library, cluster, codec) as led:
            assert led.take("produce", topic, 0, codec, "x" * 500) == [str(number)]
            assert led.read(topic) == [
                Read(offset, each, "x" * 500) for offset, each in enumerate(CODECS[: number + 1])
            ]
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "nobody", "log_level": 0})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = reader.consume(len(CODECS), PATIENCE_S)
    assert [each.key().decode() for each in found] == list(CODECS)
    assert {header for each in found for header in each.headers() or ()} == {
        ("by", library.removesuffix("-1.43").encode())
    }
    reader.close()


@every_library
def test_a_topic_is_made_grown_configured_and_deleted(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """Every other client sees what an admin client changed; what is impossible is refused."""
    with led_client(library, cluster) as led:
        led.take("create", topic, 2, 3, "retention.ms=60000")
        assert client.configs(topic)["retention.ms"].value == "60000"
        assert "failed" in led.attempt("create", topic, 2, 3)
        led.take("set", topic, "retention.ms", 120000)
        until(lambda: led.take("get", topic, "retention.ms") == ["120000"], "the config is changed")
        led.take("grow", topic, 4)
        until(lambda: f"{topic}=4" in led.take("topics"), "there are more partitions")
        assert "failed" in led.attempt("grow", topic, 3)
        led.take("delete", topic)
        until(lambda: f"{topic}=4" not in led.take("topics"), "the topic is gone")


@every_library
def test_offsets_are_found_by_time_and_begin_where_records_were_deleted(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """ListOffsets of the earliest, latest and a moment; DeleteRecords moves the earliest."""
    client.create_topic(topic, 1, 3)
    with led_client(library, cluster) as led:
        for number in range(5):
            led.take("produce", topic, 0, "key", number)
        assert led.take("ends", topic, 0) == ["0", "5"]
        assert led.take("at", topic, 0, 1) == ["0"]
        if library not in NO_DELETE_RECORDS:
            led.take("truncate", topic, 0, 3)
            assert led.take("ends", topic, 0) == ["3", "5"]
            assert [each.offset for each in led.read(topic)] == [3, 4]


@every_library
def test_the_leader_writes_the_largest_timestamp_into_a_batch(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """Sarama 1.43 leaves max_timestamp unset; with what it sends a record would be from 1969, and soon deleted."""
    client.create_topic(topic, 1, 3)
    with led_client(library, cluster) as led:
        led.take("produce", topic, 0, "key", "value")
    (header,) = batches_on_disk(cluster, leader_of(cluster, topic), topic)
    assert header.max_timestamp == header.base_timestamp > 1_700_000_000_000


def is_cleaned(cluster: Cluster, topic: str) -> bool:
    """Whether the leader has cleaned its log: far fewer records than were written are left."""
    found = batches_on_disk(cluster, leader_of(cluster, topic), topic)
    return sum(each.record_count for each in found) < KEYS * ROUNDS / 2


@every_library
def test_a_compacted_topic_is_read_to_its_end_once(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """Over holes and segments that are empty by now: no record comes twice, and each key's newest value is there.

    A segment that held only an empty batch sent kafka-go back to its beginning, over and over.
    """
    with led_client(library, cluster) as led:
        led.take("create", topic, 1, 3, *COMPACTED)
        for number in range(ROUNDS):
            for key in range(KEYS):
                led.take("produce", topic, 0, f"key-{key}", f"{number}-" + "x" * 90)
        until(lambda: is_cleaned(cluster, topic), "the log is cleaned")
        assert len(list(folder(cluster, leader_of(cluster, topic), topic).glob("*.log"))) > 1
        found = led.read(topic)
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets))
    assert {each.key: each.value for each in found} == {
        f"key-{key}": f"{ROUNDS - 1}-" + "x" * 90 for key in range(KEYS)
    }


@every_library
def test_a_group_is_listed_described_and_deleted(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """Its committed offsets equal the offsets of the records that it read; it can be deleted once it is empty."""
    group_id = f"of-{topic}"
    client.create_topic(topic, 2, 3)
    for index in range(2):
        client.produce(topic, [b"%d-%d" % (index, number) for number in range(3 + index)], partition=index)
    with (
        led_client(library, cluster) as led,
        group_members(cluster.bootstrap_servers, topic, group_id, go_kind(library), partitions=2) as group,
    ):
        group.wait_shares([2])
        group.wait_read([b"0-2", b"1-3"])
        assert group_id in led.take("groups")
        assert led.take("state", group_id) == ["Stable"]
        until(lambda: committed(led, group_id, topic) == ["0=3", "1=4"], "both offsets are committed")
        assert "failed" in led.attempt("forget", group_id)
        group.leave(0)
        until(lambda: led.take("state", group_id) == ["Empty"], "the group is empty")
        led.take("forget", group_id)
        assert group_id not in led.take("groups")


def committed(led: LedClient, group: str, topic: str) -> list[str]:
    return led.take("committed", group, topic, 2)


@every_library
def test_acknowledged_records_outlive_a_killed_leader(
    cluster: Cluster, client: Confluent, topic: str, library: str
) -> None:
    """None is lost, and each partition keeps its order; where the producer is idempotent, none is there twice."""
    client.create_topic(topic, 2, 3)
    with writers(go_writer(library, cluster, topic, partitions=2, rate=100)) as (writer,):
        for _ in range(2):
            writer.wait_more(100)
            victim = leader_of(cluster, topic)
            cluster.kill(victim)
            writer.wait_more(100)
            cluster.restart(victim)
            cluster.wait_ready()
        writer.close()
    assert not writer.lost, writer
    found = values(cluster, topic, 2, committed=True)
    assert set(writer.acknowledged) <= set(found)
    if library not in NOT_IDEMPOTENT:
        assert len(found) == len(set(found))
        numbers = [int(each.rpartition("-")[2]) for each in found]
        for remainder in range(2):
            mine = [each for each in numbers if each % 2 == remainder]
            assert mine == sorted(mine)


@pytest.mark.parametrize(
    "kind",
    [
        case(go_kind("kafka-go")),
        case(go_kind("franz-go", "cooperative-sticky")),
        case(go_kind("franz-go", "consumer")),
    ],
)
def test_a_member_takes_over_from_another_that_dies(
    cluster: Cluster, client: Confluent, topic: str, kind: MemberKind
) -> None:
    """In the classic protocol, and in that of KIP-848 with a server-side assignor: every record is read."""
    client.create_topic(topic, 4, 3)
    with group_members(cluster.bootstrap_servers, topic, f"of-{topic}", kind, kind, partitions=4) as group:
        group.wait_shares([2, 2])
        sent = send(client, topic, 0)
        group.wait_read(sent)
        group.kill(0)
        group.wait_shares([4])
        sent |= send(client, topic, 1)
        kill_coordinator(cluster, group.group)
        group.join(kind)
        group.wait_shares([2, 2])
        group.wait_read(sent)


def send(client: Confluent, topic: str, number: int) -> set[bytes]:
    made = {index: [b"%d-%d-%d" % (number, index, each) for each in range(10)] for index in range(4)}
    for index, found in made.items():
        client.produce(topic, found, partition=index)
    return {each for found in made.values() for each in found}
