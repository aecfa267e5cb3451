"""Claims about voters of the chart that come, go and lose their disks, decided by Kubernetes' own controllers.

A producer with acks=all and without retries writes meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import needs_helm
from tests.deploy.control_plane import needs_control_plane
from tests.deploy.kubernetes_cluster import PODS, TOKEN, KubernetesCluster
from tests.kit import waits

pytestmark = [needs_helm, needs_control_plane, pytest.mark.clients, pytest.mark.nightly]

VALUES = {"dynamicVoters": True, "minReadySeconds": 1}


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesCluster]:
    try:
        found = KubernetesCluster(tmp_path)
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    with closing(found):
        yield found


def command(kubernetes: KubernetesCluster, *arguments: str) -> str:
    """Return what a command of raftlog prints in a pod that stays; it is to succeed."""
    process = kubernetes.kubelet.container_of("raftlog-1").execute(("raftlog", *arguments))
    said = str(process.communicate()[0])
    assert process.returncode == 0, said
    return said


def voters(kubernetes: KubernetesCluster) -> dict[int, str]:
    """Return the directory id of each voter."""
    rows = json.loads(command(kubernetes, "quorum", "replication", "-b", "localhost:9092", "-o", "json"))
    return {row["node"]: row["directory_id"] for row in rows if row["status"] != "observer"}


def install(kubernetes: KubernetesCluster, **values: Any) -> None:
    """Install the chart, and have the metadata hold the voters."""
    kubernetes.install({**VALUES, **values})
    assert "the voters can change" in command(kubernetes, "quorum", "dynamic", "-b", "localhost:9092")


def wait_for_voters(kubernetes: KubernetesCluster, wanted: list[int]) -> None:
    waits.until(
        lambda: sorted(voters(kubernetes)) == wanted, f"{wanted} vote", seen=lambda: voters(kubernetes)
    )


def test_the_chart_grows_the_voters(kubernetes: KubernetesCluster) -> None:
    """From one to three while records are written: the pods restart, and join by themselves."""
    install(kubernetes, initialVoters=1, voters=1)
    assert sorted(voters(kubernetes)) == [0]
    with kubernetes.writing("grown") as writing:
        kubernetes.install({**VALUES, "initialVoters": 1, "voters": 3})
        wait_for_voters(kubernetes, [0, 1, 2])
        writing.wait_for(100)
    assert writing.report["missing"] == [] and writing.refusals == 0


def test_the_chart_shrinks_the_voters_and_then_the_nodes(kubernetes: KubernetesCluster) -> None:
    """From five to three: the last two leave the quorum, hand their replicas over, and go."""
    values = {"initialVoters": 5, "replicas": 5}
    install(kubernetes, voters=5, **values)
    assert sorted(voters(kubernetes)) == [0, 1, 2, 3, 4]
    with kubernetes.writing("shrunk") as writing:
        kubernetes.install({**VALUES, **values, "voters": 3})
        wait_for_voters(kubernetes, [0, 1, 2])
        writing.wait_for(100)
        for broker in ("3", "4"):
            command(kubernetes, "broker", "decommission", broker, "--wait", "--token", TOKEN)
        kubernetes.install({**VALUES, **values, "voters": 3, "replicas": 3})
        waits.until(lambda: kubernetes.pods() == list(PODS), "the last two are gone", seen=kubernetes.pods)
        writing.wait_for(100)
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]


@pytest.mark.parametrize("lost", [0, 2])
def test_a_node_that_lost_its_disk_votes_again(kubernetes: KubernetesCluster, lost: int) -> None:
    """Its pod and its claim are gone. Both are made anew, its former directory leaves, and the new one joins."""
    install(kubernetes, voters=3)
    before = voters(kubernetes)
    with kubernetes.writing("kept") as writing:
        writing.wait_for(100)
        events = len(kubernetes.kubelet.events)
        kubernetes.lose_disk(f"raftlog-{lost}")
        kubernetes.wait_for_event(f"raftlog-{lost}", "ready", events)
        waits.until(
            lambda: voters(kubernetes).get(lost) not in (None, before[lost]),
            "the new disk votes",
            seen=lambda: voters(kubernetes),
        )
        writing.wait_for(100)
    after = voters(kubernetes)
    assert {node for node in after if after[node] != before[node]} == {lost}
    assert writing.report["missing"] == []
    assert writing.refusals == 0, writing.report["errors"]
