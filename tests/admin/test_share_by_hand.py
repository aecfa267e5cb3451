"""Records of a share group that an operator releases or archives over HTTP, by any node (KIP-932)."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from raftlog.admin.errors import ApiError
from raftlog.admin.native.share_by_hand import _outcome
from raftlog.base.errors import NONE, NonEmptyGroup, NotCoordinator
from raftlog.base.share_deliveries import HandAcknowledgement
from raftlog.client.share_fetching import ACCEPT
from raftlog.protocol.apis import ApiKey
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api, Queue
from tests.admin.test_share_deliveries import naming, steps, why
from tests.kit.share_worker import working
from tests.kit.waits import until

pytestmark = pytest.mark.slow

NOTHING = {"released": 0, "archived": 0, "available": 0, "pending": 0, "done": 0, "not_fetched": 0}


def by_hand(queue: Queue, action: str, *, partition: int = 0, node: Api | None = None, **body: Any) -> Any:
    path = f"/v1/share-groups/{queue.group}/topics/{queue.topic}/partitions/{partition}/{action}"
    return (node or queue.node).ask("POST", path, body)


def outcome(answer: Any) -> dict[str, int]:
    """Return the numbers of an answer that are not zero."""
    assert answer.status == 200, answer
    return {name: answer.body[name] for name in NOTHING if answer.body[name]}


def test_what_an_operator_releases_goes_to_another_worker(cluster: AdminCluster, queue: Queue) -> None:
    """With its delivery count and one more, by whichever node is asked. The former holder is too late."""
    assert queue.reset("earliest", partition_ids=[0]).status == 200
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        taken, records = one.take(4)
        assert records == [(0, 1), (1, 1), (2, 1), (3, 1)]
        for node_id in cluster.nodes:
            released = by_hand(
                queue,
                "release",
                node=Api(cluster.admin_url(node_id)),
                first_offset=node_id,
                last_offset=node_id,
            )
            assert outcome(released) == {"released": 1}
        assert released.body["topic_name"] == queue.topic and released.body["partition_id"] == 0
        assert outcome(by_hand(queue, "release", first_offset=1)) == {"available": 1}
        assert steps(why(queue, 1)) == [("delivered", 1), ("by_hand", 1)]
        with working(cluster, queue.topic, queue.group, client_id="two") as two:
            _, records = two.take(3)
            assert records == [(1, 2), (2, 2), (3, 2)]
            one.say(taken, 1, ACCEPT)
            one.take(1)  # the acknowledgement goes with it, and is refused
            held = why(queue, 1)
            assert (held["state"], held["held_by"]["client_id"]) == ("acquired", "two")
            two.close()
        one.member.leave()


def test_what_an_operator_archives_goes_to_nobody(cluster: AdminCluster, queue: Queue) -> None:
    """Also records that no member holds at the time, after a delivery; and without members."""
    queue.reset("earliest", partition_ids=[0])
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        one.take(5)
        assert outcome(by_hand(queue, "archive", first_offset=1, last_offset=2)) == {"archived": 2}
        assert outcome(by_hand(queue, "archive", first_offset=1, last_offset=12)) == {
            "archived": 2,
            "done": 2,
            "not_fetched": 8,
        }
        one.close()
    assert outcome(by_hand(queue, "archive", first_offset=0)) == {"archived": 1}
    assert "is done" in why(queue, 0)["summary"]
    with working(cluster, queue.topic, queue.group, client_id="two") as two:
        assert two.take(1)[1] == [(5, 1)]
        assert outcome(by_hand(queue, "archive")) == {"archived": 1}
        assert outcome(by_hand(queue, "archive")) == {}
        two.close()


def test_a_request_by_hand_that_makes_no_sense_is_refused(queue: Queue) -> None:
    """It names the field and the limit."""
    queue.reset("earliest", partition_ids=[0])
    for action in ("release", "archive"):
        for body, reason in (
            ({"first_offset": 5, "last_offset": 4}, "last_offset 4 is before first_offset 5"),
            ({"last_offset": 4}, "first_offset is missing"),
            ({"first_offset": 0, "last_offset": 10_000}, "10001 offsets; at most 10000"),
        ):
            refused = by_hand(queue, action, **body)
            assert refused.status == 400 and reason in refused.body["message"], refused
        for body in ({"first_offset": -1}, {"first_offset": 2**63}, {"offset": 1}, {"first_offset": "1"}):
            assert by_hand(queue, action, **body).status == 422
        assert by_hand(queue, action, partition=2).status == 404
        assert "has not begun to read" in by_hand(queue, action, partition=1).body["message"]
        assert by_hand(queue, action, partition=1).status == 404
        assert by_hand(queue._replace(topic="none"), action).status == 404
        assert by_hand(queue._replace(group="none"), action).status == 404
        assert outcome(by_hand(queue, action)) == {}


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (NONE, 501, "broker 7 runs a release without this API"),
        (NonEmptyGroup.code, 501, "broker 7 runs a release without this API"),
        (NotCoordinator.code, 503, "is another by now, or broker 7 runs a release without this API"),
    ],
)
def test_a_leader_that_does_not_know_the_request_is_named(error: int, status: int, reason: str) -> None:
    """It takes it for a change of no offsets, which the coordinator of a group without members carries out."""
    response = SimpleNamespace(error_code=error, error_message=None, by_hand=b"")
    with pytest.raises(ApiError, match=reason) as raised:
        _outcome(response, 7, about="t-0 of group g")
    assert raised.value.status == status


def test_other_clients_release_nothing_by_hand(cluster: AdminCluster, queue: Queue) -> None:
    """The private field is the admin API's: a client would end the locks of other members without the right."""
    queue.reset("earliest", partition_ids=[0])
    with working(cluster, queue.topic, queue.group, client_id="one") as one:
        one.take(1)
        topic_id = one.cluster.metadata([queue.topic]).topics[queue.topic].id
        assert topic_id is not None
        said = msgspec.json.encode(HandAcknowledgement(topic_id, 0, rejects=True))
        with pytest.raises(NonEmptyGroup):  # as any change of offsets, without a topic
            one.cluster.ask_coordinator(
                queue.group,
                ApiKey.ALTER_SHARE_GROUP_OFFSETS,
                lambda make: make.AlterShareGroupOffsetsRequest(
                    group_id=queue.group, topics=(), by_hand=said
                ),
            )
        assert why(queue, 0)["state"] == "acquired"
        one.close()


def test_what_an_operator_archives_has_one_dead_letter_over_a_killed_leader(
    own_cluster: AdminCluster,
) -> None:
    """The answer came before the kill, so no later leader delivers the records, and each has its letter once."""
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("t", "q"))
    url = own_cluster.admin_url(1)
    (found,) = Api(url).get("/v3/clusters").body["data"]
    node, api = Api(url), Api(url, f"/v3/clusters/{found['cluster_id']}")
    enabled = [{"name": "errors.deadletterqueue.group.enable", "value": "true"}]
    assert api.ask("POST", "/topics", {"topic_name": topic, "partitions_count": 3}).status == 201
    letters = f"dlq.{topic}"
    wanted = {"topic_name": letters, "partitions_count": 1, "configs": enabled}
    assert api.ask("POST", "/topics", wanted).status == 201
    until(lambda: letters in str(node.get("/v1/topics").body), "the topics are known")
    index = next(each for each in range(3) if own_cluster.leader(topic, each) != 1)
    for number in range(6):
        record = {"partition_id": index, "value": {"data": number}}
        assert api.ask("POST", f"/topics/{topic}/records", record).body["error_code"] == 200
    queue = Queue(topic, group, node)
    until(lambda: queue.reset("earliest").status == 200, "the group has its offsets")
    with working(own_cluster, topic, group, client_id="one") as one:
        one.cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda make: naming(make, group, letters))
        until(
            lambda: node.get(f"/v1/share-groups/{group}/in-flight").body["dead_letter_topic"] == letters,
            "the group has its dead-letter topic",
        )
        assert one.take(3)[1] == [(0, 1), (1, 1), (2, 1)]
        assert outcome(by_hand(queue, "archive", partition=index, first_offset=0, last_offset=1)) == {
            "archived": 2
        }
        own_cluster.kill_leader(topic, index)
        one.member.leave()
    with working(own_cluster, topic, group, client_id="two") as two:
        assert two.take(3)[1][0] == (2, 1)
        at = f"/v1/topics/{letters}/partitions/0/records?offset=earliest"
        until(lambda: len(node.get(at).body.get("records", ())) >= 2, "letters", seen=lambda: node.get(at))
        assert outcome(by_hand(queue, "archive", partition=index, first_offset=0, last_offset=1)) == {
            "done": 2
        }
        two.close()
    assert len(node.get(at).body["records"]) == 2
