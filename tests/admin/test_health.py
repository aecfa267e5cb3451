"""Claims about /v1/health and /v1/quorum: they say in words what is wrong, from whichever node is asked."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from raftlog.admin.cluster_summary import Survey
from raftlog.admin.errors import ApiError
from raftlog.admin.facts import AccountFacts
from raftlog.admin.native import clock as clocks
from raftlog.admin.native.clock import Clock, broker_clocks
from raftlog.admin.native.health import (
    BrokerHealth,
    State,
    _of_brokers,
    _of_chores,
    _of_clock,
    _of_leaders,
    _of_memory,
    _of_other_clocks,
    _of_replicas,
)
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig, load_config
from raftlog.base.record_ages import Ages, OtherClocks
from raftlog.base.recurring_failures import Failure
from raftlog.base.types import TopicPartition, decode_uuid
from raftlog.cli import exits
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.cli.live import invoke

LEADERS = "leaders_not_preferred"


def api_of(cluster: AdminCluster, node_id: int) -> Api:
    return Api(cluster.admin_url(node_id))


def create(cluster: AdminCluster, topic: str, **settings: Any) -> None:
    """Create a topic of three partitions unless it is there, and wait until every running node knows it."""
    node = api_of(cluster, min(cluster.running_ids()))
    (found,) = node.get("/v3/clusters").body["data"]
    topics = f"/v3/clusters/{found['cluster_id']}/topics"
    path = f"{topics}/{topic}"
    if node.get(path).status == 404:
        body = {"topic_name": topic, "partitions_count": 3, "replication_factor": 3, **settings}
        made = node.ask("POST", topics, body)
        assert made.status == 201, made
    nodes = [api_of(cluster, each) for each in cluster.running_ids()]
    cluster.wait_until(lambda: all(each.get(path).status == 200 for each in nodes), "the topic is known")


def reasons(health: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the reasons by code, without what is true of the machine that runs the tests, or of tests before."""
    left_out = ("node_slow", LEADERS)
    return {each["code"]: each for each in health["reasons"] if each["code"] not in left_out}


class Failing:
    """The facts of a node with failing chores."""

    def __init__(self, *failures: Failure) -> None:
        self._failures = failures

    def failures(self) -> list[Failure]:
        return [*self._failures]


@pytest.mark.parametrize("state", get_args(State))
def test_several_brokers_are_reported_in_the_plural(state: State) -> None:
    """Verbs and pronouns with them."""
    one, several = (
        next((each.message for each in _of_brokers(BrokerHealth(id, state, []) for id in ids)), "")
        for ids in ((2,), (2, 3))
    )
    assert (one == "") == (several == "") == (state == "in_service")
    assert not re.search(r"\b(are|do|they|their)\b", one), one
    assert not re.search(r"\b(is|does|it|its)\b", several), several


def test_a_log_that_cannot_be_cleaned_is_named_with_its_reason() -> None:
    """Compacted logs by a code of their own, other work by its name; of very many the first few."""
    failures = [
        Failure("compaction", "orders-3", "error: argument out of range", 4, 0.0),
        *(Failure("offset_expiry", f"group-{number}", "ValueError: x" * 100, 1, 0.0) for number in range(7)),
    ]
    view = NodeView(
        NodeConfig(node_id=2),
        image=MetadataImage,
        unready_reasons=list,
        wall_clock_ms=lambda: 0,
        facts=Failing(*failures),  # type: ignore[arg-type]
    )
    uncleanable, failing = _of_chores(view)
    assert (uncleanable.code, uncleanable.severity, uncleanable.count, uncleanable.brokers) == (
        "logs_uncleanable",
        "yellow",
        1,
        [2],
    )
    assert "compaction fails" in uncleanable.message
    assert "orders-3 (error: argument out of range)" in uncleanable.message
    assert (failing.code, failing.count) == ("chores_failing", 7)
    assert "group-4" in failing.message and "group-5" not in failing.message
    assert failing.message.endswith("; and 2 more") and len(failing.message) < 2_000


class Lacking:
    """The facts of a node with replicas that stopped."""

    def __init__(self, failed: dict[TopicPartition, str]) -> None:
        self._failed = failed

    def failed_replicas(self) -> dict[TopicPartition, str]:
        return self._failed


def view_of(facts: object) -> NodeView:
    return NodeView(
        NodeConfig(node_id=2),
        image=MetadataImage,
        unready_reasons=list,
        wall_clock_ms=lambda: 0,
        facts=facts,  # type: ignore[arg-type]
    )


def test_replicas_that_stopped_are_named_with_their_reason() -> None:
    """Red, since only an operator can decide which replica is right; the first few of many are named."""
    failed = {TopicPartition("t", number): f"leader 3 lacks record {number}" for number in range(9)}
    (reason,) = _of_replicas(view_of(Lacking(failed)))
    assert (reason.severity, reason.code, reason.count, reason.brokers) == ("red", "replicas_failed", 9, [2])
    assert reason.partitions == [f"t-{number}" for number in range(5)]
    assert "t-4 (leader 3 lacks record 4)" in reason.message
    assert "elect one that has the records" in reason.message


def test_a_node_whose_replicas_all_follow_has_nothing_to_say_of_them() -> None:
    """A node without failed replicas is no reason."""
    assert not list(_of_replicas(view_of(Lacking({}))))


def test_directories_without_room_are_named() -> None:
    """As their brokers report them, whichever node is asked, with what becomes of the leaderships."""
    brokers = [BrokerHealth(7, "in_service", [], ["/data/1", "/data/2"]), BrokerHealth(8, "in_service", [])]
    (reason,) = _of_brokers(brokers)
    assert (reason.severity, reason.code, reason.count) == ("yellow", "log_dirs_full", 2)
    assert reason.brokers == [7] and "no room in /data/1, /data/2" in reason.message


def test_every_node_reports_a_whole_cluster_as_green(own_cluster: AdminCluster) -> None:
    """All agree on the controller and on the brokers in service."""
    create(own_cluster, "whole")
    told = [api_of(own_cluster, each).get("/v1/health").body for each in (1, 2, 3)]
    assert [each["status"] for each in told] == ["green"] * 3, told
    assert [reasons(each) for each in told] == [{}, {}, {}]
    assert {each["controller_id"] for each in told} == {own_cluster.controller_id()}
    assert [each["node_id"] for each in told] == [1, 2, 3]
    assert [each["state"] for each in told[0]["brokers"]] == ["in_service"] * 3


def test_every_node_reports_the_quorum_with_its_lag(own_cluster: AdminCluster) -> None:
    """Each node reports the leader's state of the quorum."""
    told = [api_of(own_cluster, each).get("/v1/quorum").body for each in (1, 2, 3)]
    assert len({decode_uuid(each["directory_id"]) for each in told[0]["voters"]}) == 3
    assert {each["leader_id"] for each in told} == {own_cluster.controller_id()}
    assert all(each["told_by_leader"] and each["needed"] == 2 and each["term"] >= 1 for each in told)
    for each in told:
        assert sorted(voter["state"] for voter in each["voters"]) == ["follows", "follows", "leads"]
        assert all(0 <= voter["lag"] <= 10 for voter in each["voters"])
        assert all(voter["port"] for voter in each["voters"])


def test_health_names_the_broker_that_is_down_and_the_effects_until_it_is_back(
    own_cluster: AdminCluster,
) -> None:
    """Yellow: everything is served. Red: acks=all is refused where two of three replicas are not enough."""
    create(own_cluster, "careful", configs=[{"name": "min.insync.replicas", "value": "3"}])
    controller = own_cluster.controller_id()
    victim = next(each for each in (1, 2, 3) if each != controller)
    asked = next(each for each in (1, 2, 3) if each not in (controller, victim))
    own_cluster.kill(victim)
    node = api_of(own_cluster, asked)
    own_cluster.wait_until(lambda: "brokers_down" in reasons(node.get("/v1/health").body), "it is told")
    health = node.get("/v1/health").body
    told = reasons(health)
    assert health["status"] == "red"
    assert told["brokers_down"]["brokers"] == [victim]
    assert told["brokers_down"]["severity"] == "yellow"
    assert told["brokers_down"]["message"].startswith(f"broker {victim} is fenced, and does not answer")
    assert told["partitions_under_min_isr"]["count"] == 3
    assert "careful-0" in told["partitions_under_min_isr"]["partitions"]
    assert told["partitions_under_replicated"]["count"] == health["under_replicated_partitions"] >= 3
    assert health["leaderless_partitions"] == 0
    topics = node.get(f"/v3/clusters/{health['cluster_id']}/topics").body["data"]
    internal = [each for each in topics if each["is_internal"]]
    assert (health["topics"], health["internal_topics"]) == (len(topics), len(internal))
    assert health["internal_partitions"] == sum(each["partitions_count"] for each in internal)
    node.ask("DELETE", f"/v3/clusters/{health['cluster_id']}/topics/careful")
    own_cluster.wait_until(lambda: node.get("/v1/health").body["status"] == "yellow", "nothing is refused")
    own_cluster.restart(victim)
    own_cluster.wait_until(lambda: node.get("/v1/health").body["status"] == "green", "all is well again")


def test_leaders_that_stay_where_they_went_are_a_green_reason(own_cluster: AdminCluster) -> None:
    """With the command that gives them back, which `raftlog status` prints as well; after it the line is gone."""
    create(own_cluster, "given-back")
    own_cluster.kill(2)
    own_cluster.restart(2)
    own_cluster.wait_until_healthy()
    node = api_of(own_cluster, 1)

    def told() -> list[dict[str, Any]]:
        return [each for each in node.get("/v1/health").body["reasons"] if each["code"] == LEADERS]

    own_cluster.wait_until(lambda: 2 in [id for each in told() for id in each["brokers"]], "it is told")
    (reason,) = told()
    assert reason["severity"] == "green" and "broker" in reason["message"]
    assert "`raftlog partition elect` gives them back at once" in reason["message"]
    assert "every 300 s (leader.imbalance.check.interval.seconds)" in reason["message"]
    at = ("-b", own_cluster.bootstrap_servers)
    code, out, said = invoke("status", *at)
    assert code == exits.OK and out.startswith("green\n") and reason["message"] in out, out + said
    code, out, said = invoke("partition", "elect", *at)
    assert code == exits.OK and out.count("elected") == reason["count"], said
    own_cluster.wait_until(lambda: not told(), "the preferred leaders lead", seen=told)


def test_leaders_that_stay_for_good_are_said_to() -> None:
    """Where the controller gives none back; no line without an imbalance."""
    node = NodeView(load_config(), lambda: EMPTY_IMAGE, list, lambda: 0.0)
    found = Survey(EMPTY_IMAGE)
    assert not [*_of_leaders(node, found)]
    found.partitions, found.preferred[1], found.not_led[1] = 9, 3, 2
    found.preferred[3], found.not_led[3] = 3, 1
    (reason,) = _of_leaders(node, found)
    assert (reason.count, reason.brokers) == (3, [1, 3])
    assert reason.message.startswith("brokers 1, 3 lead fewer partitions than planned: others lead 3 of 9 ")
    off = load_config(flags={"auto.leader.rebalance.enable": "false"})
    (reason,) = _of_leaders(NodeView(off, lambda: EMPTY_IMAGE, list, lambda: 0.0), found)
    assert reason.message.endswith("the controller does not (auto.leader.rebalance.enable)")


class ShortOfMemory:
    """A node with two accounts. The first is used up."""

    def memory(self) -> list[AccountFacts]:
        return [AccountFacts("requests", 5, 10, 7, 0), AccountFacts("answers", 10, 10, 12, 3)]


def test_memory_that_is_used_up_is_a_reason_in_words() -> None:
    """Which, how much, what follows, and what an operator can do."""
    facts: Any = ShortOfMemory()
    view = NodeView(NodeConfig(node_id=3), lambda: EMPTY_IMAGE, list, lambda: 0.0, facts=facts)
    (reason,) = _of_memory(view)
    assert (reason.severity, reason.code, reason.brokers) == ("yellow", "memory_for_answers_exhausted", [3])
    assert "all 10 bytes" in reason.message
    assert "raftlog.answers.max.bytes" in reason.message and "raftlog.memory.max.bytes" in reason.message


def test_a_clock_that_is_not_believed_is_a_reason_in_words() -> None:
    """How far off it is, from what, what follows, and what an operator can do; a believed clock is none."""
    ages = Ages(lambda: 1_700_000_000_000, lambda: 100.0)
    view = NodeView(NodeConfig(node_id=3), lambda: EMPTY_IMAGE, list, lambda: 0.0, ages=ages)
    assert not [*_of_clock(view)]
    ages.resume(1_700_000_000_000 - 3_456_000_000, most_ms=600_000)
    (doubted,) = _of_clock(view)
    assert (doubted.severity, doubted.code, doubted.brokers) == ("yellow", "clock_doubted", [3])
    assert "3456000 s ahead of the time that it trusted before it stopped" in doubted.message
    assert "POST /v1/clock/accept" in doubted.message and "3456000 s have passed" in doubted.message
    ages.note_others(OtherClocks(2, 2, 0, 0, 0, -3_456_000_000))
    disagreeing, doubted = _of_clock(view)
    assert (disagreeing.severity, disagreeing.code) == ("yellow", "clocks_disagree")
    assert "disagrees with those of 2 of 2 other brokers" in disagreeing.message
    assert "3456000 s behind it" in disagreeing.message
    ages.accept()
    assert not [*_of_clock(view)]


def test_the_clock_of_a_controller_that_deletes_nothing_is_no_reason() -> None:
    """No heartbeat confirms it before it is the active controller, so it would be a reason for ever."""
    ages, is_active = Ages(lambda: 1_700_000_000_000, lambda: 100.0), False
    view = NodeView(
        NodeConfig(node_id=3),
        lambda: EMPTY_IMAGE,
        list,
        lambda: 0.0,
        ages=ages,
        deletes_by_age=lambda: is_active,
    )
    ages.resume(1_700_000_000_000 - 3_456_000_000, most_ms=600_000)
    assert not [*_of_clock(view)]
    is_active = True
    assert [each.code for each in _of_clock(view)] == ["clock_doubted"]


DAYS_40_MS = 40 * 86_400_000


def clocks_of(*ahead_ms: int, waiting: tuple[int, ...] = ()) -> list[Clock]:
    """Return the clocks of brokers 1, 2 and so on; brokers in `waiting` do not delete by age."""
    return [
        Clock(number, DAYS_40_MS * 500 + each, 0, number not in waiting)
        for number, each in enumerate(ahead_ms, 1)
    ]


def view_from(node_id: int) -> NodeView:
    return NodeView(NodeConfig(node_id=node_id), lambda: EMPTY_IMAGE, list, lambda: 0.0)


def test_every_node_names_the_broker_whose_clock_disagrees() -> None:
    """Health of nodes with right clocks is yellow too. The node itself has its own words for it."""
    found = clocks_of(0, 100, DAYS_40_MS, waiting=(3,))
    for asked in (1, 2):
        (reason,) = _of_other_clocks(view_from(asked), found)
        assert (reason.severity, reason.code, reason.brokers) == ("yellow", "clocks_disagree", [3])
        assert reason.message.startswith("broker 3: its clock disagrees with those of 2 of 2 other brokers")
        assert "3456000 s behind it" in reason.message and "set right" in reason.message
    assert not [*_of_other_clocks(view_from(3), found)]


def test_a_clock_that_is_believed_or_near_the_others_is_no_reason() -> None:
    """An operator may have overruled the others there; a node that has just started waits for their clocks."""
    assert not [*_of_other_clocks(view_from(1), clocks_of(0, 0, DAYS_40_MS))]
    assert not [*_of_other_clocks(view_from(1), clocks_of(0, 0, 500_000, waiting=(1, 2, 3)))]


def test_a_broker_that_doubts_its_clock_alone_is_named_by_the_others() -> None:
    """Its clock jumped, and the others' are unknown or near."""
    (reason,) = _of_other_clocks(view_from(1), [Clock(2, 0, -90_000, deletes_by_age=False)])
    assert (reason.severity, reason.code, reason.brokers) == ("yellow", "clock_doubted", [2])
    assert "90 s behind the time that it trusts" in reason.message


async def test_health_asks_the_clocks_of_unfenced_brokers_and_does_without_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fenced broker is not asked; an HTTP API that refuses leaves its broker's clock unknown."""
    brokers = {each: SimpleNamespace(broker_id=each, fenced=each == 4) for each in (1, 2, 3, 4)}
    node = view_from(1)
    node.image = lambda: SimpleNamespace(brokers=brokers)  # type: ignore[assignment, return-value]
    asked: list[int] = []

    async def ask(_: object, node_id: int, request: str, kind: type, *, with_login: bool) -> Clock:
        assert (request, kind, with_login) == ("GET /v1/clock", Clock, False)
        asked.append(node_id)
        if node_id == 2:
            raise ApiError(401, "node 2: no login")
        return Clock(node_id, 5, 0, deletes_by_age=True)

    monkeypatch.setattr(clocks, "ask_node", ask)
    found = await broker_clocks(SimpleNamespace(node=node))  # type: ignore[arg-type]
    assert sorted(asked) == [2, 3]
    assert [each.node_id for each in found] == [1, 3]


def test_a_node_without_a_majority_says_so(own_cluster: AdminCluster) -> None:
    """It answers all the same, in time, and does not pretend to know a controller. Restarted after it."""
    for each in (1, 2):
        own_cluster.kill(each)
    node = api_of(own_cluster, 3)
    health: dict[str, Any] = {}

    def is_told() -> bool:
        health.update(node.get("/v1/health").body)
        return "no_controller" in reasons(health)

    own_cluster.wait_until(is_told, "it is told")
    assert (health["status"], health["controller_id"]) == ("red", None)
    quorum = node.get("/v1/quorum").body
    assert not quorum["told_by_leader"]
    assert [each["state"] for each in quorum["voters"]] == ["unknown"] * 3
