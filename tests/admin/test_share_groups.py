"""Share groups over HTTP: listed, described, reset and deleted; never changed while they have members."""

from __future__ import annotations

from urllib.parse import quote

from confluent_kafka import ShareConsumer

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import BEGAN_MS, Api, Queue
from tests.kit.waits import until


def test_a_share_group_is_made_described_and_deleted(queue: Queue) -> None:
    """The first reset makes it; each way of a reset names an offset within the log."""
    assert queue.get().status == 404
    planned = queue.reset("timestamp", BEGAN_MS + 4500, validate_only=True, partition_ids=[0])
    assert (planned.status, planned.body["done"], planned.body["data"][0]["new_offset"]) == (200, False, 5)
    assert queue.get().status == 404
    for to, value, new in (("earliest", None, 0), ("latest", None, 10), ("offset", 99, 10), ("offset", 7, 7)):
        answer = queue.reset(to, value, partition_ids=[0])
        assert answer.status == 200, answer
        assert queue.starts == {0: new}
    found = queue.get().body
    assert (found["state"], found["assignor"], found["members"]) == ("EMPTY", "simple", [])
    listed = {
        each["share_group_id"]: each["state"] for each in queue.node.get("/v1/share-groups").body["data"]
    }
    assert listed[queue.group] == "EMPTY"
    assert queue.delete(f"/topics/{queue.topic}").status == 204
    assert queue.starts == {}
    assert queue.delete(f"/topics/{queue.topic}").status == 404
    assert queue.delete().status == 204
    assert queue.delete().status == 404
    assert queue.get().status == 404


def test_what_cannot_be_reset_is_refused(queue: Queue) -> None:
    """A value that is missing, another way, and a partition that is not there."""
    assert queue.reset("offset").status == 400
    assert queue.reset("shift", 1).status == 422
    assert queue.reset("earliest", partition_ids=[2]).status == 404


def test_a_group_with_members_is_shown_and_not_changed(cluster: AdminCluster, queue: Queue, api: Api) -> None:
    """409 for each change. REST v3 shows it in Confluent's words, whose document lists the fields."""
    assert api.get(f"/share-groups/{queue.group}").status == 404
    member = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": queue.group})
    member.subscribe([queue.topic])
    try:

        def reads_all() -> bool:
            member.poll(0.1)
            found = queue.get()
            return found.status == 200 and [len(each["partitions"]) for each in found.body["members"]] == [2]

        until(reads_all, "the member has both partitions")
        assert queue.get().body["state"] == "STABLE"
        assert queue.reset("earliest").status == 409
        assert queue.delete(f"/topics/{queue.topic}").status == 409
        assert queue.delete().status == 409
        check_words(api, queue)
        assert api.ask("DELETE", f"/share-groups/{queue.group}").status == 409
    finally:
        member.close()
    until(lambda: api.get(f"/share-groups/{queue.group}").body["state"] == "EMPTY", "the member has left")
    assert api.get(f"/share-groups/{queue.group}").body["consumer_count"] == 0
    assert api.ask("DELETE", f"/share-groups/{queue.group}").status == 204
    assert queue.get().status == 404


def check_words(api: Api, queue: Queue) -> None:
    """Check the resources of REST v3 of a group with a member that reads both partitions."""
    at = f"/share-groups/{queue.group}"
    shown = api.get(at).body
    assert (shown["kind"], shown["share_group_id"], shown["state"]) == (
        "KafkaShareGroup",
        queue.group,
        "STABLE",
    )
    assert (shown["consumer_count"], shown["partition_count"]) == (1, 2)
    assert shown["metadata"]["resource_name"].endswith(f"/share-group={queue.group}")
    parts = shown.pop("assigned_topic_partitions")
    assert [(each["topic_name"], each["partition_id"]) for each in parts] == [
        (queue.topic, 0),
        (queue.topic, 1),
    ]
    assert parts[1]["metadata"]["resource_name"].endswith(f"/topic-partition={queue.topic}:1")
    listed = api.get("/share-groups").body
    assert (listed["kind"], shown in listed["data"]) == ("KafkaShareGroupList", True)
    assert queue.group not in str(api.get("/consumer-groups").body)
    (member,) = api.get(f"{at}/consumers").body["data"]
    one = f"{at}/consumers/{quote(member['consumer_id'], safe='')}"  # it may have "+" and "/"
    assert api.get(one).body == member
    assert (member["kind"], member["group_id"]) == ("KafkaShareGroupConsumer", queue.group)
    assert member["client_id"] == "rdkafka" and member["assignments"]["related"].endswith(
        f"{one}/assignments"
    )
    assert api.get(f"{at}/consumers/other").status == 404
    assigned = api.get(f"{one}/assignments").body["data"]
    assert [(each["kind"], each["partition_id"]) for each in assigned] == [
        ("KafkaShareGroupConsumerAssignment", 0),
        ("KafkaShareGroupConsumerAssignment", 1),
    ]
    assert api.ask("GET", assigned[0]["partition"]["related"].partition(api.at)[2]).body["partition_id"] == 0
