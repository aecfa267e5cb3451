"""Reading from the leader gives what librdkafka gives; what is unusual is left to librdkafka, at the right offset."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from raftlog.base.errors import FencedLeaderEpoch
from raftlog.pipeline.offsets import Range, TopicPartition
from raftlog.pipeline.options import ReadOptions, read_options
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.testing.cluster import Cluster
from tests.client.scripted_broker import ScriptedBroker
from tests.kit.waits import PATIENCE_S
from tests.pipeline.topics import Topics

if TYPE_CHECKING:
    from raftlog.pipeline.leader_fetch import LeaderReading

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _arrow() -> None:
    pytest.importorskip("pyarrow", reason="pip install raftlog[spark]")


def options(servers: str, topic: str, **more: str) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": servers, "subscribe": topic, **more}, "batch")


def leader_reading(wanted: Range, chosen: ReadOptions) -> LeaderReading:
    from raftlog.pipeline.columns import arrow_schema
    from raftlog.pipeline.leader_fetch import LeaderReading

    return LeaderReading(chosen.client, wanted, arrow_schema(include_headers=False))


def rows(batches: Iterator[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_leader_gives_what_librdkafka_gives(topics: Topics, topic: str, isolation: str):
    """Transactions of both endings, all codecs, several fetches, and ranges that cut batches."""
    from raftlog.pipeline.fetch import read_by_consumer

    topics.make(topic)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": topics.servers, "compression.type": codec, "transactional.id": topic}
        )
        producer.init_transactions(PATIENCE_S)
        for commit in (True, False, True):
            producer.begin_transaction()
            for number in range(50):
                producer.produce(topic, b"%d" % number * 100, key=None if number % 7 else b"k", partition=0)
            assert producer.flush(PATIENCE_S) == 0  # an abort would drop what was not sent
            (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
    end = topics.held(topic)
    chosen = options(topics.servers, topic, **{"kafka.isolation.level": isolation})
    for wanted in (Range(TopicPartition(topic, 0), 0, end), Range(TopicPartition(topic, 0), 77, end - 60)):
        reading = leader_reading(wanted, chosen)
        found = rows(reading.batches())
        assert reading.position >= wanted.end, "librdkafka would have had to go on"
        assert found == rows(read_by_consumer(chosen, wanted, wanted.start))
        whole = wanted.start == 0
        assert not whole or len(found) == 5 * 50 * (2 if isolation == "read_committed" else 3)


def test_a_range_of_many_fetches_is_read_once(topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch):
    """Each fetch begins behind the previous fetch. The last asks for about the rest, and none beyond it: the leader
    would wait for more.
    """
    from raftlog.pipeline import leader_fetch

    asked: list[tuple[int, int]] = []
    ask = leader_fetch.Leader.ask

    def noted(leader: leader_fetch.Leader, at: TopicPartition, offset: int, **more: Any) -> None:
        asked.append((offset, more["max_bytes"]))
        ask(leader, at, offset, **more)

    monkeypatch.setattr(leader_fetch.Leader, "ask", noted)
    monkeypatch.setattr(leader_fetch, "FETCH_BYTES", 2_000)
    monkeypatch.setattr(leader_fetch, "MIN_FETCH_BYTES", 1_000)
    monkeypatch.setattr(leader_fetch, "ARROW_BYTES", 3_000)
    topics.make(topic)
    for number in range(30):
        topics.fill(topic, [b"%d" % number * 40] * 20)
    wanted = Range(TopicPartition(topic, 0), 5, topics.held(topic))
    reading = leader_reading(wanted, options(topics.servers, topic))
    assert [row["offset"] for row in rows(reading.batches())] == list(range(5, 600))
    assert reading.position == 600
    offsets = [offset for offset, _ in asked]
    assert offsets == sorted(set(offsets)) and offsets[0] == 5 and offsets[-1] < 600
    assert asked[0][1] == 2_000 and asked[-1][1] < 2_000, "the last fetch asked for more than what was left"


def test_a_leader_that_is_gone_is_left_to_librdkafka(java: None, topic: str):
    """The connection that an earlier task kept leads to a killed node; no record is lost or read twice."""
    from raftlog.pipeline.fetch import read_range

    with Cluster(3) as cluster:
        topics = Topics(cluster.bootstrap_servers)
        topics.make(topic)
        topics.fill(topic, [b"x"] * 100)
        chosen, at = options(topics.servers, topic), TopicPartition(topic, 0)
        assert len(rows(read_range(chosen, Range(at, 0, 50)))) == 50
        cluster.kill_leader(topic)
        found = rows(read_range(chosen, Range(at, 50, 100)))
    assert [row["offset"] for row in found] == list(range(50, 100))


@contextmanager
def node_that_answers(answer: bytes) -> Iterator[str]:
    """Listen on loopback, send these bytes to any client that asks, then hang up."""

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(1_000)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x7f\xff\xff\xff\0\0\0\1",
        b"\0\0\0\4\0\0\0\1",
        b"\0\0\0\x0c\0\0\0\1\0\0\0\0\x7f\xff\xff\xff",
        b"\0\0\0\x1e\0\0\0\1" + b"\xff" * 26,
    ],
)
def test_a_stranger_at_the_address_is_left_to_librdkafka(answer: bytes):
    """No byte is read, no error is raised, and no memory is taken for the size that it claims to send."""
    with node_that_answers(answer) as server:
        reading = leader_reading(Range(TopicPartition("t", 0), 3, 9), options(server, "t"))
        assert list(reading.batches()) == []
    assert reading.position == 3


def test_a_server_that_hangs_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch):
    """It accepts connections and says nothing. The next range begins with the server that answered."""
    from raftlog.pipeline import leader_fetch

    monkeypatch.setattr(leader_fetch, "TIMEOUT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as hangs,
        ScriptedBroker(lambda *_: None, topics={"t": 1}) as broker,
    ):
        servers = f"127.0.0.1:{hangs.getsockname()[1]},{broker.host}:{broker.port}"
        leader_fetch.find_leader(servers, TopicPartition("t", 0)).close()
        monkeypatch.setattr(leader_fetch, "TIMEOUT_S", PATIENCE_S)
        leader_fetch.find_leader(servers, TopicPartition("t", 0)).close()


def test_a_leader_is_asked_in_its_epoch_and_left_to_librdkafka_if_that_ended():
    """A deposed leader serves consumers as a follower, and its records may be old."""
    epochs: list[int] = []

    def refuse(_key: int, version: int, request: Any) -> Any:
        (asked,) = request.topics[0].partitions
        epochs.append(asked.current_leader_epoch)
        make = response_builders(ApiKey.FETCH, version)
        part = make.PartitionData(partition_index=0, error_code=FencedLeaderEpoch.code)
        return make.FetchResponse(responses=(make.FetchableTopicResponse(topic="t", partitions=(part,)),))

    with ScriptedBroker(refuse, topics={"t": 1}) as broker:
        chosen = options(f"{broker.host}:{broker.port}", "t")
        for epoch in (3, 4):
            broker.leader_epoch = epoch
            reading = leader_reading(Range(TopicPartition("t", 0), 3, 9), chosen)
            assert (list(reading.batches()), reading.position) == ([], 3)
    assert epochs == [3, 4]


@pytest.mark.parametrize("servers", ["127.0.0.1:99999", "127.0.0.1", "no\0host:1", "[::1:1,:"])
def test_an_address_that_is_none_is_left_to_librdkafka(servers: str):
    """It has words for that."""
    reading = leader_reading(Range(TopicPartition("t", 0), 3, 9), options(servers, "t"))
    assert list(reading.batches()) == []
    assert reading.position == 3


def test_settings_that_only_librdkafka_knows_choose_it():
    """A query that wants TLS, a login, checksums or a setting of librdkafka's gets that."""
    from raftlog.pipeline.leader_fetch import can_read

    plain = {"bootstrap.servers": "a:1"}
    assert can_read(plain)
    assert can_read({**plain, "isolation.level": "read_uncommitted", "security.protocol": "PLAINTEXT"})
    for name, setting in (
        ("security.protocol", "ssl"),
        ("isolation.level", "dirty"),
        ("check.crcs", "true"),
        ("sasl.username", "me"),
        ("fetch.wait.max.ms", "1"),
    ):
        assert not can_read({**plain, name: setting}), name
