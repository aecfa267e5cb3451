"""Claims about reading many partitions at once: from anywhere, each failure by itself, and never too much."""

from __future__ import annotations

import pytest

from raftlog.admin.native import topic_records
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import KEPT, Api
from tests.kit.waits import until

TOPIC = "many-partitions"
COUNT = 6


@pytest.fixture(scope="module")
def topic(cluster: AdminCluster) -> str:
    """A topic of six partitions; partition p has p records, of which number n is of time 1000·n."""
    url = cluster.admin_url(2)
    (found,) = Api(url).get("/v3/clusters").body["data"]
    api = Api(url, f"/v3/clusters/{found['cluster_id']}")
    wanted = {"topic_name": TOPIC, "partitions_count": COUNT, "replication_factor": 1, "configs": KEPT}
    assert api.ask("POST", "/topics", wanted).status == 201
    until(lambda: Api(url).get(f"/v1/topics/{TOPIC}/replicas").status == 200, "the topic is known")
    for partition in range(COUNT):
        for number in range(partition):
            record = {
                "partition_id": partition,
                "timestamp": 1000 * number,
                "value": {"type": "STRING", "data": f"{partition}-{number}"},
            }
            assert api.ask("POST", f"/topics/{TOPIC}/records", record).body["error_code"] == 200
    return TOPIC


def values(node: Api, start: str, more: str = "") -> dict[int, list[str]]:
    answer = node.get(f"/v1/topics/{TOPIC}/records?start={start}{more}")
    assert answer.status == 200, answer.body
    assert (answer.body["failures"], answer.body["left"]) == ([], [])
    return {
        each["partition_id"]: [record["value"]["data"] for record in each["records"]]
        for each in answer.body["data"]
    }


def test_each_partition_is_read_from_where_it_is_wanted(node: Api, topic: str) -> None:
    """From both ends, an offset, a time, or the last few records; the leader answers."""
    start = "0:earliest,1:latest,2:-9,3:-2,4:3,5:@2000"
    assert values(node, start) == {
        0: [],
        1: [],
        2: ["2-0", "2-1"],
        3: ["3-1", "3-2"],
        4: ["4-3"],
        5: ["5-2", "5-3", "5-4"],
    }
    assert values(node, "5:earliest", "&max_records=2") == {5: ["5-0", "5-1"]}
    assert values(node, "5:@9000") == {5: []}


def test_the_next_page_of_records_starts_where_the_last_one_ended(node: Api, topic: str) -> None:
    """`next_offset` is the next start; at the end it stays."""
    (first,) = node.get(f"/v1/topics/{topic}/records?start=5:1&max_records=3").body["data"]
    assert (first["next_offset"], first["high_watermark"]) == (4, 5)
    (rest,) = node.get(f"/v1/topics/{topic}/records?start=5:4").body["data"]
    assert [each["offset"] for each in rest["records"]] == [4]
    (end,) = node.get(f"/v1/topics/{topic}/records?start=5:{rest['next_offset']}").body["data"]
    assert (end["records"], end["next_offset"]) == ([], 5)


def test_a_partition_that_cannot_be_read_hides_no_other(node: Api, topic: str) -> None:
    """A partition that does not exist, and an offset out of range."""
    answer = node.get(f"/v1/topics/{topic}/records?start=5:99,3:earliest,7:latest,9999999999:0").body
    assert [each["partition_id"] for each in answer["data"]] == [3]
    failed = {each["partition_id"]: each["error"] for each in answer["failures"]}
    assert set(failed) == {5, 7, 9999999999}
    assert "5 at offset 99" in failed[5]["message"]


def test_a_topic_that_is_not_there_is_not_found(node: Api) -> None:
    """404, as all paths of topics, and not a failure of each partition."""
    answer = node.get("/v1/topics/missing/records?start=0:latest")
    assert (answer.status, answer.body["error_code"]) == (404, 40403)
    assert "missing" in answer.body["message"]


@pytest.mark.parametrize(
    "start",
    ["", "1", "1:", "1:first", "1:-", "1:--1", "1:1,", "1:1,1:2", ",".join(f"{n}:0" for n in range(51))],
)
def test_a_start_that_is_none_is_refused(node: Api, topic: str, start: str) -> None:
    """With the field's name."""
    answer = node.get(f"/v1/topics/{topic}/records?start={start}")
    assert answer.status == 400
    assert "start" in answer.body["message"]


def test_records_beyond_the_response_size_are_left_for_the_next_request(cluster: AdminCluster) -> None:
    """Records of a megabyte each in many partitions: the response ends, and the next request gets the remaining
    records.
    """
    url = cluster.admin_url(1)
    (found,) = Api(url).get("/v3/clusters").body["data"]
    api, node = Api(url, f"/v3/clusters/{found['cluster_id']}"), Api(url)
    wanted = {"topic_name": "wide", "partitions_count": 20, "replication_factor": 1}
    assert api.ask("POST", "/topics", wanted).status == 201
    until(lambda: node.get("/v1/topics/wide/replicas").status == 200, "the topic is known")
    value = {"type": "STRING", "data": "x" * 1_000_000}
    for partition in range(20):
        record = {"partition_id": partition, "value": value}
        assert api.ask("POST", "/topics/wide/records", record).body["error_code"] == 200
    left, read, turns = list(range(20)), [], 0
    while left:
        start = ",".join(f"{each}:earliest" for each in left)
        answer = node.get(f"/v1/topics/wide/records?start={start}").body
        size = sum(len(record["value"]["data"]) for each in answer["data"] for record in each["records"])
        assert 0 < size <= topic_records.MAX_SHOWN_BYTES + 1_000_000
        read += [each["partition_id"] for each in answer["data"]]
        left, turns = answer["left"], turns + 1
    assert sorted(read) == list(range(20))
    assert turns > 1
    assert api.ask("DELETE", "/topics/wide").status == 204
