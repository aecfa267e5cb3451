"""Claims about topics as a person looks at them: short list, grid of replicas, reading from a time, trimming."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Iterator

import pytest

from tests.admin.conftest import KEPT, Api
from tests.kit.waits import PATIENCE_S, until


@pytest.fixture
def topic(api: Api) -> Iterator[str]:
    """A topic of two partitions, three replicas each, with three records in the first."""
    name = f"seen-{uuid.uuid4().hex[:8]}"
    wanted = {"topic_name": name, "partitions_count": 2, "replication_factor": 3, "configs": KEPT}
    assert api.ask("POST", "/topics", wanted).status == 201
    until(
        lambda: Api(f"http://{api.host}:{api.port}").get(f"/v1/topics/{name}/replicas").status == 200,
        "the topic is known",
    )
    for number, at_ms in enumerate((1000, 2000, 3000)):
        record = {"partition_id": 0, "value": {"data": number}, "timestamp": at_ms}
        assert api.ask("POST", f"/topics/{name}/records", record).body["error_code"] == 200
    yield name
    api.ask("DELETE", f"/topics/{name}")


def test_list_has_a_line_for_each_topic(node: Api, topic: str) -> None:
    """With how it stands."""
    lines = {each["topic_name"]: each for each in node.get("/v1/topics").body["data"]}
    assert lines[topic] == {
        "topic_name": topic,
        "is_internal": False,
        "partitions": 2,
        "replication_factor": 3,
        "under_replicated": 0,
        "leaderless": 0,
        "cleanup_policy": "delete",
        "retention_ms": -1,
        "retention_bytes": -1,
    }


def test_topics_are_measured_page_by_page(node: Api, topic: str) -> None:
    """Records, one replica's size and the end offsets; each page names the next until there is none."""
    found, after, pages = {}, "", 0
    while after is not None:
        page = node.get(f"/v1/topic-measures?most=1&after={after}").body
        found |= {each["topic_name"]: each for each in page["data"]}
        after, pages = page["next"], pages + 1
    assert pages >= len(found) >= 1
    mine = found[topic]
    assert (mine["records"], mine["end_offsets"], mine["unknown_partitions"]) == (3, 3, 0)
    assert mine["size_bytes"] > 0
    beyond = node.get("/v1/topic-measures?after=~").body
    assert (beyond["data"], beyond["next"]) == ([], None)
    assert node.get("/v1/topic-measures?most=501").status == 400


def test_grid_shows_where_replicas_are_and_measures_on_request(node: Api, topic: str) -> None:
    """Without `measure` no broker is asked."""
    plain = node.get(f"/v1/topics/{topic}/replicas").body
    assert (plain["partitions"], [each["partition_id"] for each in plain["data"]]) == (2, [0, 1])
    states = sorted(each["state"] for each in plain["data"][0]["replicas"])
    assert states == ["in_sync", "in_sync", "leader"]
    assert plain["data"][0]["next_offset"] is plain["data"][0]["replicas"][0]["size_bytes"] is None
    (row,) = node.get(f"/v1/topics/{topic}/replicas?measure=true&most=1").body["data"]
    assert (row["beginning_offset"], row["next_offset"]) == (0, 3)
    assert all(each["size_bytes"] > 0 for each in row["replicas"])
    (other,) = node.get(f"/v1/topics/{topic}/replicas?first=1").body["data"]
    assert other["partition_id"] == 1
    assert node.get(f"/v1/topics/{topic}/replicas?first=9&measure=true").body["data"] == []
    assert node.get("/v1/topics/no-such/replicas").body["error_code"] == 40403


def test_reading_from_a_time_begins_at_its_first_record(node: Api, topic: str) -> None:
    """Or at the end, if no record is that young."""
    at = f"/v1/topics/{topic}/partitions/0/records?timestamp="
    assert [each["offset"] for each in node.get(f"{at}1500").body["records"]] == [1, 2]
    late = node.get(f"{at}9000").body
    assert (late["records"], late["next_offset"]) == ([], 3)


def test_trimming_deletes_records_below_an_offset(node: Api, topic: str) -> None:
    """-1 deletes all; an offset beyond the end is refused, and so is a topic of the cluster's own."""
    at = f"/v1/topics/{topic}/partitions/0/trim"
    assert node.ask("POST", at, {"before_offset": 2}).body["log_start_offset"] == 2
    assert node.ask("POST", at, {"before_offset": 99}).status == 404
    assert node.get(f"/v1/topics/{topic}/partitions/0/records").body["records"][0]["offset"] == 2
    assert node.ask("POST", at, {"before_offset": -1}).body["log_start_offset"] == 3
    assert (
        node.ask("POST", f"/v1/topics/{topic}/partitions/7/trim", {"before_offset": 0}).body["error_code"]
        == 40403
    )
    assert node.ask("POST", at, {"before_offset": -2}).status == 422


def test_response_has_the_rights_of_the_caller(node: Api) -> None:
    """Everything, where there are no rules; of a topic only when asked."""
    me = node.get("/v1/whoami").body
    assert (me["role"], me["changes"], me["topic"], me["faults_enabled"]) == ("operator", True, None, False)
    assert me["authorizer_enabled"] is False
    assert "ALTER" in me["cluster"]
    assert "DELETE" in node.get("/v1/whoami?topic=orders&group=g").body["topic"]


def test_stream_of_events_reports_changed_metadata(node: Api, api: Api) -> None:
    """On a node that did not decide the change, and no later than the change is seen there."""
    connection = http.client.HTTPConnection(node.host, node.port, timeout=PATIENCE_S)
    name = f"new-{uuid.uuid4().hex[:8]}"
    try:
        connection.request("GET", "/v1/events")
        stream = connection.getresponse()
        seen = next_offset(stream)
        assert api.ask("POST", "/topics", {"topic_name": name}).status == 201
        assert next_offset(stream) > seen
    finally:
        connection.close()
        api.ask("DELETE", f"/topics/{name}")


def next_offset(stream: http.client.HTTPResponse) -> int:
    """Return the metadata offset of the next event."""
    while line := stream.readline():
        if line.startswith(b"data: "):
            return int(json.loads(line.removeprefix(b"data: "))["metadata_offset"])
    raise AssertionError("the stream has ended")


def test_samples_are_returned_from_a_time_on(node: Api) -> None:
    """A node keeps them from its start; the lag comes a few seconds after the first question."""
    until(lambda: any(each["lag"] is not None for each in node.get("/v1/samples").body["samples"]), "a lag")
    found = node.get("/v1/samples").body
    assert found["samples"][-1]["records_out"] >= 0
    assert node.get(f"/v1/samples?after_ms={2**53 - 1}").body["samples"] == []
