"""Claims about scans of topics: they find every record that matches, say how far they are, and end with a reason."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import time
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raftlog.admin.limits import Limits
from raftlog.cli.target import Target
from raftlog.client.fetching import Fetcher, Options
from raftlog.client.producer import ALL
from raftlog.client.producer import Producer as KafkaProducer
from raftlog.records.batch import name_bytes, new_record
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import KEPT, Api
from tests.kit.waits import PATIENCE_S, until

_numbers = itertools.count(1)
PARTITIONS = 3


class Topic:
    """A topic with three partitions."""

    def __init__(self, cluster: AdminCluster) -> None:
        self.name = f"scanned-{next(_numbers)}"
        self.node = Api(cluster.admin_url(2))
        (found,) = self.node.get("/v3/clusters").body["data"]
        self.api = Api(cluster.admin_url(2), f"/v3/clusters/{found['cluster_id']}")
        wanted = {"topic_name": self.name, "partitions_count": PARTITIONS, "replication_factor": 1}
        assert self.api.ask("POST", "/topics", {**wanted, "configs": KEPT}).status == 201
        until(lambda: self.node.get(f"/v1/topics/{self.name}/replicas").status == 200, "the topic is known")

    def write(self, value: str, partition: int = 0, **more: Any) -> None:
        record = {"partition_id": partition, "value": {"type": "STRING", "data": value}, **more}
        assert self.api.ask("POST", f"/topics/{self.name}/records", record).body["error_code"] == 200

    def scan(self, **query: Any) -> list[dict[str, Any]]:
        answer = self.node.get(f"/v1/topics/{self.name}/records/scan?{urlencode(query)}")
        assert answer.status == 200, answer.body
        lines: list[dict[str, Any]] = answer.body if isinstance(answer.body, list) else [answer.body]
        assert lines[-1]["event"] == "end"
        return lines

    def found(self, **query: Any) -> list[str]:
        lines = self.scan(**query)
        return [each["value"]["data"] for each in lines if each["event"] == "record"]


@pytest.fixture
def topic(cluster: AdminCluster) -> Topic:
    return Topic(cluster)


def test_search_finds_texts_in_keys_values_and_headers(topic: Topic) -> None:
    """In either case, in all partitions; all given texts must be there."""
    header = {"name": "trace", "value": base64.b64encode(b"Abc").decode()}
    topic.write("first", 0, key={"type": "STRING", "data": "order-1"})
    topic.write("second", 1, headers=[header])
    topic.write("Third order", 2)
    assert topic.found(key="ORDER") == ["first"]
    assert topic.found(value="ORDER") == ["Third order"]
    assert topic.found(header="trace=abc") == ["second"]
    assert topic.found(text="order") == ["first", "Third order"]
    assert topic.found(text="order", value="third") == ["Third order"]
    assert topic.found(text="order", value="nothing") == []
    assert topic.found() == ["first", "second", "Third order"]


def test_range_of_a_scan_is_by_offset_time_or_count(topic: Topic) -> None:
    """Of each partition, or of one; the end is not among them."""
    for number in range(5):
        topic.write(f"a{number}", 0, timestamp=1000 * number)
        topic.write(f"b{number}", 1, timestamp=1000 * number)
    assert topic.found(start=3) == ["a3", "a4", "b3", "b4"]
    assert topic.found(start="@3000", end="@4000") == ["a3", "b3"]
    assert topic.found(start="-1") == ["a4", "b4"]
    assert topic.found(start=1, end=2, partition=1) == ["b1"]
    assert topic.found(start="latest") == []
    assert topic.found(start="@99000") == []
    assert topic.found(start=90, end=95) == []


def test_scan_that_meets_its_limit_says_where_to_resume(topic: Topic) -> None:
    """The rest follows without a gap and without a record twice."""
    for number in range(7):
        topic.write(f"v{number}", number % 2)
    found, resume, ends = [], "", []
    for _ in range(10):
        lines = topic.scan(max_records=3, **({"resume": resume} if resume else {}))
        found += [each["value"]["data"] for each in lines if each["event"] == "record"]
        ends.append(lines[-1])
        resume = lines[-1]["resume"]
        if lines[-1]["is_complete"]:
            break
    assert found == ["v0", "v2", "v4", "v6", "v1", "v3", "v5"]
    assert [(each["records"], each["is_complete"]) for each in ends] == [(3, False), (3, False), (1, True)]
    assert (ends[0]["total"], ends[-1]["passed"] == ends[-1]["total"], resume) == (7, True, "")


def test_scan_says_how_far_it_is(topic: Topic) -> None:
    """Offsets passed, of all; also where nothing matches."""
    for number in range(10):
        topic.write("x", number % PARTITIONS)
    *rest, end = topic.scan(value="nothing like it")
    assert {each["event"] for each in rest} == {"progress"}
    assert rest[0]["total"] == 10 and 0 < rest[0]["passed"] <= 10
    assert end == {
        "event": "end",
        "records": 0,
        "passed": 10,
        "total": 10,
        "is_complete": True,
        "resume": "",
        "error": None,
    }


def test_records_that_were_deleted_meanwhile_are_skipped_with_a_reason(topic: Topic) -> None:
    """A scan that is resumed below the first offset says which offsets it did not see."""
    for number in range(3):
        topic.write(f"v{number}")
    trim = topic.node.ask("POST", f"/v1/topics/{topic.name}/partitions/0/trim", {"before_offset": 2})
    assert trim.status == 200
    lines = topic.scan(resume="0:0")
    skipped = next(each for each in lines if each["event"] == "skipped")
    assert (skipped["offset"], skipped["end_offset"], "deleted" in skipped["reason"]) == (0, 2, True)
    assert [each["value"]["data"] for each in lines if each["event"] == "record"] == ["v2"]


def test_mistakes_are_refused_before_the_stream_begins(topic: Topic) -> None:
    """A status, and no half of a stream."""
    at = f"/v1/topics/{topic.name}/records/scan"
    assert topic.node.get(f"{at}?partition=3").status == 404
    assert topic.node.get(f"{at}?start=x").status == 400
    assert topic.node.get(f"{at}?key={'x' * 201}").status == 400
    assert topic.node.get("/v1/topics/nothing/records/scan").status == 404
    at_end = "latest%0A"  # Python's $ matches before a newline, too
    for where in (f"start={at_end}", f"end={at_end}", "resume=0:0%0A", "start=-1%0A"):
        assert topic.node.get(f"{at}?{where}").status == 400, where
    assert topic.node.get(f"/v1/topics/{topic.name}/partitions/0/records?offset={at_end}").status == 400
    assert topic.node.get(f"/v1/topics/{topic.name}/records?start=0:{at_end}").status == 400


def test_pages_of_other_sites_start_no_scan(topic: Topic) -> None:
    """An image or a fetch without CORS sends a GET; nine of them would end the operator's own search."""
    topic.write("v")
    scan, content = (
        f"/v1/topics/{topic.name}/records/scan",
        f"/v1/topics/{topic.name}/partitions/0/content?offset=0",
    )
    connection = http.client.HTTPConnection(topic.node.host, topic.node.port, timeout=PATIENCE_S)
    for at in (scan, content):
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            connection.request("GET", at, headers={"Sec-Fetch-Site": site})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status, (at, site)
    connection.close()


def test_oldest_scan_of_a_caller_gives_way(topic: Topic) -> None:
    """A client that reads no further keeps its place only until eight newer scans have come."""
    for _ in range(12):
        topic.write("x" * 900_000)
    waiting = []
    for _ in range(Limits().scans + 1):
        connection = http.client.HTTPConnection(topic.node.host, topic.node.port, timeout=PATIENCE_S)
        connection.request("GET", f"/v1/topics/{topic.name}/records/scan")
        waiting.append((connection, connection.getresponse()))
    ends = [json.loads(response.read().splitlines()[-1]) for _, response in waiting]
    for connection, _ in waiting:
        connection.close()
    assert ends[0]["error"]["error_code"] == 429
    assert [each["is_complete"] for each in ends] == [False] + [True] * Limits().scans


def test_content_of_a_record_is_a_file(topic: Topic) -> None:
    """Its bytes exactly, under a name, and never as a page."""
    topic.write("<script>", key={"type": "BINARY", "data": base64.b64encode(b"\xff\x00").decode()})
    connection = http.client.HTTPConnection(topic.node.host, topic.node.port, timeout=PATIENCE_S)
    at = f"/v1/topics/{topic.name}/partitions/0/content?offset=0"
    got = []
    for part in ("key", "value"):
        connection.request("GET", f"{at}&part={part}")
        answer = connection.getresponse()
        got.append(answer.read())
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{topic.name}-0-0.{part}"'
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    connection.close()
    assert got == [b"\xff\x00", b"<script>"]
    assert topic.node.get(at.replace("offset=0", "offset=1")).status == 404
    assert topic.node.get(at.replace("partitions/0", "partitions/9")).status == 404


def test_record_is_sent_again_with_its_key_and_headers(topic: Topic, cluster: AdminCluster) -> None:
    """To its own topic and to another; the timestamp is that of now."""
    header = {"name": "trace", "value": base64.b64encode(b"\xfe").decode()}
    key = {"type": "STRING", "data": "k"}
    topic.write("v", 1, key=key, headers=[header], timestamp=5)
    other = Topic(cluster)
    at = f"/v1/topics/{topic.name}/partitions/1/resend"
    sent = topic.node.ask("POST", at, {"offset": 0, "topic_name": other.name, "partition_id": 2})
    assert (sent.status, sent.body["partition_id"], sent.body["offset"]) == (200, 2, 0)
    again = topic.node.ask("POST", at, {"offset": 0, "topic_name": topic.name})
    assert again.status == 200
    (copy,) = [each for each in other.scan() if each["event"] == "record"]
    assert (copy["key"]["data"], copy["value"]["data"], copy["headers"][0]["value"]["data"]) == (
        "k",
        "v",
        "/g==",
    )
    assert copy["timestamp"] > 1_000_000
    assert len(topic.found(key="k")) == 2
    for body, status in (
        ({"offset": 9, "topic_name": other.name}, 404),
        ({"offset": 0, "topic_name": "nothing"}, 404),
        ({"offset": 0, "topic_name": other.name, "partition_id": 3}, 400),
    ):
        assert topic.node.ask("POST", at, body).status == status


HOSTILE_NAMES = (b"\xff\xfe", b"a\0b", b"", "é".encode(), b"\xc3", b"\xed\xb3\xbf")
"""Names of headers that are not UTF-8, end in the middle of a character, or would end a string of C."""


def test_names_of_headers_keep_their_bytes(topic: Topic, cluster: AdminCluster) -> None:
    """In a copy, and in a download that is written again by HTTP. The page shows what Java clients read."""
    wanted = [(name, b"\xff\0") for name in HOSTILE_NAMES]
    target = Target(cluster.bootstrap_servers)
    producer = KafkaProducer(target.cluster, topic.name, acks=ALL, codec=0, idempotent=True)
    headers = tuple((name.decode(errors="surrogateescape"), value) for name, value in wanted)
    producer.send(new_record(b"k", b"v", timestamp=5, headers=headers), 0)
    producer.flush()
    producer.close()
    assert not producer.failures
    body = {"offset": 0, "topic_name": topic.name, "partition_id": 1}
    assert topic.node.ask("POST", f"/v1/topics/{topic.name}/partitions/0/resend", body).status == 200
    (read, _) = [each for each in topic.scan() if each["event"] == "record"]
    assert [each["name"] for each in read["headers"]] == [
        name.decode(errors="replace") for name in HOSTILE_NAMES
    ]
    again = [
        {
            "name": each["name"],
            "value": base64.b64encode(b"\xff\0").decode(),
            "name_data": each.get("name_data", ""),
        }
        for each in read["headers"]
    ]
    topic.write("v", 2, headers=again)
    fetcher = Fetcher(target.cluster, Options())
    fetcher.assign({(topic.name, partition): 0 for partition in range(3)})
    found: dict[int, Any] = {}
    while len(found) < 3:
        for each in fetcher.poll(PATIENCE_S):
            for _, record in each.records:
                found[each.at[1]] = [(name_bytes(name), value) for name, value in record.headers]
    fetcher.close()
    target.close()
    assert found == dict.fromkeys(range(3), wanted)


def test_bytes_of_a_name_must_be_base64(topic: Topic) -> None:
    """A record with a header that cannot be meant is not written."""
    record = {"partition_id": 0, "value": {"type": "STRING", "data": "v"}}
    bad = {"name": "a", "value": None, "name_data": "%"}
    answer = topic.api.ask("POST", f"/topics/{topic.name}/records", {**record, "headers": [bad]})
    assert "name_data of header a" in json.dumps(answer.body)


HEADERS = [("a", b"1"), ("b", b""), ("a", b"2"), ("b", None), ("c", b"\xff\x00\xfe"), ("", b"x"), ("a", b"1")]
"""Two names several times, an empty value, a null, bytes that are no UTF-8, an empty name."""


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_copy_of_a_record_differs_in_its_timestamp_alone(
    topic: Topic, cluster: AdminCluster, codec: str
) -> None:
    """Headers keep their order, null and empty stay apart; a consumer reads the time at which the copy was written."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    records = [(b"k", b"v", HEADERS), (None, b"\xff", HEADERS), (b"", None, HEADERS), (b"\xff", b"", [])]
    producer = Producer({**servers, "linger.ms": 100, "compression.codec": codec})
    for key, value, headers in records:
        producer.produce(topic.name, value, key, partition=0, headers=headers, timestamp=5)
    assert producer.flush(PATIENCE_S) == 0
    began_ms = int(time.time() * 1000)
    for offset in range(len(records)):
        body = {"offset": offset, "topic_name": topic.name, "partition_id": 1}
        sent = topic.node.ask("POST", f"/v1/topics/{topic.name}/partitions/0/resend", body)
        assert (sent.status, sent.body["offset"]) == (200, offset)
    consumer = Consumer({**servers, "group.id": "copies"})
    consumer.assign([TopicPartition(topic.name, 1, 0)])
    try:
        copies = consumer.consume(len(records), timeout=PATIENCE_S)
    finally:
        consumer.close()
    assert [(each.key(), each.value(), each.headers() or []) for each in copies] == records
    assert all(began_ms <= each.timestamp()[1] <= time.time() * 1000 for each in copies)
