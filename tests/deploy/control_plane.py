"""Kubernetes' own control plane as processes: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

`make kubernetes-test` builds all four as one program. They listen on the loopback of the network namespace that the
calling thread is in, so their ports are free.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.deploy.chart import tool
from tests.deploy.kubernetes_api import Api, Refused
from tests.kit import waits

URL: Final = "https://127.0.0.1:6443"
ETCD: Final = "http://127.0.0.1:2379"
CONTROLLERS: Final = (
    "statefulset-controller",
    "disruption-controller",
    "endpointslice-controller",
    "persistentvolume-binder-controller",
    "garbage-collector-controller",
)
"""The controllers that act on what the chart has. No kubelet renews leases, so none may miss them."""
LOG_TAIL: Final = 3000

needs_control_plane = pytest.mark.skipif(
    tool("control-plane") is None,
    reason="there is no Kubernetes control plane here: make kubernetes-test builds it",
)


class ControlPlane:
    """The four processes, with a folder for their files and logs. `api` is an administrator's client."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._token = folder, secrets.token_hex(16)
        self.config_path = folder / "kubeconfig"
        """The file that kubectl and helm read."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.api = Api(URL, self._token)
        folder.mkdir()
        self._write_files()

    def start(self, address: str) -> None:
        """Start all processes. `address` is an address of this host: the API server does not advertise a loopback."""
        self._start_etcd()
        self._start_api_server(address)
        waits.until(self._is_ready, "the API server is ready", seen=lambda: self._log("kube-apiserver"))
        config = f"--kubeconfig={self.config_path}"
        common = (config, "--leader-elect=false", "--bind-address=127.0.0.1")
        self._start("kube-controller-manager", *common, f"--controllers={','.join(CONTROLLERS)}")
        self._start("kube-scheduler", *common)

    def _write_files(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self._folder / "service-accounts.pem").write_bytes(pem)
        (self._folder / "tokens.csv").write_text(f"{self._token},tests,tests,system:masters\n")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": URL, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": self._token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.config_path.write_text(yaml.safe_dump(config))

    def _start_etcd(self) -> None:
        peers = "http://127.0.0.1:2380"
        self._start(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )

    def _start_api_server(self, address: str) -> None:
        key = self._folder / "service-accounts.pem"
        self._start(
            "kube-apiserver",
            f"--etcd-servers={ETCD}",
            "--bind-address=127.0.0.1",
            f"--advertise-address={address}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=AlwaysAllow",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            # A controller that is not run here takes this taint from a machine that is ready.
            "--disable-admission-plugins=TaintNodesByCondition",
            # A pod has the zone of its machine as a label, as from Kubernetes 1.35 on.
            "--feature-gates=PodTopologyLabelsAdmission=true",
        )

    def _start(self, program: str, *arguments: str) -> None:
        path = tool("control-plane")
        assert path is not None
        with (self._folder / f"{program}.log").open("wb") as log:
            self._processes[program] = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", path, program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def _is_ready(self) -> bool:
        ended = [name for name, each in self._processes.items() if each.poll() is not None]
        assert not ended, self._log(ended[0])
        try:
            self.api.get("/readyz")
        except (OSError, Refused):
            return False
        return True

    def _log(self, program: str) -> str:
        return (self._folder / f"{program}.log").read_text(errors="replace")[-LOG_TAIL:]

    def stop(self) -> None:
        """Kill all processes, what depends on others first."""
        for each in reversed(self._processes.values()):
            each.kill()
            each.wait()
