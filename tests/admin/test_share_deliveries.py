"""What a share group has in flight, and the history of one record, over HTTP and in metrics."""

from __future__ import annotations

import urllib.request
from typing import Any

import msgspec
import pytest

from raftlog.admin.native.group_why import moment
from raftlog.admin.native.share_deliveries import DeliveryMember, RecordChange, _summary
from raftlog.base.share_deliveries import DeliveriesQuestion, RecordNow
from raftlog.client.share_fetching import ACCEPT, REJECT
from raftlog.protocol.apis import ApiKey
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api, Queue
from tests.kit.share_worker import working
from tests.kit.waits import PATIENCE_S, until

pytestmark = pytest.mark.slow


def why(queue: Queue, offset: int) -> Any:
    answer = queue.node.get(
        f"/v1/share-groups/{queue.group}/topics/{queue.topic}/partitions/0/records/{offset}/why"
    )
    assert answer.status == 200, answer
    return answer.body


def steps(found: Any) -> list[tuple[str, int]]:
    """Return what happened, oldest first, with the delivery."""
    return [(each["what"][0], each["delivery_count"]) for each in reversed(found["events"])]


def test_a_record_that_is_done_says_how_if_that_is_known() -> None:
    """Behind the start offset the state has no more of it; the last change has."""
    member = DeliveryMember("m", "one", "")
    accepted = RecordChange(moment(0), ["accepted"], "one accepted it", "", 1, member)
    released = RecordChange(moment(0), ["released"], "one released it", "", 1, member)
    done = RecordNow("done")

    def summary(*changes: RecordChange) -> str:
        return _summary(5, done, (1, 5), changes=list(changes), held_by=None)

    assert summary(accepted).startswith("Offset 5 is done. ") and "one accepted it" in summary(accepted)
    assert summary(released).startswith("Offset 5 is done: accepted, rejected or given up. ")
    assert summary() == (
        "Offset 5 is done: accepted, rejected or given up. No broker remembers a delivery of it."
    )


def test_a_record_tells_who_had_it_and_how_each_delivery_ended(cluster: AdminCluster, queue: Queue) -> None:
    """Members that are there are named by their client ids; what a member gave back goes to another."""
    assert queue.reset("earliest", partition_ids=[0]).status == 200
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        taken, records = one.take(3)
        assert records == [(0, 1), (1, 1), (2, 1)]
        held = why(queue, 2)
        assert (held["state"], held["delivery_count"], held["held_by"]["client_id"]) == ("acquired", 1, "one")
        assert held["held_since"]["at_ms"] < held["held_until"]["at_ms"]
        assert held["summary"].startswith("one (127.0.0.1) holds offset 2, until ")
        assert steps(held) == [("delivered", 1)] and held["complete"]
        one.say(taken, 0, REJECT)
        one.say(taken, 1, ACCEPT)
        one.close()
        first_id = one.member.id
    with working(cluster, queue.topic, queue.group, client_id="two") as two:
        taken, records = two.take(1)
        assert records == [(2, 2)]
        two.say(taken, 2, ACCEPT)
        two.take(1)  # the acknowledgement went with it
        found = why(queue, 2)
        assert steps(found) == [("delivered", 1), ("session_over", 1), ("delivered", 2), ("accepted", 2)]
        assert [each["member"]["client_id"] for each in found["events"]] == ["two", "two", "one", "one"]
        assert found["events"][-1]["member"]["member_id"] == first_id
        assert found["events"][-2]["because"] == "it closed its share session or its connection"
        assert (found["state"], found["complete"], found["held_by"]) == ("done", True, None)
        assert "two (127.0.0.1) accepted it" in found["summary"]
        rejected = why(queue, 0)
        assert steps(rejected) == [("delivered", 1), ("rejected", 1)]
        assert why(queue, 9)["state"] == "not_fetched" and why(queue, 9)["leader"] is not None
        two.close()
    assert why(queue, 3)["state"] == "available"
    assert why(queue, 3)["delivery_count"] == 1


def test_what_is_in_flight_is_shown_and_exported(cluster: AdminCluster, queue: Queue) -> None:
    """By the leader: locks, deliveries, lag. The metrics of all nodes agree."""
    queue.reset("earliest", partition_ids=[0])
    at = f"/v1/share-groups/{queue.group}/in-flight"
    assert queue.node.get(at).body["data"] == []
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        one.take(4)
        one.close()
    with working(cluster, queue.topic, queue.group, client_id="two") as two:
        two.take(2)
        found = queue.node.get(at).body
        assert (found["delivery_count_limit"], found["record_lock_duration_ms"]) == (5, 30_000)
        (row,) = [each for each in found["data"] if each["partition_id"] == 0]
        assert (row["topic_name"], row["start_offset"], row["end_offset"]) == (queue.topic, 0, 4)
        assert (row["in_flight"], row["held"], row["done"], row["lag"], row["full"]) == (4, 2, 0, 10, False)
        assert row["deliveries"] == [
            {"delivery_count": 1, "records": 2},
            {"delivery_count": 2, "records": 2},
        ]
        assert 0 <= row["oldest_lock_ms"] < PATIENCE_S * 1000
        own = f'group="{queue.group}",topic="{queue.topic}"'
        for sample in (
            f"raftlog_share_group_locks{{{own}}} 2",
            f'raftlog_share_group_in_flight{{{own},deliveries="2"}} 2',
            f"raftlog_share_group_lag{{{own}}} 10",
            f'raftlog_share_group_redeliveries_total{{group="{queue.group}"}} 2',
        ):
            until(lambda text=sample: text in metrics(cluster), sample)
        two.close()


def test_records_that_wait_for_their_dead_letters_are_shown_with_the_reason(
    cluster: AdminCluster, queue: Queue
) -> None:
    """The dead-letter topic is missing (KIP-1191)."""
    queue.reset("earliest", partition_ids=[0])
    letters = f"dlq.{queue.topic}"
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        one.cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda make: naming(make, queue.group, letters))
        at = f"/v1/share-groups/{queue.group}/in-flight"
        until(lambda: queue.node.get(at).body["dead_letter_topic"] == letters, "all know the topic")
        taken, _ = one.take(2)
        one.say(taken, 0, REJECT)
        one.take(1)
        reason = f"the dead-letter topic {letters} does not exist"
        until(
            lambda: (
                (1, reason)
                in [(each["archiving"], each["letters_failed"]) for each in queue.node.get(at).body["data"]]
            ),
            "the letter fails",
            seen=lambda: queue.node.get(at).body,
        )
        assert why(queue, 0)["state"] == "archiving"
        assert "waits for its dead letter" in why(queue, 0)["summary"]
        until(
            lambda: (
                f'raftlog_share_group_dead_letter_failures_total{{group="{queue.group}"}}' in metrics(cluster)
            ),
            "failures",
        )
        one.close()


def naming(make: Any, group: str, letters: str) -> Any:
    """Return the request that names the dead-letter topic of a group."""
    config = make.AlterableConfig(name="errors.deadletterqueue.topic.name", config_operation=0, value=letters)
    resource = make.AlterConfigsResource(resource_type=32, resource_name=group, configs=(config,))
    return make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def test_other_clients_get_no_history_of_deliveries(cluster: AdminCluster, queue: Queue) -> None:
    """It would show topics that they may not see."""
    question = msgspec.json.encode(DeliveriesQuestion(queue.group))
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        answer = one.cluster.ask(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            lambda make: make.DescribeShareGroupOffsetsRequest(groups=(), about_deliveries=question),
        )
    assert answer.deliveries == b""


def metrics(cluster: AdminCluster) -> str:
    found = []
    for node_id in cluster.nodes:
        with urllib.request.urlopen(f"{cluster.admin_url(node_id)}/metrics", timeout=PATIENCE_S) as answer:
            found.append(answer.read().decode())
    return "".join(found)


def test_a_record_or_a_group_that_is_not_there_is_an_error(api: Api, queue: Queue) -> None:
    """404, with the part of the path that is missing; the topic exists, but the group has never read it."""
    queue.reset("earliest", partition_ids=[0])
    assert queue.node.get("/v1/share-groups/none/in-flight").status == 404
    topic, other = queue.topic, f"other-{queue.topic}"
    assert api.ask("POST", "/topics", {"topic_name": other, "partitions_count": 1}).status == 201
    assert api.ask("POST", f"/topics/{other}/records", {"value": {"data": 1}}).body["error_code"] == 200
    until(lambda: other in str(queue.node.get("/v1/topics").body), "the topic is known")
    for path, message in (
        ("none/partitions/0/records/0", "there is no topic none"),
        (f"{topic}/partitions/7/records/0", f"topic {topic} has no partition 7; its partitions are 0 to 1"),
        (f"{topic}/partitions/0/records/10", f"partition {topic}-0 has no record 10: it ends at offset 10"),
        (f"{topic}/partitions/0/records/-1", f"partition {topic}-0 has no record -1: it ends at offset 10"),
        (f"{topic}/partitions/-1/records/0", f"topic {topic} has no partition -1"),
        (f"{topic}/partitions/1/records/0", f"partition {topic}-1 has no record 0: it ends at offset 0"),
        (f"{other}/partitions/0/records/0", f"share group {queue.group} does not read topic {other}"),
    ):
        answer = queue.node.get(f"/v1/share-groups/{queue.group}/topics/{path}/why")
        assert answer.status == 404 and answer.body["message"].startswith(message), answer
    assert why(queue, 0)["summary"].startswith("Offset 0 is available")
    api.ask("DELETE", f"/topics/{other}")
