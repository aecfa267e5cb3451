"""What runs pods where no container runtime is: the kubelets of some machines, with what a cluster has beside them.

Kubernetes' own controllers and scheduler decide. This does what is left. It runs the pods that are bound to its
machines (`PodWorker`), each in a network namespace with a new address. Each persistent volume claim gets a folder.
The names in EndpointSlices go into a hosts file, in place of a DNS server. A Service's own name leads to its ready
pods, since there is no kube-proxy.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple

from raftlog.testing.netns import Namespace
from raftlog.testing.network import Network
from tests.deploy.chart import VARIABLE
from tests.deploy.container import ENTRYPOINT, Container, Mount, User
from tests.deploy.kubernetes_api import Api, Object, Refused
from tests.deploy.pod_worker import PodWorker

MACHINES: Final = ("machine-1", "machine-2", "machine-3")
LABEL: Final = re.compile(r"metadata\.labels\['(.*)'\]")
DOMAIN: Final = "svc.cluster.local"
ALREADY_EXISTS: Final = 409


class PodEvent(NamedTuple):
    """Something that happened to a pod. `said` is what a hook printed."""

    at: float
    pod: str
    what: str
    said: str


class Kubelet:
    """The kubelets of MACHINES. `events` is what happened to pods, `failures` what must not happen."""

    def __init__(self, api: Api, network: Network, folder: Path) -> None:
        self.api, self.network = api, network
        self.events: list[PodEvent] = []
        self.failures: list[Exception] = []
        self.hosts_file = folder / "hosts"
        """The addresses of pods and Services by their names."""
        self._folder = folder
        self._hosts = deque(network.hosts)
        self._pods: dict[str, PodWorker] = {}
        self._slices: dict[str, Object] = {}
        self._lock = Lock()
        folder.mkdir()
        self.hosts_file.touch()
        self._write_names()
        for number, name in enumerate(MACHINES):
            self._join(name, f"zone-{'abc'[number]}")
        for path, see in (
            ("/api/v1/persistentvolumeclaims", self._see_claim),
            ("/apis/discovery.k8s.io/v1/endpointslices", self._see_slice),
            ("/api/v1/pods", self._see_pod),
        ):
            Thread(target=self._follow, args=(path, see), daemon=True).start()

    def _join(self, name: str, zone: str) -> None:
        """Register a machine that is ready, and has room."""
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        self.api.post(
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}},
        )
        room = {"cpu": "8", "memory": "16Gi", "pods": "20"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        self.api.patch(
            f"/api/v1/nodes/{name}/status",
            {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}},
        )

    def _follow(self, path: str, see: Callable[[str, Object], None]) -> None:
        try:
            for kind, each in self.api.watch(path):
                see(kind, each)
        except Exception as error:  # the test has to know
            self.failures.append(error)

    def _see_pod(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            if (gone := self._pods.pop(uid, None)) is not None:
                gone.close()
            return
        if pod["spec"].get("nodeName") not in MACHINES:
            return
        if uid not in self._pods:
            self._pods[uid] = PodWorker(self, pod)
        if "deletionTimestamp" in pod["metadata"]:
            self._pods[uid].delete(pod["metadata"]["deletionGracePeriodSeconds"])

    def _see_claim(self, kind: str, claim: Object) -> None:
        """Make a volume for a claim, as a provisioner does; the controller binds them."""
        name, spec = claim["metadata"]["name"], claim["spec"]
        if kind == "DELETED" or "volumeName" in spec:
            return
        folder = self._folder / "volumes" / claim["metadata"]["uid"]
        (folder / "lost+found").mkdir(parents=True, exist_ok=True)  # as a new disk has it
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": claim["metadata"]["uid"]},
            "spec": {
                "capacity": spec["resources"]["requests"],
                "accessModes": spec["accessModes"],
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": claim["metadata"]["namespace"], "name": name},
            },
        }
        try:
            self.api.post("/api/v1/persistentvolumes", volume)
        except Refused as refused:
            if refused.code != ALREADY_EXISTS:
                raise

    def _see_slice(self, kind: str, found: Object) -> None:
        name = found["metadata"]["name"]
        self._slices.pop(name, None)
        if kind != "DELETED":
            self._slices[name] = found
        self._write_names()

    def _write_names(self) -> None:
        """Write all names in place, with one call: containers have this very file mounted."""
        lines = ["127.0.0.1 localhost"]
        for found in self._slices.values():
            metadata = found["metadata"]
            service = metadata["labels"]["kubernetes.io/service-name"]
            domain = f"{service}.{metadata['namespace']}.{DOMAIN}"
            for each in found.get("endpoints") or []:
                if each["conditions"].get("ready", True):
                    names = [domain, *([f"{each['hostname']}.{domain}"] if "hostname" in each else [])]
                    lines += [f"{each['addresses'][0]} {name}" for name in names]
        text = "\n".join([*lines, ""]).encode()
        with self.hosts_file.open("r+b", buffering=0) as file:
            file.write(text.ljust(os.fstat(file.fileno()).st_size, b"\n"))

    def take_host(self) -> int:
        """Return the number of a host for a pod, the longest unused, so that a new pod has another address."""
        with self._lock:
            return self._hosts.popleft()

    def give_back(self, host: int) -> None:
        with self._lock:
            self._hosts.append(host)

    def note(self, pod: str, what: str, said: str = "") -> None:
        """Write down what happened to a pod."""
        self.events.append(PodEvent(time.monotonic(), pod, what, said))

    def events_of(self, pod: str, since: int = 0) -> list[str]:
        """Return what happened to a pod, without the first `since` events of all pods."""
        return [each.what for each in self.events[since:] if each.pod == pod]

    def liveness_failures(self) -> int:
        """Return how often liveness probes have failed, which is progress towards the end of a container."""
        return sum(each.liveness_failures for each in list(self._pods.values()))

    def container_of(self, pod: str) -> Container:
        """Return the container of the pod that has this name now."""
        (worker,) = [each for each in self._pods.values() if each.name == pod]
        assert worker.container is not None
        return worker.container

    def make_container(self, pod: Object, network: Namespace) -> Container:
        """Return the only container of a pod, with its volumes, not yet started."""
        (spec,) = pod["spec"]["containers"]
        folder = self._folder / f"{pod['metadata']['name']}-{pod['metadata']['uid']}"
        environment = {each["name"]: self._value(each, pod) for each in spec.get("env", [])}
        command = [*spec.get("command", ENTRYPOINT), *spec.get("args", [])]
        volumes = {each["name"]: self._volume(each, pod) for each in pod["spec"].get("volumes", [])}
        mounts = [
            Mount(volumes[each["name"]], each["mountPath"], each.get("readOnly", False))
            for each in spec["volumeMounts"]
        ]
        return Container(
            folder,
            [
                *(VARIABLE.sub(lambda found: environment[found[1]], each) for each in command),
                "--exit-with-stdin",
            ],
            environment=environment,
            mounts=[Mount(self.hosts_file, "/etc/hosts", True), *mounts],
            user=User.of(pod["spec"], spec),
            read_only=spec.get("securityContext", {}).get("readOnlyRootFilesystem", False),
            network=network,
        )

    def _value(self, variable: Object, pod: Object) -> str:
        """Return the value of a variable of a container."""
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        if label := LABEL.fullmatch(path):
            return str(pod["metadata"]["labels"].get(label[1], ""))
        section, name = path.split(".")
        return str(pod[section][name])

    def _volume(self, volume: Object, pod: Object) -> Path:
        """Return the folder of a volume, which the pod's group may write."""
        namespace, group = pod["metadata"]["namespace"], pod["spec"]["securityContext"]["fsGroup"]
        if "persistentVolumeClaim" in volume:
            folder = self._folder_of_claim(namespace, volume["persistentVolumeClaim"]["claimName"])
        else:
            folder = self._folder / "ephemeral" / pod["metadata"]["uid"] / volume["name"]
            folder.mkdir(parents=True)
        if "secret" in volume:
            self._write_secret(folder, namespace, volume["secret"], group)
        os.chown(folder, 0, group)
        folder.chmod(0o2775)
        return folder

    def _write_secret(self, folder: Path, namespace: str, volume: Mapping[str, object], group: int) -> None:
        secret = self.api.get(f"/api/v1/namespaces/{namespace}/secrets/{volume['secretName']}")
        for name, text in secret["data"].items():
            file = folder / name
            file.write_bytes(base64.b64decode(text))
            os.chown(file, 0, group)
            file.chmod(int(str(volume["defaultMode"])))

    def _folder_of_claim(self, namespace: str, name: str) -> Path:
        claim = self.api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
        volume = self.api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        return Path(volume["spec"]["hostPath"]["path"])

    def check(self) -> None:
        """Raise what went wrong in a thread, if anything did."""
        for each in self.failures:
            raise each

    def close(self) -> None:
        """Kill all containers."""
        for each in list(self._pods.values()):
            each.close()
