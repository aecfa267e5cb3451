"""Claims about the REST v3 resources, asked at a node of a real cluster of three."""

from __future__ import annotations

import base64
import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raftlog.admin.kafka_rest.groups import read_assignment
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.progress import patient
from tests.admin.conftest import Api
from tests.kit.waits import until


def create(api: Api, name: str, **more: Any) -> None:
    assert api.ask("POST", "/topics", {"topic_name": name, **more}).status == 201


def create_once(api: Api, name: str) -> None:
    api.ask("POST", "/topics", {"topic_name": name, "partitions_count": 1})


def test_topic_is_created_grown_and_deleted(api: Api) -> None:
    """The life of a topic; each answer shows what a Kafka user knows of it."""
    create(api, "life", partitions_count=2, replication_factor=3)
    topic = api.get("/topics/life").body
    assert (topic["kind"], topic["partitions_count"], topic["replication_factor"]) == ("KafkaTopic", 2, 3)
    assert api.ask("PATCH", "/topics/life", {"partitions_count": 5}).body["partitions_count"] == 5
    assert len(api.get("/topics/life/partitions").body["data"]) == 5
    assert api.ask("PATCH", "/topics/life", {"partitions_count": 1}).status == 409
    assert api.ask("POST", "/topics", {"topic_name": "life"}).status == 409, "it exists"
    assert api.ask("DELETE", "/topics/life").status == 204
    assert api.get("/topics/life").body["error_code"] == 40403


def test_what_the_cluster_keeps_itself_is_not_deleted_over_http(api: Api) -> None:
    """All groups would be lost with __consumer_offsets; Kafka's own clients may all the same."""
    found = lambda: api.get("/topics/__consumer_offsets").status == 200  # noqa: E731
    api.get("/consumer-groups/nobody")  # a request for a coordinator creates the topic
    until(found, "it is found")
    refused = api.ask("DELETE", "/topics/__consumer_offsets")
    assert (refused.status, refused.body["error_code"]) == (409, 409)
    assert "an internal topic" in refused.body["message"] and found()


def test_topic_is_only_validated_when_that_is_asked(api: Api) -> None:
    """200 instead of 201, and no topic is created."""
    assert api.ask("POST", "/topics", {"topic_name": "draft", "validate_only": True}).status == 200
    assert api.get("/topics/draft").status == 404


@pytest.mark.parametrize(
    "wanted",
    [
        {"topic_name": "a/b"},
        {"topic_name": "wide", "replication_factor": 7},
        {"topic_name": "odd", "configs": [{"name": "retention.ms", "value": "long"}]},
        {
            "topic_name": "both",
            "partitions_count": 1,
            "replicas_assignments": [{"partition_id": 0, "broker_ids": [1]}],
        },
    ],
)
def test_what_the_cluster_refuses_is_40002_with_its_reason(api: Api, wanted: Any) -> None:
    """The broker's own words reach the caller."""
    answer = api.ask("POST", "/topics", wanted)
    assert (answer.status, answer.body["error_code"]) == (400, 40002)
    assert len(answer.body["message"]) > 10


def test_replicas_are_where_they_were_assigned(api: Api) -> None:
    """replicas_assignments decides; the first of them leads."""
    create(api, "placed", replicas_assignments=[{"partition_id": 0, "broker_ids": [3, 1]}])
    replicas = api.get("/topics/placed/partitions/0/replicas").body["data"]
    assert [(each["broker_id"], each["is_leader"], each["is_in_sync"]) for each in replicas] == [
        (3, True, True),
        (1, False, True),
    ]
    assert api.get("/topics/placed/partitions/0/replicas/2").status == 404
    assert api.get("/topics/placed/partitions/1").body["error_code"] == 40403


def test_list_comes_in_pages(api: Api) -> None:
    """`next` leads on until it is null."""
    create(api, "paged", partitions_count=5)
    found, path = [], "/topics/paged/partitions?page_size=2"
    for _ in range(3):
        page = api.get(path).body
        found += [each["partition_id"] for each in page["data"]]
        path = (page["metadata"]["next"] or "").partition(api.at)[2]
    assert (found, path) == ([0, 1, 2, 3, 4], "")


def test_configs_of_a_topic_are_shown_and_changed(api: Api) -> None:
    """PUT, DELETE and :alter; a refused change has no effect."""
    create(api, "tuned")
    at = "/topics/tuned/configs"
    assert api.ask("PUT", f"{at}/retention.ms", {"value": "60000"}).status == 204
    shown = api.get(f"{at}/retention.ms").body
    assert (shown["value"], shown["source"], shown["is_default"]) == ("60000", "DYNAMIC_TOPIC_CONFIG", False)
    changes = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "segment.bytes", "value": "many"}]
    assert api.ask("POST", f"{at}:alter", {"data": changes}).body["error_code"] == 40002
    assert api.get(f"{at}/retention.ms").body["value"] == "60000"
    assert "retention.ms" in {each["name"] for each in api.get("/topics/-/configs").body["data"]}
    assert api.ask("DELETE", f"{at}/retention.ms").status == 204
    assert api.get(f"{at}/retention.ms").body["is_default"]
    assert api.get(f"{at}/nothing").status == 404
    assert api.ask("PUT", f"{at}/nothing", {"value": "1"}).status == 404
    assert api.ask("DELETE", f"{at}/nothing").status == 404


def test_configs_of_a_group_are_shown_and_changed(api: Api) -> None:
    """Even before the group exists. Bounds and configs of other kinds are refused without effect."""
    at = "/consumer-groups/to-come/configs"
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert api.ask("PUT", f"{at}/{session}", {"value": "50000"}).status == 204
    shown = api.get(f"{at}/{session}").body
    assert (shown["value"], shown["source"], shown["consumer_group_id"]) == (
        "50000",
        "DYNAMIC_GROUP_CONFIG",
        "to-come",
    )
    changes = [{"name": session, "operation": "DELETE"}, {"name": "retention.ms", "value": "1"}]
    assert api.ask("POST", f"{at}:alter", {"data": changes}).body["error_code"] == 40002
    assert api.ask("PUT", f"{at}/{heartbeat}", {"value": "1"}).body["error_code"] == 40002
    found = api.get(at).body
    assert found["kind"] == "KafkaConsumerGroupConfigList"
    values = {each["name"]: each["value"] for each in found["data"]}
    assert (values[session], values[heartbeat], values["share.auto.offset.reset"]) == (
        "50000",
        "5000",
        "latest",
    )
    changes = [{"name": session, "operation": "DELETE"}, {"name": heartbeat, "value": "6000"}]
    assert api.ask("POST", f"{at}:alter", {"data": changes, "validate_only": True}).status == 204
    assert api.get(f"{at}/{heartbeat}").body["is_default"]
    assert api.ask("DELETE", f"{at}/{session}").status == 204
    assert api.get(f"{at}/{session}").body["is_default"]
    assert api.get(f"{at}/nothing").status == 404
    assert api.ask("PUT", f"{at}/nothing", {"value": "1"}).status == 404
    assert api.ask("DELETE", f"{at}/nothing").status == 404


def test_brokers_their_configs_and_their_replicas(api: Api) -> None:
    """Any node answers for every broker; secrets are not shown."""
    create(api, "everywhere", partitions_count=1, replication_factor=3)
    brokers = api.get("/brokers").body["data"]
    assert [(each["broker_id"], each["is_fenced"]) for each in brokers] == [
        (1, False),
        (2, False),
        (3, False),
    ]
    assert api.get("/brokers/1/configs/node.id").body["value"] == "1"
    secret = api.get("/brokers/3/configs/raftlog.cluster.secret").body
    assert (secret["value"], secret["is_sensitive"]) == (None, True)
    held = api.get("/brokers/3/partition-replicas").body["data"]
    assert "everywhere" in {each["topic_name"] for each in held}
    assert api.get("/brokers/9").status == 404
    assert api.get("/brokers/x").status == 404


def test_what_topics_set_comes_in_pages_across_topics(api: Api) -> None:
    """One request to a broker for a page, however many topics; the order is that of the names."""
    for name in ("set-a", "set-b"):
        configs = [{"name": each, "value": "600000"} for each in ("retention.ms", "segment.ms")]
        create(api, name, partitions_count=1, configs=configs)
    found, path = [], "/topics/-/configs?page_size=3"
    while path:
        page = api.get(path).body
        assert len(page["data"]) <= 3
        found += [(each["topic_name"], each["name"], each["value"]) for each in page["data"]]
        path = (page["metadata"]["next"] or "").partition(api.at)[2]
    assert found == sorted(found)
    assert [each for each in found if each[0].startswith("set-")] == [
        (topic, name, "600000") for topic in ("set-a", "set-b") for name in ("retention.ms", "segment.ms")
    ]


def test_default_of_all_brokers_is_set_and_reset(api: Api) -> None:
    """The dynamic default, which survives restarts, as KIP-226 has it."""
    at = "/broker-configs/log.retention.ms"
    assert api.ask("PUT", at, {"value": "600000"}).status == 204
    assert (api.get(at).body["value"], api.get(at).body["kind"]) == ("600000", "KafkaClusterConfig")
    assert api.get("/broker-configs").body["kind"] == "KafkaClusterConfigList"
    assert api.ask("DELETE", at).status == 204
    assert api.get(at).status == 404


def test_records_are_written_in_order_and_read_back(api: Api, node: Api) -> None:
    """A stream of JSON in, a report for each out; keys decide the partition as in the Java client."""
    create(api, "stream", partitions_count=1)
    records = [
        {"key": {"type": "STRING", "data": f"k{n}"}, "value": {"type": "JSON", "data": {"n": n}}}
        for n in range(3)
    ]
    records.append({"value": {"type": "BINARY", "data": base64.b64encode(b"\xff").decode()}})
    body = "\n".join(map(json.dumps, records)).encode()
    reports = api.ask("POST", "/topics/stream/records", body).body
    assert [(each["error_code"], each["offset"]) for each in reports] == [
        (200, 0),
        (200, 1),
        (200, 2),
        (200, 3),
    ]
    read = node.get("/v1/topics/stream/partitions/0/records?offset=1").body
    assert [each["value"]["data"] for each in read["records"]] == ['{"n":1}', '{"n":2}', "/w=="]
    assert (read["next_offset"], read["high_watermark"]) == (4, 4)
    offsets = api.get("/topics/stream/partitions/0/offset").body
    assert (offsets["beginning_offset"], offsets["next_offset"]) == (0, 4)
    assert node.get("/v1/topics/stream/partitions/0/records?offset=99").status == 404


def test_each_record_of_a_stream_fails_alone(api: Api) -> None:
    """An invalid record gets an error report in its place; invalid JSON ends the stream."""
    create(api, "mixed", partitions_count=1)
    body = b'{"value":{"type":"BINARY","data":"!"}} {"partition_id":9} {"valu":1} {"value":{"data":1}} 7 {}'
    reports = api.ask("POST", "/topics/mixed/records", body).body
    assert [each["error_code"] for each in reports] == [422, 40403, 422, 200, 400]
    assert api.get("/topics/mixed/partitions/0/offset").body["next_offset"] == 1


def test_a_timestamp_is_a_text_or_milliseconds(api: Api, node: Api) -> None:
    """ISO 8601 with an offset, as in Confluent's REST Proxy. A time without an offset, or before 1970, fails alone."""
    create(api, "timed", partitions_count=1)
    times = [
        "2026-01-01T00:00:00.123Z",
        "2026-01-01T01:00:00+01:00",
        1767225600000,
        "2026-01-01T00:00:00",
        "1969-12-31T23:59:59Z",
        "yesterday",
    ]
    body = "\n".join(json.dumps({"timestamp": each}) for each in times).encode()
    reports = api.ask("POST", "/topics/timed/records", body).body
    assert [each["error_code"] for each in reports] == [200, 200, 200, 422, 422, 422]
    assert all("timestamp" in each["message"] for each in reports[3:])
    read = node.get("/v1/topics/timed/partitions/0/records?offset=0").body
    assert [each["timestamp"] for each in read["records"]] == [1767225600123, 1767225600000, 1767225600000]


def test_batch_reports_by_id_what_was_written(api: Api) -> None:
    """207, with successes and failures."""
    create(api, "batch", partitions_count=1)
    entries = [{"id": "a", "value": {"data": 1}}, {"id": "b", "partition_id": 5}]
    answer = api.ask("POST", "/topics/batch/records:batch", {"entries": entries})
    assert answer.status == 207
    assert [each["id"] for each in answer.body["successes"]] == ["a"]
    assert [each["id"] for each in answer.body["failures"]] == ["b"]


@pytest.mark.clients
def test_a_group_shows_its_member_and_its_lag(api: Api, cluster: AdminCluster) -> None:
    """A stock consumer seen through the API: what it reads, and how far it is behind."""
    from confluent_kafka import Consumer

    create(api, "read", partitions_count=1)
    everywhere = [Api(cluster.admin_url(each), api.at) for each in cluster.nodes]
    cluster.wait_until(
        lambda: all(each.get("/topics/read").status == 200 for each in everywhere),
        "every node knows the topic",
    )
    entries = [{"id": str(n), "value": {"data": n}} for n in range(5)]
    api.ask("POST", "/topics/read/records:batch", {"entries": entries})
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers", "client.id": "one"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe(["read"])
        message = next(
            each for _ in range(100) if (each := consumer.poll(0.3)) is not None and not each.error()
        )
        consumer.commit(message=message, asynchronous=False)
        (lag,) = api.get("/consumer-groups/readers/lags").body["data"]
        assert (lag["current_offset"], lag["log_end_offset"], lag["lag"], lag["client_id"]) == (
            1,
            5,
            4,
            "one",
        )
        summary = api.get("/consumer-groups/readers/lag-summary").body
        assert (summary["total_lag"], summary["unknown_partitions"]) == (4, 0)
        assert api.get("/consumer-groups/readers/lags/read/partitions/0").body["lag"] == 4
        assert "readers" in {each["consumer_group_id"] for each in api.get("/consumer-groups").body["data"]}
        (member,) = api.get("/consumer-groups/readers/consumers").body["data"]
        at = f"/consumer-groups/readers/consumers/{member['consumer_id']}/assignments"
        assert [each["partition_id"] for each in api.get(at).body["data"]] == [0]
    finally:
        consumer.close()
    assert api.get("/consumer-groups/nobody").status == 404


def test_assignment_is_read_within_its_bounds() -> None:
    """Members send what they like: a declared length is held against what is left."""
    good = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\7" + b"\xff\xff\xff\xff"
    assert read_assignment(good) == [("t", 0), ("t", 7)]
    for bad in (good[:9], b"\0\1\x7f\xff\xff\xff", b"\0\1" + b"\0\0\0\1" + b"\x7f\xff"):
        with pytest.raises((ValueError, struct.error)):
            read_assignment(bad)


def test_partition_moves_and_its_move_is_shown_until_it_is_done(api: Api) -> None:
    """PUT begins (202), the lists show it, and in the end other replicas hold the partition."""
    create(api, "moved", replicas_assignments=[{"partition_id": 0, "broker_ids": [1]}])
    at = "/topics/moved/partitions/0"
    assert api.get(f"{at}/reassignment").status == 404
    begun = api.ask("PUT", f"{at}/reassignment", {"replica_ids": [3, 2]})
    assert begun.status in {202, 204}
    if begun.status == 202:
        assert (begun.body["adding_replicas"], begun.body["removing_replicas"]) == ([3, 2], [1])
    until(
        lambda: [each["broker_id"] for each in api.get(f"{at}/replicas").body["data"]] == [3, 2],
        "the replicas have moved",
    )
    for path in ("/topics/-/partitions/-/reassignment", "/topics/moved/partitions/-/reassignment"):
        assert api.get(path).body["data"] == []
    assert api.ask("PUT", f"{at}/reassignment", {"replica_ids": [3, 9]}).body["error_code"] == 40002
    assert api.ask("DELETE", f"{at}/reassignment").status == 404, "it rests"
    moves = [{"topic_name": "moved", "partition_id": n, "replica_ids": [3, 2]} for n in (0, 7)]
    results = api.ask("POST", "/topics/-/partitions/-/reassignment:alter", {"data": moves})
    assert (results.status, [each["error_code"] for each in results.body["data"]]) == (207, [0, 3])


def test_election_reports_each_partition_and_an_unclean_election_needs_consent(api: Api, node: Api) -> None:
    """ElectLeaders by HTTP; records are not lost by a default."""
    create(api, "elected", replicas_assignments=[{"partition_id": 0, "broker_ids": [2, 1]}])
    connections = [{"topic_name": "elected", "partition_id": 0}, {"topic_name": "elected", "partition_id": 8}]
    answer = node.ask("POST", "/v1/elections", {"partitions": connections})
    assert (answer.status, [each["error_code"] for each in answer.body["data"]]) == (207, [84, 3])
    for body in ({"partitions": connections}, {"accept_data_loss": True}):
        answer = node.ask("POST", "/v1/elections", {"election_type": "UNCLEAN", **body})
        assert answer.body["error_code"] == 40002, body


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"\xff", 400), (b"7", 400), (b'{"value":{"data":NaN}}', 400), (b'{"valu":1} {}', 422), (b"", 400)],
)
def test_stream_whose_first_record_is_none_is_refused_as_a_whole(api: Api, body: bytes, code: int) -> None:
    """The status can still carry the error until the first byte of the response is written."""
    create_once(api, "refused")
    answer = api.ask("POST", "/topics/refused/records", body)
    assert (answer.status, answer.body["error_code"]) == (code, code)
    assert api.get("/topics/refused/partitions/0/offset").body["next_offset"] == 0


def test_deep_json_costs_an_error_and_no_more(api: Api) -> None:
    """The parser bounds nesting, and its error is reported as the caller's fault."""
    create(api, "deep", partitions_count=1)
    deep = b'{"value":{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    assert api.ask("POST", "/topics/deep/records", deep).body["error_code"] == 400
    batch = b'{"entries":[{"id":"a","value":{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}"
    assert api.ask("POST", "/topics/deep/records:batch", batch).status == 400
    assert api.get("/topics/deep/partitions/0/offset").body["next_offset"] == 0


def test_batch_that_is_too_large_is_written_in_parts(api: Api) -> None:
    """A topic limits its batches; records that are small enough must not fail for their company."""
    create(api, "small", partitions_count=1, configs=[{"name": "max.message.bytes", "value": "2000"}])
    sizes = [300] * 9 + [3000] + [300] * 10
    entries = [
        {"id": str(number), "value": {"type": "STRING", "data": "x" * size}}
        for number, size in enumerate(sizes)
    ]
    report = api.ask("POST", "/topics/small/records:batch", {"entries": entries}).body
    assert [each["id"] for each in report["failures"]] == ["9"]
    assert "max.message.bytes" in report["failures"][0]["message"]
    assert [each["offset"] for each in report["successes"]] == list(range(19))


def test_json_is_stored_as_it_was_written_but_for_the_spaces_between(api: Api, node: Api) -> None:
    """No number is read on the way: a float would round it, and of 1e400 it would make infinity."""
    create_once(api, "exact")
    data = (
        '{ "a b": [0.10000000000000000000001, 1e400, 5.0, -0.0, 12345678901234567890123],\n"u": "\\u00e9" }'
    )
    record = f'"value": {{"type": "JSON", "data": {data}}}, "partition_id": 0.0'
    for path, sent in (("", f"{{{record}}}"), (":batch", f'{{"entries": [{{"id": "a", {record}}}]}}')):
        assert api.ask("POST", f"/topics/exact/records{path}", sent.encode()).status in (200, 207)
    read = node.get("/v1/topics/exact/partitions/0/records").body["records"]
    stored = '{"a b":[0.10000000000000000000001,1e400,5.0,-0.0,12345678901234567890123],"u":"\\u00e9"}'
    assert [each["value"]["data"] for each in read] == [stored, stored]


def test_data_is_checked_against_its_type(api: Api) -> None:
    """STRING and BINARY are strings in JSON; null is no value, whatever the type."""
    create_once(api, "typed")
    records = [
        {"value": {"type": "STRING", "data": 5}},
        {"value": {"type": "BINARY", "data": ["AA=="]}},
        {"value": {"type": "BINARY", "data": None}},
        {"value": {"type": "STRING", "data": "\u00e9"}},
    ]
    reports = api.ask("POST", "/topics/typed/records", "".join(map(json.dumps, records)).encode()).body
    assert [each["error_code"] for each in reports] == [422, 422, 200, 200]
    assert "value: the data of STRING must be a string" in reports[0]["message"]
    assert "value" not in reports[2]
    assert reports[3]["value"] == {"type": "STRING", "size": 2}


def test_question_that_waits_is_neither_cut_short_nor_waited_for(api: Api, node: Api) -> None:
    """Requests to one broker do not share a connection: a fetch that waits ends when another comes behind it."""
    create_once(api, "quiet")
    at = "/v1/topics/quiet/partitions/0/records"
    until(lambda: node.get(at).status == 200, "its leader is known")
    with ThreadPoolExecutor() as threads:
        began_at = time.monotonic()
        waits_s = patient(1.5)
        waiting = threads.submit(node.get, f"{at}?offset=0&timeout_ms={round(waits_s * 1000)}")
        meanwhile = 0
        while not waiting.done():
            assert node.get(at).status == 200
            meanwhile += not waiting.done()
        assert waiting.result().body["records"] == []
        assert time.monotonic() - began_at >= waits_s - 0.1
    assert meanwhile > 3, "behind the one that waits there would be one answer, when that has ended"


def test_a_record_without_a_key_is_refused_alone_where_records_need_one(api: Api) -> None:
    """A compacted topic takes the others; the broker would refuse all that it was sent together with."""
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    create(api, "table", partitions_count=1, configs=configs)
    value = {"type": "STRING", "data": "v"}
    keyed = {"key": {"type": "STRING", "data": "k"}, "value": value}
    body = "".join(map(json.dumps, [keyed, {"value": value}, keyed])).encode()
    reports = api.ask("POST", "/topics/table/records", body).body
    assert [each["error_code"] for each in reports] == [200, 422, 200]
    assert "has no key" in reports[1]["message"]
    assert [each["offset"] for each in (reports[0], reports[2])] == [0, 1]
