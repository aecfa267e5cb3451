"""Claims about `why`: every node reports the same causal chain of a partition or broker."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from raftlog.admin.native.why import partition_event
from raftlog.metadata.causes import Cause
from raftlog.metadata.history import History
from raftlog.metadata.metadata_records import BrokerChanged, PartitionChanged
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.admin.test_health import api_of, create
from tests.metadata.test_history import DEAD, HistorySetup
from tests.metadata.test_history import TOPIC as TOPIC_ID

TOPIC = "trips"


@pytest.fixture
def cluster_with_topic(own_cluster: AdminCluster) -> AdminCluster:
    create(own_cluster, TOPIC)
    return own_cluster


def why(node: Api) -> dict[str, Any]:
    body: dict[str, Any] = node.get(f"/v1/topics/{TOPIC}/partitions/0/why").body
    return body


def broker_why(node: Api, broker_id: int) -> dict[str, Any]:
    body: dict[str, Any] = node.get(f"/v1/brokers/{broker_id}/why").body
    return body


def make_leader(cluster: AdminCluster, broker_id: int) -> None:
    """Have a broker lead the first partition, and wait until every node knows."""
    nodes = [api_of(cluster, each) for each in cluster.nodes]
    if why(nodes[0])["leader"] != broker_id:
        moved = nodes[0].ask("POST", f"/v1/topics/{TOPIC}/partitions/0/leader", {"leader": broker_id})
        assert moved.status == 200, moved
    cluster.wait_until(lambda: all(why(each)["leader"] == broker_id for each in nodes), "it leads")


def follower_of_quorum(cluster: AdminCluster) -> int:
    return next(each for each in (1, 2, 3) if each != cluster.controller_id())


def test_a_killed_leader_is_the_reason_for_the_next_one(cluster_with_topic: AdminCluster) -> None:
    """Created → the leader died, and why that is believed → another took over → the first is back and caught up."""
    victim = follower_of_quorum(cluster_with_topic)
    make_leader(cluster_with_topic, victim)
    cluster_with_topic.kill(victim)
    asked = [api_of(cluster_with_topic, each) for each in sorted(cluster_with_topic.running_ids())]
    cluster_with_topic.wait_until(
        lambda: all(why(each)["leader"] != victim for each in asked), "another leads"
    )
    told: list[dict[str, Any]] = []

    def tell_the_same() -> bool:
        told[:] = [why(each) for each in asked]
        return told[0] == told[1]

    cluster_with_topic.wait_until(tell_the_same, "whichever is asked has heard of it")
    newest, *_, oldest = told[0]["events"]
    assert oldest["what"] == ["created"]
    assert newest["what"] == ["leader_changed", "isr_shrunk"]
    assert newest["message"].startswith(f"broker {told[0]['leader']} took over from broker {victim}; ")
    assert newest["because"].startswith(f"broker {victim} was considered dead: connection ")
    assert newest["causes"][0]["kind"] == "taken_for_dead"
    assert newest["brokers"][0]["broker_id"] == victim
    assert newest["brokers"][0]["what"] == ["fenced"]
    assert newest["when"]["at_ms"] > oldest["when"]["at_ms"] > 1_700_000_000_000
    assert f"because broker {victim} was considered dead" in told[0]["summary"]
    assert f"Not in sync: {victim}." in told[0]["summary"]
    assert told[0]["complete"]


def test_a_fencing_has_its_cause_and_its_end(cluster_with_topic: AdminCluster) -> None:
    """Fenced, because its port refused; started anew; in service, because it caught up."""
    victim = follower_of_quorum(cluster_with_topic)
    asked = api_of(cluster_with_topic, next(iter(cluster_with_topic.running_ids() - {victim})))
    cluster_with_topic.kill(victim)
    cluster_with_topic.wait_until(lambda: broker_why(asked, victim)["fenced"], "it is fenced")
    fenced = broker_why(asked, victim)
    assert fenced["events"][0]["what"] == ["fenced"]
    assert fenced["events"][0]["partitions_changed"] >= 3
    assert f"because broker {victim} was considered dead" in fenced["summary"]
    cluster_with_topic.restart(victim)
    cluster_with_topic.wait_until(lambda: not broker_why(asked, victim)["fenced"], "it is in service")
    back = broker_why(asked, victim)
    assert [each["what"] for each in back["events"][:2]] == [["unfenced"], ["registered"]]
    assert "has caught up" in back["events"][0]["because"]
    cluster_with_topic.wait_until(lambda: len(why(asked)["isr"]) == 3, "the ISR is whole")
    assert why(asked)["events"][0]["what"] == ["isr_expanded"]
    assert why(asked)["events"][0]["because"].startswith("it caught up with its leader, broker ")


def test_a_restarted_node_remembers_what_its_journal_holds(cluster_with_topic: AdminCluster) -> None:
    """A broker reports the events during its downtime, as the others do."""
    victim = follower_of_quorum(cluster_with_topic)
    other = next(each for each in (1, 2, 3) if each != victim)
    cluster_with_topic.restart(victim)
    node, reference = api_of(cluster_with_topic, victim), api_of(cluster_with_topic, other)
    cluster_with_topic.wait_until(lambda: node.get("/v1/ready").status == 200, "it takes part")
    cluster_with_topic.wait_until(lambda: why(node) == why(reference), "both tell the same")
    assert why(node)["complete"]


def test_a_controlled_shutdown_is_reported_as_what_it_is(cluster_with_topic: AdminCluster) -> None:
    """A broker that was asked to stop was not taken for dead."""
    victim = follower_of_quorum(cluster_with_topic)
    cluster_with_topic.nodes[victim].signal(signal.SIGTERM)
    cluster_with_topic.nodes[victim].wait()
    asked = api_of(cluster_with_topic, next(iter(cluster_with_topic.running_ids())))
    cluster_with_topic.wait_until(lambda: broker_why(asked, victim)["fenced"], "it is fenced")
    events = broker_why(asked, victim)["events"]
    began = next(each for each in events if "shutdown_began" in each["what"])
    assert began["because"] == f"broker {victim} is being stopped"


def test_explaining_a_resource_that_does_not_exist_is_404(cluster_with_topic: AdminCluster) -> None:
    """404, with the code that clients of REST v3 know."""
    asked = api_of(cluster_with_topic, next(iter(cluster_with_topic.running_ids())))
    missing = asked.get("/v1/topics/nothing/partitions/0/why")
    assert (missing.status, missing.body["error_code"]) == (404, 40403)
    assert asked.get(f"/v1/topics/{TOPIC}/partitions/-1/why").status == 404
    assert asked.get("/v1/brokers/99/why").status == 404


def test_broker_that_left_the_isr_later_than_it_was_fenced_has_its_fencing_as_the_cause() -> None:
    """While another broker was in doubt, the controller waited; that broker's return is half of the reason."""
    told = HistorySetup(History())
    told.begin()
    told.tell(BrokerChanged(1, 0, fenced=False))
    fenced_at = told.image.offset
    told.tell(BrokerChanged(1, 0, fenced=True), causes=(DEAD,))
    told.tell(BrokerChanged(1, 0, draining=True))
    told.tell(PartitionChanged(TOPIC_ID, 0, leader=2, isr=(1, 2)))
    told.tell(PartitionChanged(TOPIC_ID, 0, isr=(2,)), causes=(Cause("heard_again", 3),))
    event = partition_event(told.history, told.history.partition(TOPIC_ID, 0)[-1])
    assert event.message == "1 left the ISR, which is now 2"
    assert event.because == (
        "broker 1 was out of service; broker 3 answered the controller again, which had delayed this meanwhile"
    )
    (fenced,) = event.brokers
    assert (fenced.broker_id, fenced.what, fenced.when.metadata_offset) == (1, ["fenced"], fenced_at)
    assert fenced.because == "broker 1 was considered dead: connection refused"


def test_changes_of_eligible_leaders_are_told() -> None:
    """A replica becomes eligible as it leaves the ISR, and its eligibility ends while the ISR stays."""
    told = HistorySetup(History())
    told.begin()
    told.tell(PartitionChanged(TOPIC_ID, 0, isr=(1,), eligible=(2,)), causes=(DEAD,))
    told.tell(PartitionChanged(TOPIC_ID, 0, eligible=()), causes=(Cause("min_insync_lowered"),))
    became, ended = (partition_event(told.history, each) for each in told.history.partition(TOPIC_ID, 0)[1:])
    assert became.what == ["isr_shrunk", "eligible_leaders_changed"]
    assert became.message == (
        "2 left the ISR, which is now 1; 2 may lead all the same, if no broker in the ISR is in service"
    )
    assert (ended.what, ended.message) == (["eligible_leaders_changed"], "only brokers in the ISR may lead")
    assert ended.because == "min.insync.replicas is no more than the replicas in sync"
