"""Claims about resetting a group's offsets over HTTP: preview first, then apply, never while a member reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import KEPT, Api
from tests.kit.waits import until


class Read(NamedTuple):
    """A topic with ten records in partition 0, of which a group has read four."""

    topic: str
    group: str
    node: Api

    def reset(self, to: str, value: int | None = None, **more: Any) -> Any:
        body = {"topic_name": self.topic, "to": to, "value": value, **more}
        return self.node.ask("POST", f"/v1/consumer-groups/{self.group}/reset", body)


@pytest.fixture
def read(cluster: AdminCluster, node: Api, api: Api) -> Iterator[Read]:
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("t", "g"))
    assert (
        api.ask("POST", "/topics", {"topic_name": topic, "partitions_count": 2, "configs": KEPT}).status
        == 201
    )
    until(lambda: topic in str(node.get("/v1/topics").body), "the topic is known")
    for number in range(10):
        record = {"partition_id": 0, "value": {"data": number}, "timestamp": 1000 * number}
        assert api.ask("POST", f"/topics/{topic}/records", record).body["error_code"] == 200
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    yield Read(topic, group, node)
    api.ask("DELETE", f"/topics/{topic}")


@pytest.mark.parametrize(
    ("to", "value", "new"),
    [
        ("earliest", None, 0),
        ("latest", None, 10),
        ("offset", 7, 7),
        ("offset", 99, 10),
        ("shift", -3, 1),
        ("shift", -9, 0),
        ("timestamp", 4500, 5),
        ("timestamp", 99_000, 10),
    ],
)
def test_preview_says_what_a_reset_would_do(read: Read, to: str, value: int | None, new: int) -> None:
    """The preview has no effect; offsets beyond the ends become an end."""
    answer = read.reset(to, value, validate_only=True, partition_ids=[0])
    assert answer.status == 200, answer
    assert answer.body["done"] is False
    (row,) = answer.body["data"]
    assert (row["current_offset"], row["new_offset"]) == (4, new)
    assert read.reset("shift", 0, validate_only=True).body["data"][0]["current_offset"] == 4


def test_reset_is_what_the_group_goes_on_with(read: Read) -> None:
    """All partitions of the topic, those too that it had no offset of."""
    assert read.reset("latest").body["done"] is True
    after = read.reset("shift", 0, validate_only=True).body["data"]
    assert [each["current_offset"] for each in after] == [10, 0]


def test_group_that_has_members_is_not_reset(read: Read, cluster: AdminCluster) -> None:
    """They would go on where they are, so the answer says to stop them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": read.group})
    try:
        consumer.subscribe([read.topic])
        until(lambda: [consumer.poll(0.1), consumer.assignment()][1], "the member has partitions")
        answer = read.reset("earliest")
        assert (answer.status, "has 1 member" in answer.body["message"]) == (409, True)
        assert read.reset("earliest", validate_only=True).status == 200
    finally:
        consumer.close()


def test_reset_that_cannot_be_says_why(read: Read) -> None:
    """Names what is missing or does not exist."""
    assert read.reset("offset").status == 400
    assert read.reset("earliest", partition_ids=[5]).body["error_code"] == 40403
    assert read.reset("elsewhere").status == 422
    nobody = read._replace(group="nobody")
    assert nobody.reset("earliest").status == 404
