"""Real nodes: voters are added and removed over HTTP, and the audit log has who did it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from raftlog.base.types import encode_uuid
from raftlog.cli import exits
from tests.admin.conftest import Api
from tests.cli.live import CommandLine
from tests.kit.joining import Joining
from tests.kit.waits import log_lines, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def joining_cluster() -> Iterator[Joining]:
    """One voter, and a node that follows."""
    with Joining(2, voters=1) as found:
        found.wait_until_healthy()
        yield found


@pytest.fixture
def api(joining_cluster: Joining) -> Api:
    return Api(joining_cluster.admin_url(1))


def quorum(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/v1/quorum").body
    return found


def voters_of(api: Api) -> list[int]:
    return [each["node_id"] for each in quorum(api)["voters"]]


def new_voter(cluster: Joining, node_id: int) -> dict[str, Any]:
    host, _, port = cluster.controller_of(node_id).rpartition(":")
    return {"node_id": node_id, "host": host, "port": int(port)}


def test_a_voter_is_added_and_removed(joining_cluster: Joining, api: Api) -> None:
    """By the directory that the quorum shows, or by a named directory; each refusal has its status."""
    body, voters, voter = new_voter(joining_cluster, 2), "/v1/quorum/voters", "/v1/quorum/voters/2"
    until(lambda: any(each["directory_id"] for each in quorum(api)["observers"]), "node 2 follows")
    if quorum(api)["kraft_version"] == 0:
        refused = api.ask("POST", voters, body)
        assert refused.status == 400 and "kraft.version" in refused.body["message"]
        assert CommandLine(joining_cluster.bootstrap_servers)("quorum", "dynamic").returncode == exits.OK
    assert quorum(api)["kraft_version"] == 1
    assert api.ask("POST", voters, {**body, "node_id": 7}).status == 409
    assert api.ask("POST", voters, {**body, "directory_id": "!" * 22}).status == 400
    assert api.ask("DELETE", voter).status == 404
    assert api.ask("POST", voters, body).status == 204
    assert voters_of(api) == [1, 2]
    assert api.ask("POST", voters, body).status == 409
    (directory_id,) = [each["directory_id"] for each in quorum(api)["voters"] if each["node_id"] == 2]
    assert api.ask("POST", voters, {**body, "directory_id": directory_id}).status == 409
    (other,) = [each["directory_id"] for each in quorum(api)["voters"] if each["node_id"] == 1]
    assert api.ask("DELETE", f"{voter}?directory_id={other}").status == 404
    assert api.ask("DELETE", f"{voter}?directory_id={directory_id}").status == 204
    assert voters_of(api) == [1]
    assert quorum(api)["change"] is None


def test_a_voter_is_replaced(joining_cluster: Joining, api: Api) -> None:
    """The new voter first; the same request again finds it done. Then the former voter replaces the new one."""
    until(lambda: any(each["directory_id"] for each in quorum(api)["observers"]), "node 2 follows")
    CommandLine(joining_cluster.bootstrap_servers)("quorum", "dynamic")
    voters, bodies = "/v1/quorum/voters", {each: new_voter(joining_cluster, each) for each in (1, 2)}
    for old, new in ((1, 2), (2, 1)):
        for _ in range(2):
            replaced = api.ask("POST", voters, {**bodies[new], "replaces": old})
            assert replaced.status == 204, replaced.body
            until(lambda new=new: voters_of(api) == [new], "it votes alone")  # type: ignore[misc]
    assert api.ask("POST", voters, {**bodies[1], "replaces": 1}).status == 409
    elsewhere = {**bodies[1], "replaces": 2, "directory_id": encode_uuid(UUID(int=99))}
    assert api.ask("POST", voters, elsewhere).status == 409, "the set has another disk"
    (present,) = quorum(api)["voters"]
    again = api.ask("POST", voters, {**bodies[1], "replaces": 1, "directory_id": present["directory_id"]})
    assert again.status == 204, "the disk is in the set already"


def test_the_last_voter_stays(joining_cluster: Joining, api: Api) -> None:
    """Its removal is refused, and the refusal is in the audit log with the caller."""
    CommandLine(joining_cluster.bootstrap_servers)("quorum", "dynamic")
    refused = api.ask("DELETE", "/v1/quorum/voters/1")
    assert refused.status == 400 and "only voter" in refused.body["message"]
    found = [each for each in log_lines(joining_cluster.nodes[1], "only voter") if "admin_change" in each]
    assert found and '"operation":"remove_voter"' in found[-1], found
