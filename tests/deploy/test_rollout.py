"""Claims about rollouts and evictions of the chart, decided by Kubernetes' own controllers, scheduler and budget."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    try:
        found = KubernetesCluster(tmp_path_factory.mktemp("kubernetes"))
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        yield found
    finally:
        found.close()


@contextmanager
def hanging(kubernetes: KubernetesCluster, name: str) -> Iterator[None]:
    """Stop a pod's process without ending it, until its readiness probe has failed; let it go on afterwards."""
    container = kubernetes.kubelet.container_of(name)
    container.signal(signal.SIGSTOP)
    try:
        kubernetes.wait_until_ready(name, False)
        yield
    finally:
        container.signal(signal.SIGCONT)


def annotated(text: str, **values: Any) -> dict[str, Any]:
    """Return values that only change the pods' annotations, which `kubectl rollout restart` does."""
    return {"podAnnotations": {"restarted": text}, **QUICK, **values}


def test_the_statefulset_controller_brings_up_a_cluster_over_three_zones(
    kubernetes: KubernetesCluster,
) -> None:
    """The scheduler places each pod on a machine of its own; the zone of the machine is the broker's rack."""
    kubernetes.install({})
    pods = [kubernetes.pod(name) for name in PODS]
    assert {each["spec"]["nodeName"] for each in pods} == set(MACHINES)
    zones = {each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in pods}
    assert zones == {"zone-a", "zone-b", "zone-c"}
    with kubernetes.writing("first") as writing:
        writing.wait_for(100)
    assert writing.report["missing"] == [] and writing.report["errors"] == {}


def test_a_rollout_refuses_no_record_and_loses_none(kubernetes: KubernetesCluster) -> None:
    """A changed setting restarts the pods, the last first. Each stop waits until it is safe, and no two are away."""
    kubernetes.install({})
    addresses = {kubernetes.pod(name)["status"]["podIP"] for name in PODS}
    events, changes = len(kubernetes.kubelet.events), len(kubernetes.availability.away)
    with kubernetes.writing("rolled") as writing:
        kubernetes.install({"config": {"num.partitions": 6}})
        writing.wait_for(100)
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]
    assert max(len(each) for each in kubernetes.availability.away[changes:]) == 1
    assert [kubernetes.kubelet.events_of(name, events) for name in PODS] == [RESTARTED] * 3
    restarted = [each.pod for each in kubernetes.kubelet.events[events:] if each.what == "started"]
    assert restarted == list(reversed(PODS))
    assert addresses.isdisjoint(kubernetes.pod(name)["status"]["podIP"] for name in PODS)


def test_a_rollout_waits_for_a_node_that_hangs(kubernetes: KubernetesCluster) -> None:
    """The StatefulSet controller deletes the last pod although the first is not ready; the preStop hook holds it."""
    kubernetes.install(QUICK)
    events, changes = len(kubernetes.kubelet.events), len(kubernetes.availability.away)
    with kubernetes.writing("held") as writing:
        with hanging(kubernetes, "raftlog-0"):
            kubernetes.apply(annotated("while one hangs"))
            kubernetes.wait_for_event("raftlog-2", "preStop began", events)
            writing.wait_for(200)
            assert kubernetes.kubelet.events_of("raftlog-2", events) == ["preStop began"]
            assert kubernetes.availability.away[-1] == {"raftlog-0"}
        kubernetes.wait_until_rolled_out()
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]
    assert max(len(each) for each in kubernetes.availability.away[changes:]) == 1
    (hook,) = [each for each in kubernetes.kubelet.events[events:] if each.pod == "raftlog-2" and each.said]
    assert hook.said.startswith("waiting: ")


def test_without_the_hook_two_nodes_are_away(kubernetes: KubernetesCluster) -> None:
    """Otherwise the tests above could not fail. What was acknowledged is kept even so."""
    kubernetes.install({**QUICK, "waitSafeSeconds": 0})
    events, changes = len(kubernetes.kubelet.events), len(kubernetes.availability.away)
    with kubernetes.writing("hurried") as writing:
        with hanging(kubernetes, "raftlog-0"):
            writing.wait_for(200)  # then the node that hangs has left the ISRs
            kubernetes.apply(annotated("without a hook", waitSafeSeconds=0))
            kubernetes.wait_for_event("raftlog-2", "ended with 0", events)
        kubernetes.wait_until_rolled_out()
    assert max(len(each) for each in kubernetes.availability.away[changes:]) == 2
    assert writing.refusals > 0
    assert "preStop began" not in kubernetes.kubelet.events_of("raftlog-2", events)
    assert writing.report["missing"] == []


def test_a_second_eviction_is_refused_until_the_first_pod_is_back(kubernetes: KubernetesCluster) -> None:
    """By the budget of the chart, also while the evicted pod only waits for its end."""
    kubernetes.install(QUICK)
    events, changes = len(kubernetes.kubelet.events), len(kubernetes.availability.away)
    with kubernetes.writing("evicted") as writing:
        waits.until(lambda: _evicted(kubernetes, "raftlog-0"), "the first eviction is allowed")
        with pytest.raises(Refused) as refused:
            kubernetes.evict("raftlog-1")
        assert refused.value.code == TOO_MANY_REQUESTS
        assert "disruption budget" in str(refused.value)
        kubernetes.wait_for_event("raftlog-0", "ready", events)
        waits.until(lambda: _evicted(kubernetes, "raftlog-1"), "the second eviction is allowed")
        kubernetes.wait_for_event("raftlog-1", "ready", events)
    assert max(len(each) for each in kubernetes.availability.away[changes:]) == 1
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]


def test_a_node_that_hangs_lets_no_other_be_evicted(kubernetes: KubernetesCluster) -> None:
    """A pod that is not ready uses the budget up: a machine with another pod is not drained."""
    kubernetes.install(QUICK)
    with hanging(kubernetes, "raftlog-1"):
        waits.until(lambda: not kubernetes.disruptions_allowed(), "the budget is used up")
        with pytest.raises(Refused) as refused:
            kubernetes.evict("raftlog-2")
    assert refused.value.code == TOO_MANY_REQUESTS
    kubernetes.wait_until_ready("raftlog-1")


def _evicted(kubernetes: KubernetesCluster, name: str) -> bool:
    try:
        kubernetes.evict(name)
    except Refused as refused:
        assert refused.code == TOO_MANY_REQUESTS, refused
        return False
    return True


def test_a_node_that_hangs_for_good_is_restarted(kubernetes: KubernetesCluster) -> None:
    """By its liveness probe. The hook gets no answer, and only the probe's own grace period."""
    kubernetes.install(QUICK)
    events = len(kubernetes.kubelet.events)
    kubernetes.kubelet.container_of("raftlog-0").signal(signal.SIGSTOP)
    kubernetes.wait_for_event("raftlog-0", "ready", events)
    times = {each.what: each.at for each in kubernetes.kubelet.events[events:]}
    assert times["SIGKILL"] - times["liveness failed"] < 60
    assert times["ready"] > times["SIGKILL"]
    kubernetes.wait_until_rolled_out()


def test_helm_keeps_the_secret_and_refuses_other_voters(kubernetes: KubernetesCluster) -> None:
    """An upgrade looks into the cluster, which `helm template` cannot. The disks stay after an uninstallation."""
    alone = {"replicas": 1, "voters": 1, "waitSafeSeconds": 0, **QUICK}
    there = ("--namespace=alone", "--wait", "--timeout=5m")

    def upgrade(values: dict[str, Any]) -> str:
        options = ("--values=-", "--install", "--create-namespace", *there)
        upgraded = kubernetes.helm("upgrade", "raftlog", str(CHART), *options, values=values)
        return upgraded.stderr if upgraded.returncode else ""

    def found(kind: str, name: str) -> Any:
        return kubernetes.api.get(f"/api/v1/namespaces/alone/{kind}/{name}")

    assert upgrade(alone) == ""
    secret, pod = found("secrets", "raftlog"), found("pods", "raftlog-0")
    assert upgrade(alone | {"config": {"num.partitions": 6}}) == ""
    assert found("secrets", "raftlog")["data"] == secret["data"]
    assert found("pods", "raftlog-0")["metadata"]["uid"] != pod["metadata"]["uid"]
    refused = upgrade(alone | {"replicas": 3, "voters": 3})
    assert "this cluster has 1, and they can change only with dynamicVoters" in refused
    stateful = "/apis/apps/v1/namespaces/alone/statefulsets/raftlog"
    kubernetes.api.patch(stateful, {"metadata": {"annotations": {"raftlog/voters": "3"}}})
    refused = upgrade(alone | {"dynamicVoters": True})
    assert "3 voters cannot become one by restarts" in refused
    kubernetes.api.patch(stateful, {"metadata": {"annotations": {"raftlog/voters": "5"}}})
    refused = upgrade(alone | {"dynamicVoters": True, "replicas": 3, "voters": 3})
    assert "5 nodes vote, and there would be only 3 replicas" in refused
    assert kubernetes.helm("uninstall", "raftlog", *there, values={}).returncode == 0
    waits.until(lambda: not found("pods", "")["items"], "the pod is gone")
    assert found("persistentvolumeclaims", "data-raftlog-0")["status"]["phase"] == "Bound"
