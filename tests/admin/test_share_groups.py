"""Share groups over HTTP: listed, described, reset and deleted; never changed while they have members."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import ShareConsumer

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.kit.waits import until

BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""The timestamp of the first record: retention by age does not delete it."""


class Queue(NamedTuple):
    """A topic with ten records in partition 0, and the name of a share group that is not there yet."""

    topic: str
    group: str
    node: Api

    def get(self) -> Any:
        return self.node.get(f"/v1/share-groups/{self.group}")

    def reset(self, to: str, value: int | None = None, **more: Any) -> Any:
        body = {"topic_name": self.topic, "to": to, "value": value, **more}
        return self.node.ask("POST", f"/v1/share-groups/{self.group}/reset", body)

    def delete(self, path: str = "") -> Any:
        return self.node.ask("DELETE", f"/v1/share-groups/{self.group}{path}")

    @property
    def starts(self) -> dict[int, int]:
        return {each["partition_id"]: each["start_offset"] for each in self.get().body["offsets"]}


@pytest.fixture
def queue(node: Api, api: Api) -> Iterator[Queue]:
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("t", "q"))
    assert api.ask("POST", "/topics", {"topic_name": topic, "partitions_count": 2}).status == 201
    until(lambda: topic in str(node.get("/v1/topics").body), "the topic is known")
    for number in range(10):
        record = {"partition_id": 0, "value": {"data": number}, "timestamp": BEGAN_MS + 1000 * number}
        assert api.ask("POST", f"/topics/{topic}/records", record).body["error_code"] == 200
    yield Queue(topic, group, node)
    api.ask("DELETE", f"/topics/{topic}")


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


def test_a_group_with_members_is_shown_and_not_changed(cluster: AdminCluster, queue: Queue) -> None:
    """409 for each change."""
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
    finally:
        member.close()
