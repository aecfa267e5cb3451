"""A Kubernetes cluster without containers, and the chart's release in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

import yaml

from raftlog.testing.network import CLIENTS, NETWORK, Network
from tests.deploy.chart import Release, render, tool
from tests.deploy.control_plane import ControlPlane
from tests.deploy.kubelet import Kubelet
from tests.deploy.kubernetes_api import Object
from tests.kit import waits

HOSTS: Final = 9
"""Pods that run at most. A pod gets the host that was not used for the longest time."""
NAMESPACE: Final = "logs"
PODS: Final = ("raftlog-0", "raftlog-1", "raftlog-2")
BOOTSTRAP: Final = "raftlog.logs.svc.cluster.local:9092"
TOKEN: Final = "a" * 40
"""Of an administrator, for the HTTP API."""
SECRET: Final = {
    "cluster.secret": "c" * 48,
    "admin.tokens": f"operator admin {TOKEN}\nreader metrics {'m' * 40}\n",
    "metrics.token": "m" * 40,
}


class Availability:
    """Which of the pods are away (missing or not ready), after each change that the API server reports."""

    def __init__(self) -> None:
        self._ready: dict[str, bool] = dict.fromkeys(PODS, False)
        self.away: list[frozenset[str]] = []

    def see(self, kind: str, pod: Object) -> None:
        conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
        self._ready[pod["metadata"]["name"]] = kind != "DELETED" and conditions.get("Ready") == "True"
        self.away.append(frozenset(name for name, ready in self._ready.items() if not ready))


class Writing:
    """A `tests.deploy.writer` that runs beside the pods. Once it has ended, `report` is what it found."""

    def __init__(self, topic: str, hosts_file: Path) -> None:
        self.acknowledged, self.report = 0, dict[str, Any]()
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        command = [sys.executable, "-m", "tests.deploy.writer", BOOTSTRAP, topic]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", script, str(hosts_file), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = Thread(target=self._read)
        self._thread.start()
        self.wait_for(1)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                found = json.loads(line)
                if isinstance(found, int):
                    self.acknowledged = found
                else:
                    self.report = found

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = self.acknowledged + more
        waits.until(
            lambda: self.acknowledged >= wanted or self._process.poll() is not None,
            f"{more} more records are acknowledged",
            seen=lambda: self.acknowledged,
        )
        assert self._process.poll() is None, "the writer has ended"

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert waits.ended(self._process) == 0
        self._thread.join()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    @property
    def refusals(self) -> int:
        """How many records were refused because too few replicas were in sync."""
        return sum(
            number for name, number in self.report["errors"].items() if name.startswith("NOT_ENOUGH_REPLICAS")
        )


class KubernetesCluster:
    """Three machines, and the release `raftlog` once `install` was called. Raise OSError without network namespaces.

    The thread that makes it is in the cluster's network until `close`.
    """

    def __init__(self, folder: Path) -> None:
        self._open = ExitStack()
        try:
            network = Network(HOSTS)
            self._open.callback(network.release)
            network.switch.enter()
            self._open.callback(network.outside.enter)
            control_plane = ControlPlane(folder / "control-plane")
            self._open.callback(control_plane.stop)
            control_plane.start(f"{NETWORK}{CLIENTS}")
            self.api, self._config_path = control_plane.api, control_plane.config_path
            self.kubelet = Kubelet(self.api, network, folder / "kubelet")
            self._open.callback(self.kubelet.close)
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Make the namespace and the Secret that the chart needs, and watch the pods."""
        self.availability = Availability()
        self.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "stringData": SECRET}
        self.api.apply(secret, NAMESPACE)
        Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        for kind, pod in self.api.watch(f"/api/v1/namespaces/{NAMESPACE}/pods"):
            self.availability.see(kind, pod)

    def apply(self, values: Mapping[str, Any]) -> None:
        """Render the chart and apply its objects; does not wait."""
        objects = Release(render({"existingSecret": "mine", **values})).objects
        for kind, name in sorted(objects, key=lambda each: each[0] == "StatefulSet"):
            self.api.apply(objects[kind, name], NAMESPACE)

    def install(self, values: Mapping[str, Any]) -> None:
        """Apply the chart, and wait until all pods are rolled out."""
        self.apply(values)
        self.wait_until_rolled_out()

    def helm(self, *arguments: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        """Return what helm says, asked to do something in this cluster, with values if it takes any."""
        helm = tool("helm")
        assert helm is not None
        return subprocess.run(
            [helm, f"--kubeconfig={self._config_path}", *arguments],
            input=yaml.safe_dump(dict(values)),
            capture_output=True,
            text=True,
            check=False,
        )

    def stateful_set(self) -> Object:
        return self.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/raftlog")

    def wait_until_rolled_out(self) -> None:
        """Do what `kubectl rollout status` does."""
        waits.until(self._is_rolled_out, "the pods are rolled out", seen=self._seen)

    def _is_rolled_out(self) -> bool:
        self.kubelet.check()
        found = self.stateful_set()
        status, wanted = found["status"], found["spec"]["replicas"]
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("currentRevision") == status.get("updateRevision")
            and status.get("availableReplicas") == status.get("updatedReplicas") == wanted
        )

    def _seen(self) -> object:
        return self.stateful_set()["status"], self.kubelet.events[-5:], self.kubelet.liveness_failures()

    def pod(self, name: str) -> Object:
        return self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

    def pods(self) -> list[str]:
        """Return the names of all pods."""
        found = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")
        return sorted(each["metadata"]["name"] for each in found["items"])

    def lose_disk(self, pod: str) -> None:
        """Lose a machine with a local disk: an operator deletes the claim and, without a grace period, the pod."""
        claim = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/data-{pod}"
        self.api.ask("DELETE", claim)
        self.api.patch(claim, {"metadata": {"finalizers": None}})  # no controller here removes it
        self.api.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}", {"gracePeriodSeconds": 0})

    def wait_until_ready(self, name: str, ready: bool = True) -> None:
        """Wait until a pod's condition Ready is so."""

        def is_so() -> bool:
            self.kubelet.check()
            conditions = {each["type"]: each["status"] for each in self.pod(name)["status"]["conditions"]}
            return conditions["Ready"] == str(ready)

        waits.until(is_so, f"{name} is {'' if ready else 'not '}ready", seen=self._seen)

    def wait_for_event(self, pod: str, what: str, since: int) -> None:
        """Wait for an event of a pod, after the first `since` events of all."""

        def happened() -> bool:
            self.kubelet.check()
            return what in self.kubelet.events_of(pod, since)

        waits.until(happened, f"{pod}: {what}", seen=self._seen)

    def evict(self, name: str) -> None:
        """Ask for a pod's eviction, as `kubectl drain` does. Raise Refused if the budget does not allow it."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", eviction)

    def disruptions_allowed(self) -> int:
        """Return how many pods may be evicted now."""
        budget = self.api.get(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/raftlog")
        return int(budget["status"]["disruptionsAllowed"])

    @contextmanager
    def writing(self, topic: str) -> Iterator[Writing]:
        """Let a writer write to a new topic meanwhile; at the end it compares."""
        writing = Writing(topic, self.kubelet.hosts_file)
        try:
            yield writing
            writing.end()
        finally:
            writing.kill()

    def close(self) -> None:
        """Kill all processes and leave the network, in the thread that made it."""
        self._open.close()
