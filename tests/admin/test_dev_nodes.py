"""Claims about nodes of `raftlog dev` over HTTP: killed, paused and started again, by administrators only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.kit.dev_cluster import dev_cluster
from tests.kit.waits import until

TOKENS = "reader eve reader-token-0123456789\noperator bob operator-token-0123456789\n"
READER = {"Authorization": "Bearer reader-token-0123456789"}
OPERATOR = {"Authorization": "Bearer operator-token-0123456789"}


@pytest.fixture(scope="module")
def developed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    """Two nodes with tokens."""
    tokens: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    with dev_cluster(2, settings={"raftlog.admin.tokens.file": str(tokens)}) as running:
        yield running


def states(node: Api) -> dict[int, str]:
    """Return the state of each node."""
    found = node.ask("GET", "/v1/dev/nodes", headers=READER).body
    assert found["enabled"]
    return {each["node_id"]: each["state"] for each in found["data"]}


def act(node: Api, node_id: int, action: str) -> int:
    """Act on a node, and return the status of the response."""
    return node.ask("POST", f"/v1/dev/nodes/{node_id}", {"action": action}, headers=OPERATOR).status


def test_another_node_is_paused_killed_and_started_again(developed: AdminCluster) -> None:
    """As `raftlog dev` does it. What is not possible now is 409, an unknown node 404."""
    node = Api(developed.admin_url(1))
    until(lambda: states(node) == {1: "running", 2: "running"}, "both run")
    pid = developed.nodes[2].pid
    assert (act(node, 2, "pause"), states(node)[2]) == (200, "paused")
    assert act(node, 2, "pause") == 409
    assert (act(node, 2, "resume"), developed.nodes[2].pid) == (200, pid)
    assert (act(node, 2, "kill"), states(node)[2]) == (200, "down")
    assert act(node, 2, "stop") == 409
    assert act(node, 2, "restart") == 200
    until(lambda: states(node)[2] == "running", "it is back")
    assert developed.nodes[2].pid != pid
    assert (act(node, 9, "kill"), act(node, 2, "explode")) == (404, 422)


def test_node_that_kills_itself_answers_before(developed: AdminCluster) -> None:
    """Another node starts it again."""
    developed.wait_ready()
    assert act(Api(developed.admin_url(2)), 2, "kill") == 200
    other = Api(developed.admin_url(1))
    until(lambda: states(other)[2] == "down", "it is killed")
    assert act(other, 2, "restart") == 200
    until(lambda: states(other)[2] == "running", "it is back")


def test_reader_may_look_but_not_act(developed: AdminCluster) -> None:
    """403; the nodes run on."""
    node = Api(developed.admin_url(1))
    assert node.ask("POST", "/v1/dev/nodes/2", {"action": "kill"}, headers=READER).status == 403
    assert states(node)[2] == "running"


def test_nodes_of_other_clusters_refuse(cluster: AdminCluster) -> None:
    """The message says which clusters can be asked."""
    node = Api(cluster.admin_url(1))
    assert node.get("/v1/dev/nodes").body == {"node_id": 1, "enabled": False, "data": []}
    assert node.get("/v1/whoami").body["dev_enabled"] is False
    answer = node.ask("POST", "/v1/dev/nodes/1", {"action": "kill"})
    assert (answer.status, answer.body["error_code"]) == (403, 40301)
    assert "`raftlog dev`" in answer.body["message"]
