"""Claims about faults over HTTP: only where they were enabled, said loudly, and healed by name."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.admin.test_health import reasons
from tests.kit.dev_cluster import dev_cluster


@pytest.fixture(scope="module")
def hurt() -> Iterator[Api]:
    """One node with --enable-faults."""
    with AdminCluster(1, faults=True) as running:
        yield Api(running.admin_url(1))


@pytest.fixture(scope="module")
def sound(cluster: AdminCluster) -> Api:
    """A node without."""
    return Api(cluster.admin_url(1))


def test_a_node_without_the_flag_refuses_and_says_what_is_missing(sound: Api) -> None:
    """A fault is injected neither by accident nor from afar."""
    for answer in (
        sound.ask("POST", "/v1/faults", {"fault": "full-disk"}),
        sound.ask("DELETE", "/v1/faults/all"),
    ):
        assert (answer.status, answer.body["error_code"]) == (403, 40301)
        assert "--enable-faults" in answer.body["message"]
    listed = sound.get("/v1/faults").body
    assert (listed["enabled"], listed["active"]) == (False, [])
    assert sound.get("/v1/health").body["status"] == "green"


def test_a_fault_is_injected_listed_felt_and_healed(hurt: Api) -> None:
    """A jump of the clock is the fault that is visible without a disk."""
    answer = hurt.ask("POST", "/v1/faults", {"fault": "clock-jump", "offset_ms": 3_600_000})
    assert answer.status == 200
    assert answer.body["active"] == [{"fault": "clock-jump", "offset_ms": 3_600_000}]
    assert hurt.get("/v1/faults").body == answer.body
    (cluster,) = hurt.get("/v3/clusters").body["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics"
    assert hurt.ask("POST", path, {"topic_name": "late", "partitions_count": 1}).status == 201
    (event,) = hurt.get("/v1/topics/late/partitions/0/why").body["events"]
    assert abs(event["when"]["at_ms"] - time.time() * 1000) < 1_800_000  # a time in doubt dates no metadata
    assert hurt.get("/v1/clock").body["wall_clock_ms"] > (time.time() + 1_800) * 1000
    assert hurt.ask("DELETE", "/v1/faults/clock-jump").body["active"] == []


def test_a_clock_that_jumped_is_reported_until_an_operator_accepts_it(hurt: Api) -> None:
    """Deletion by age waits for that, or for the clock to be set back; metrics say how far it jumped."""
    assert hurt.get("/v1/clock").body["jump_ms"] == 0
    hurt.ask("POST", "/v1/faults", {"fault": "clock-jump", "offset_ms": 86_400_000})
    told = hurt.get("/v1/clock").body
    assert told["jump_ms"] == pytest.approx(86_400_000, abs=60_000)
    reasons = {each["code"]: each for each in hurt.get("/v1/health").body["reasons"]}
    assert reasons["clock_jumped"]["severity"] == "yellow"
    assert "86400 s ahead of the monotonic clock" in reasons["clock_jumped"]["message"]
    assert "POST /v1/clock/accept" in reasons["clock_jumped"]["message"]
    assert hurt.ask("POST", "/v1/clock/accept").body["jump_ms"] == 0
    assert {each["code"] for each in hurt.get("/v1/health").body["reasons"]} == {"faults_enabled"}
    hurt.ask("DELETE", "/v1/faults/clock-jump")
    assert hurt.get("/v1/clock").body["jump_ms"] == pytest.approx(-86_400_000, abs=60_000)
    assert "behind" in hurt.get("/v1/health").body["reasons"][0]["message"]
    hurt.ask("POST", "/v1/clock/accept")


def test_a_node_that_can_be_hurt_says_so_in_its_health(hurt: Api) -> None:
    """Its health shows that such a cluster is not for production."""
    (reason,) = reasons(hurt.get("/v1/health").body).values()
    assert (reason["code"], reason["severity"], reason["count"]) == ("faults_enabled", "yellow", 0)
    hurt.ask("POST", "/v1/faults", {"fault": "slow-disk", "seconds": 0.001})
    (reason,) = reasons(hurt.get("/v1/health").body).values()
    assert reason["message"].endswith("in force now: slow-disk")
    assert hurt.ask("DELETE", "/v1/faults/all").body["active"] == []


def test_bad_faults_are_refused_by_field_and_nothing_happens(hurt: Api) -> None:
    """Unknown names, missing and wrong details, limits."""
    for body, field in (
        ({"fault": "earthquake"}, "$.fault"),
        ({"fault": "slow-disk"}, "seconds"),
        ({"fault": "slow-disk", "seconds": -1}, "$.seconds"),
        ({"fault": "slow-disk", "seconds": 1e9}, "$.seconds"),
        ({"fault": "failing-disk", "operation": "dance"}, "$.operation"),
        ({"fault": "full-disk", "more": 1}, "more"),
        ({"fault": "clock-jump", "offset_ms": 10**18}, "$.offset_ms"),
    ):
        answer = hurt.ask("POST", "/v1/faults", body)
        assert answer.status == 422, body
        assert field in answer.body["message"], (body, answer.body)
    assert hurt.ask("DELETE", "/v1/faults/earthquake").status == 404
    assert hurt.get("/v1/faults").body["active"] == []


@pytest.fixture(scope="module")
def developed() -> Iterator[AdminCluster]:
    """Three nodes, as `raftlog dev` runs them without --enable-faults."""
    with dev_cluster(3) as running:
        yield running


def test_a_node_of_dev_is_cut_off_for_some_seconds(developed: AdminCluster) -> None:
    """From the console of any node. It says so in its health, and the cut ends by itself or is healed."""
    first, second = (Api(developed.admin_url(node_id)) for node_id in (1, 2))
    assert first.get("/v1/whoami").body["faults_enabled"] is False
    assert first.get("/v1/faults").body == {
        "node_id": 1,
        "enabled": False,
        "available": ["cut-off"],
        "active": [],
    }
    assert "faults_enabled" not in codes(first)
    cut = {"fault": "cut-off", "seconds": 3600}
    assert first.ask("POST", "/v1/faults?node_id=2", cut).body["active"] == [cut]
    assert "cut_off" in codes(second)
    developed.wait_until(lambda: "no_controller" in codes(second), "node 2 is in touch with no controller")
    assert first.ask("DELETE", "/v1/faults/cut-off?node_id=2").body["active"] == []
    developed.wait_until(lambda: not codes(second) & {"no_controller", "cut_off"}, "node 2 is back")
    assert second.ask("POST", "/v1/faults", {"fault": "cut-off", "seconds": 0.5}).status == 200
    developed.wait_until(lambda: not second.get("/v1/faults").body["active"], "the cut has ended by itself")
    developed.wait_ready()


def test_a_node_of_dev_takes_no_other_fault_and_no_cut_without_an_end(developed: AdminCluster) -> None:
    """Its disk and its clock are real, and a page that is closed leaves no cut behind."""
    first = Api(developed.admin_url(1))
    for where in ("", "?node_id=2"):
        refused = first.ask("POST", f"/v1/faults{where}", {"fault": "full-disk"})
        assert (refused.status, "--enable-faults" in refused.body["message"]) == (403, True)
        for cut in ({"fault": "cut-off"}, {"fault": "cut-off", "seconds": 0}):
            endless = first.ask("POST", f"/v1/faults{where}", cut)
            reason = "$.seconds: without --enable-faults it must be more than 0, and at most 3600"
            assert (endless.status, endless.body["message"].removeprefix("node 2: ")) == (422, reason)
        assert first.ask("POST", f"/v1/faults{where}", {"fault": "cut-off", "seconds": 3601}).status == 422
        assert first.get(f"/v1/faults{where}").body["active"] == []


@pytest.fixture(scope="module")
def pair() -> Iterator[AdminCluster]:
    """Two nodes with --enable-faults."""
    with AdminCluster(2, faults=True) as running:
        yield running


def test_a_node_passes_on_what_is_about_another(pair: AdminCluster) -> None:
    """Only the other node has the fault. It is listed and healed from here too."""
    first, second = (Api(pair.admin_url(node_id)) for node_id in (1, 2))
    fault = {"fault": "slow-disk", "seconds": 0.01}
    answer = first.ask("POST", "/v1/faults?node_id=2", fault)
    assert (answer.status, answer.body["node_id"], answer.body["active"]) == (200, 2, [fault])
    assert second.get("/v1/faults").body == first.get("/v1/faults?node_id=2").body == answer.body
    assert first.get("/v1/faults").body["active"] == []
    assert first.ask("DELETE", "/v1/faults/slow-disk?node_id=2").body["active"] == []


def test_a_node_that_is_cut_off_is_healed_from_another(pair: AdminCluster) -> None:
    """Admin APIs of other nodes are served like clients, so a console shows and ends the fault of a cut-off node."""
    first, second = (Api(pair.admin_url(node_id)) for node_id in (1, 2))
    fault = {"fault": "cut-off"}
    assert first.ask("POST", "/v1/faults?node_id=2", fault).body["active"] == [fault]
    pair.wait_until(lambda: "no_controller" in codes(second), "node 2 is in touch with no controller")
    assert first.ask("DELETE", "/v1/faults/cut-off?node_id=2").body["active"] == []
    pair.wait_ready()


def test_a_wrong_clock_is_in_the_health_of_another_node(pair: AdminCluster) -> None:
    """The node that is asked asks the other for its clock."""
    first = Api(pair.admin_url(1))
    first.ask("POST", "/v1/faults?node_id=2", {"fault": "clock-jump", "offset_ms": 86_400_000})
    found = [each for each in first.get("/v1/health").body["reasons"] if each["code"].startswith("clock")]
    assert [2] in [each["brokers"] for each in found], found
    first.ask("DELETE", "/v1/faults/clock-jump?node_id=2")


def codes(node: Api) -> set[str]:
    """Return the codes of the reasons of a node's health."""
    return {each["code"] for each in node.get("/v1/health").body["reasons"]}


def test_another_node_that_does_not_answer_is_an_error(pair: AdminCluster, sound: Api) -> None:
    """An unknown id, a dead node, and a node without the flag, which forwards to no node."""
    first = Api(pair.admin_url(1))
    assert first.get("/v1/faults?node_id=9").status == 404
    pair.pause(2)
    paused = first.ask("POST", "/v1/faults?node_id=2", {"fault": "full-disk"})
    pair.resume(2)
    assert paused.status == 503
    assert "node 2" in paused.body["message"]
    assert sound.get("/v1/faults?node_id=9").status == 403


def test_nodes_are_listed_with_their_http_addresses(pair: AdminCluster) -> None:
    """Addresses on loopback are shown to callers on loopback."""
    listed = Api(pair.admin_url(1)).get("/v1/nodes").body
    assert listed["node_id"] == 1
    assert listed["data"] == [{"broker_id": each, "http_url": pair.admin_url(each)} for each in (1, 2)]
