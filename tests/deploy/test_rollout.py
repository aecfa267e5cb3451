"""Claims about rollouts and evictions of the chart, decided by Kubernetes' own controllers, scheduler and budget."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import CHART, needs_helm
from tests.deploy.control_plane import needs_control_plane
from tests.deploy.kubelet import MACHINES
from tests.deploy.kubernetes_api import Refused
from tests.deploy.kubernetes_cluster import PODS, KubernetesCluster
from tests.kit import waits

pytestmark = [needs_helm, needs_control_plane, pytest.mark.clients, pytest.mark.nightly]

RESTARTED = ["preStop began", "preStop ended with 0", "SIGTERM", "ended with 0", "started", "ready"]
TOO_MANY_REQUESTS = 429
QUICK = {"minReadySeconds": 1}
"""A value that is no part of the pods."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    try:
        found = KubernetesCluster(tmp_path_factory.mktemp("kubernetes"))
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        yield found
    finally:
        found.close()


@contextmanager
def hanging(cluster: KubernetesCluster, name: str) -> Iterator[None]:
    """Stop a pod's process without ending it, until its readiness probe has failed; let it go on afterwards."""
    container = cluster.kubelet.container_of(name)
    container.signal(signal.SIGSTOP)
    try:
        cluster.wait_until_ready(name, False)
        yield
    finally:
        container.signal(signal.SIGCONT)


def annotated(text: str, **values: Any) -> dict[str, Any]:
    """Return values that only change the pods' annotations, which `kubectl rollout restart` does."""
    return {"podAnnotations": {"restarted": text}, **QUICK, **values}


def test_the_statefulset_controller_brings_up_a_cluster_over_three_zones(cluster: KubernetesCluster) -> None:
    """The scheduler places each pod on a machine of its own; the zone of the machine is the broker's rack."""
    cluster.install({})
    pods = [cluster.pod(name) for name in PODS]
    assert {each["spec"]["nodeName"] for each in pods} == set(MACHINES)
    zones = {each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in pods}
    assert zones == {"zone-a", "zone-b", "zone-c"}
    with cluster.writing("first") as writing:
        writing.wait_for(100)
    assert writing.report["missing"] == [] and writing.report["errors"] == {}


def test_a_rollout_refuses_no_record_and_loses_none(cluster: KubernetesCluster) -> None:
    """A changed setting restarts the pods, the last first. Each stop waits until it is safe, and no two are away."""
    cluster.install({})
    addresses = {cluster.pod(name)["status"]["podIP"] for name in PODS}
    events, changes = len(cluster.kubelet.events), len(cluster.availability.away)
    with cluster.writing("rolled") as writing:
        cluster.install({"config": {"num.partitions": 6}})
        writing.wait_for(100)
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]
    assert max(len(each) for each in cluster.availability.away[changes:]) == 1
    assert [cluster.kubelet.events_of(name, events) for name in PODS] == [RESTARTED] * 3
    restarted = [each.pod for each in cluster.kubelet.events[events:] if each.what == "started"]
    assert restarted == list(reversed(PODS))
    assert addresses.isdisjoint(cluster.pod(name)["status"]["podIP"] for name in PODS)


def test_a_rollout_waits_for_a_node_that_hangs(cluster: KubernetesCluster) -> None:
    """The StatefulSet controller deletes the last pod although the first is not ready; the preStop hook holds it."""
    cluster.install(QUICK)
    events, changes = len(cluster.kubelet.events), len(cluster.availability.away)
    with cluster.writing("held") as writing:
        with hanging(cluster, "raftlog-0"):
            cluster.apply(annotated("while one hangs"))
            cluster.wait_for_event("raftlog-2", "preStop began", events)
            writing.wait_for(200)
            assert cluster.kubelet.events_of("raftlog-2", events) == ["preStop began"]
            assert cluster.availability.away[-1] == {"raftlog-0"}
        cluster.wait_until_rolled_out()
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]
    assert max(len(each) for each in cluster.availability.away[changes:]) == 1
    (hook,) = [each for each in cluster.kubelet.events[events:] if each.pod == "raftlog-2" and each.said]
    assert hook.said.startswith("waiting: ")


def test_without_the_hook_two_nodes_are_away(cluster: KubernetesCluster) -> None:
    """Otherwise the tests above could not fail. What was acknowledged is kept even so."""
    cluster.install({**QUICK, "waitSafeSeconds": 0})
    events, changes = len(cluster.kubelet.events), len(cluster.availability.away)
    with cluster.writing("hurried") as writing:
        with hanging(cluster, "raftlog-0"):
            writing.wait_for(200)  # then the node that hangs has left the ISRs
            cluster.apply(annotated("without a hook", waitSafeSeconds=0))
            cluster.wait_for_event("raftlog-2", "ended with 0", events)
        cluster.wait_until_rolled_out()
    assert max(len(each) for each in cluster.availability.away[changes:]) == 2
    assert writing.refusals > 0
    assert "preStop began" not in cluster.kubelet.events_of("raftlog-2", events)
    assert writing.report["missing"] == []


def test_a_second_eviction_is_refused_until_the_first_pod_is_back(cluster: KubernetesCluster) -> None:
    """By the budget of the chart, also while the evicted pod only waits for its end."""
    cluster.install(QUICK)
    events, changes = len(cluster.kubelet.events), len(cluster.availability.away)
    with cluster.writing("evicted") as writing:
        waits.until(lambda: _evicted(cluster, "raftlog-0"), "the first eviction is allowed")
        with pytest.raises(Refused) as refused:
            cluster.evict("raftlog-1")
        assert refused.value.code == TOO_MANY_REQUESTS
        assert "disruption budget" in str(refused.value)
        cluster.wait_for_event("raftlog-0", "ready", events)
        waits.until(lambda: _evicted(cluster, "raftlog-1"), "the second eviction is allowed")
        cluster.wait_for_event("raftlog-1", "ready", events)
    assert max(len(each) for each in cluster.availability.away[changes:]) == 1
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]


def test_a_node_that_hangs_lets_no_other_be_evicted(cluster: KubernetesCluster) -> None:
    """A pod that is not ready uses the budget up: a machine with another pod is not drained."""
    cluster.install(QUICK)
    with hanging(cluster, "raftlog-1"):
        waits.until(lambda: not cluster.disruptions_allowed(), "the budget is used up")
        with pytest.raises(Refused) as refused:
            cluster.evict("raftlog-2")
    assert refused.value.code == TOO_MANY_REQUESTS
    cluster.wait_until_ready("raftlog-1")


def _evicted(cluster: KubernetesCluster, name: str) -> bool:
    try:
        cluster.evict(name)
    except Refused as refused:
        assert refused.code == TOO_MANY_REQUESTS, refused
        return False
    return True


def test_a_node_that_hangs_for_good_is_restarted(cluster: KubernetesCluster) -> None:
    """By its liveness probe. The hook gets no answer, and only the probe's own grace period."""
    cluster.install(QUICK)
    events = len(cluster.kubelet.events)
    cluster.kubelet.container_of("raftlog-0").signal(signal.SIGSTOP)
    cluster.wait_for_event("raftlog-0", "ready", events)
    times = {each.what: each.at for each in cluster.kubelet.events[events:]}
    assert times["SIGKILL"] - times["liveness failed"] < 60
    assert times["ready"] > times["SIGKILL"]
    cluster.wait_until_rolled_out()


def test_the_chart_grows_the_voters(tmp_path: Path) -> None:
    """From one to three while records are written: the pods restart, and join by themselves."""
    values = {"dynamicVoters": True, "initialVoters": 1, **QUICK}
    with closing(KubernetesCluster(tmp_path)) as cluster:
        cluster.install({**values, "voters": 1})

        def quorum(*arguments: str) -> str:
            command = ("raftlog", "quorum", *arguments, "--bootstrap", "localhost:9092")
            return str(cluster.kubelet.container_of("raftlog-0").execute(command).communicate()[0])

        def voters() -> list[int]:
            rows = json.loads(quorum("replication", "--output", "json"))
            return sorted(row["node"] for row in rows if row["status"] != "observer")

        assert "the voters can change" in quorum("dynamic")
        assert voters() == [0]
        with cluster.writing("grown") as writing:
            cluster.install({**values, "voters": 3})
            waits.until(lambda: voters() == [0, 1, 2], "all three vote", seen=voters)
            writing.wait_for(100)
        assert writing.report["missing"] == [] and writing.refusals == 0


def test_helm_keeps_the_secret_and_refuses_other_voters(cluster: KubernetesCluster) -> None:
    """An upgrade looks into the cluster, which `helm template` cannot. The disks stay after an uninstallation."""
    alone = {"replicas": 1, "voters": 1, "waitSafeSeconds": 0, **QUICK}
    there = ("--namespace=alone", "--wait", "--timeout=5m")

    def upgrade(values: dict[str, Any]) -> str:
        options = ("--values=-", "--install", "--create-namespace", *there)
        upgraded = cluster.helm("upgrade", "raftlog", str(CHART), *options, values=values)
        return upgraded.stderr if upgraded.returncode else ""

    def found(kind: str, name: str) -> Any:
        return cluster.api.get(f"/api/v1/namespaces/alone/{kind}/{name}")

    assert upgrade(alone) == ""
    secret, pod = found("secrets", "raftlog"), found("pods", "raftlog-0")
    assert upgrade(alone | {"config": {"num.partitions": 6}}) == ""
    assert found("secrets", "raftlog")["data"] == secret["data"]
    assert found("pods", "raftlog-0")["metadata"]["uid"] != pod["metadata"]["uid"]
    refused = upgrade(alone | {"replicas": 3, "voters": 3})
    assert "this cluster has 1, and they can change only with dynamicVoters" in refused
    stateful = "/apis/apps/v1/namespaces/alone/statefulsets/raftlog"
    cluster.api.patch(stateful, {"metadata": {"annotations": {"raftlog/voters": "3"}}})
    refused = upgrade(alone | {"dynamicVoters": True})
    assert "3 voters cannot become one by restarts" in refused
    cluster.api.patch(stateful, {"metadata": {"annotations": {"raftlog/voters": "5"}}})
    refused = upgrade(alone | {"dynamicVoters": True, "replicas": 3, "voters": 3})
    assert "5 nodes vote, and there would be only 3 replicas" in refused
    assert cluster.helm("uninstall", "raftlog", *there, values={}).returncode == 0
    waits.until(lambda: not found("pods", "")["items"], "the pod is gone")
    assert found("persistentvolumeclaims", "data-raftlog-0")["status"]["phase"] == "Bound"
