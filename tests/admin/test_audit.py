"""Claims about what the audit log says of changes that have several parts."""

from __future__ import annotations

import json
from typing import Any

from raftlog.admin.audit import MOST_NAMED, record_parts
from raftlog.admin.caller import NOBODY
from raftlog.admin.limits import Limits
from raftlog.admin.route import Call
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api, Queue
from tests.kit.waits import until


def audited(cluster: AdminCluster, api: Api, *request: Any) -> dict[str, Any]:
    """Ask node 2 for a change, and return its line of the audit log."""
    method, path, body = request
    answer = api.ask(method, path, body)
    request_id = answer.headers["X-Request-Id"]
    log = cluster.nodes[2].log_path
    lines: list[str] = []

    def told() -> bool:
        lines[:] = [each for each in log.read_text().splitlines() if _tells_of(request_id, each)]
        return bool(lines)

    until(
        told, f"the audit log tells of {request_id}"
    )  # of a stream, the line is written behind the last answer
    (line,) = lines
    found: dict[str, Any] = json.loads(line)
    return found


def _tells_of(request_id: str, line: str) -> bool:
    """An incomplete line is not a statement yet."""
    return request_id in line and "admin_change" in line and line.endswith("}")


def test_new_topic_is_audited_with_its_partitions_and_replication(cluster: AdminCluster, api: Api) -> None:
    """As made, where the brokers chose; as wanted, where they refused."""
    line = audited(cluster, api, "POST", "/topics", {"topic_name": "made", "partitions_count": 2})
    assert (line["topic"], line["partitions"], line["replication_factor"]) == ("made", 2, 3)
    assert (line["outcome"], line["validate_only"]) == ("done", False)
    line = audited(cluster, api, "POST", "/topics", {"topic_name": "wide", "replication_factor": 7})
    assert (line["partitions"], line["replication_factor"]) == (None, 7)
    assert line["outcome"] not in ("done", "failed")
    line = audited(cluster, api, "PATCH", "/topics/made", {"partitions_count": 4})
    assert (line["partitions"], line["partitions_before"], line["outcome"]) == (4, 2, "done")


def test_moves_are_audited_by_what_became_of_each(cluster: AdminCluster, api: Api) -> None:
    """The answer is 207 whatever happened; the log must not call that done."""
    audited(cluster, api, "POST", "/topics", {"topic_name": "here", "partitions_count": 1})
    path = "/topics/-/partitions/-/reassignment:alter"

    def move(*numbers: int) -> dict[str, Any]:
        body = [{"topic_name": "here", "partition_id": each, "replica_ids": [1, 2, 3]} for each in numbers]
        return audited(cluster, api, "POST", path, {"data": body})

    assert (move(0)["outcome"], move(0)["done"]) == ("done", ["here-0"])
    partly = move(0, 7)
    assert (partly["outcome"], partly["done"], partly["failed"]) == ("partly", ["here-0"], ["here-7"])
    assert (move(7, 8)["outcome"], move(7, 8)["failed"]) == ("failed", ["here-7", "here-8"])


def test_elections_are_audited_by_what_became_of_each(cluster: AdminCluster, api: Api) -> None:
    """An election that was not needed is not logged as a failure."""
    audited(cluster, api, "POST", "/topics", {"topic_name": "led", "partitions_count": 1})
    node = Api(cluster.admin_url(2))
    connections = [{"topic_name": "led", "partition_id": each} for each in (0, 8)]
    line = audited(cluster, node, "POST", "/v1/elections", {"partitions": connections})
    assert (line["outcome"], line["done"], line["failed"]) == ("partly", ["led-0"], ["led-8"])
    line = audited(cluster, node, "POST", "/v1/elections", {"partitions": connections[:1]})
    assert (line["outcome"], line["done"]) == ("done", ["led-0"])


def test_records_are_audited_by_their_number(cluster: AdminCluster, api: Api) -> None:
    """Never by what is in them."""
    audited(cluster, api, "POST", "/topics", {"topic_name": "written", "partitions_count": 1})
    entries = [{"id": "a", "value": {"data": "secret"}}, {"id": "b", "partition_id": 5}]
    line = audited(cluster, api, "POST", "/topics/written/records:batch", {"entries": entries})
    assert (line["outcome"], line["records"], line["records_failed"]) == ("partly", 1, 1)
    assert "secret" not in json.dumps(line)
    line = audited(cluster, api, "POST", "/topics/written/records", b'{"value":{"data":1}} {"valu":1}')
    assert (line["outcome"], line["records"], line["records_failed"]) == ("partly", 1, 1)
    line = audited(cluster, api, "POST", "/topics/written/records", b'{"value":{"data":1}}')
    assert (line["outcome"], line["records"], line["records_failed"]) == ("done", 1, 0)


def test_long_list_of_names_is_counted() -> None:
    """A line of the log has an end."""
    nothing: Any = None
    call = Call(nothing, nothing, "", {}, nothing, nothing, nothing, "id", Limits(), NOBODY)
    record_parts(call, [f"t-{each:04}" for each in range(MOST_NAMED + 5)], [])
    assert call.audit["done"][-2:] == [f"t-{MOST_NAMED - 1:04}", "and 5 more"]


def test_records_that_are_archived_by_hand_are_audited_with_their_offsets(
    cluster: AdminCluster, queue: Queue
) -> None:
    """With the number that was changed; a refused request says why."""
    queue.reset("earliest", partition_ids=[0])
    path = f"/v1/share-groups/{queue.group}/topics/{queue.topic}/partitions/0/archive"
    line = audited(cluster, queue.node, "POST", path, {"first_offset": 2, "last_offset": 3})
    assert (line["operation"], line["outcome"]) == ("archive_share_records", "done")
    assert (line["group"], line["topic"], line["partition"]) == (queue.group, queue.topic, 0)
    assert (line["offsets"], line["released"], line["archived"]) == ([2, 3], 0, 0)
    refused = audited(cluster, queue.node, "POST", path, {"first_offset": 3, "last_offset": 2})
    assert refused["outcome"] == "last_offset 2 is before first_offset 3"
