"""The Helm chart of `deploy/helm/raftlog`, rendered by a real `helm`, and what its objects say of each pod."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "raftlog"
BUILT: Final = ROOT / "build" / "bin"
"""The folder that has the tools of `make helm-test`."""

KUBERNETES: Final = "1.34.0"
"""The Kubernetes version that the objects are validated against."""

OFFLINE: Final = ("--kube-version", KUBERNETES)

VARIABLE = re.compile(r"\$\((\w+)\)")

Settings = Mapping[str, Any]


def tool(name: str) -> str | None:
    """Return the path of a program that `make helm-test` has built, or that is installed; None if there is none."""
    return shutil.which(name, path=BUILT) or shutil.which(name)


needs_helm = pytest.mark.skipif(
    tool("helm") is None, reason="there is no helm here: make helm-test builds it"
)
needs_rules = pytest.mark.skipif(
    tool("kubernetes-rules") is None, reason="nobody knows Kubernetes' rules here: make helm-test builds it"
)


class Refused(Exception):
    """Helm does not render these values; the message is its own."""


def render(values: Settings, *options: str) -> str:
    """Return the objects that helm makes of these values, as YAML documents. Raises Refused."""
    helm = tool("helm")
    assert helm is not None
    done = subprocess.run(
        [
            helm,
            "template",
            "raftlog",
            str(CHART),
            "--namespace=logs",
            "--values=-",
            *(options or OFFLINE),
        ],
        input=yaml.safe_dump(dict(values)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


class Release:
    """The objects of one rendering, by kind and name, and its pods as Kubernetes would start them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.objects = {
            (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each
        }

    def one(self, kind: str) -> dict[str, Any]:
        """Return the only object of a kind."""
        found = [each for (its, _), each in self.objects.items() if its == kind]
        assert len(found) == 1, f"{len(found)} of {kind}"
        return found[0]

    @property
    def kinds(self) -> list[str]:
        return sorted(kind for kind, _ in self.objects)

    @property
    def pods(self) -> list[str]:
        """The names of the pods, in their order."""
        stateful = self.one("StatefulSet")
        return [f"{stateful['metadata']['name']}-{number}" for number in range(stateful["spec"]["replicas"])]

    @property
    def template(self) -> dict[str, Any]:
        """The specification of each pod."""
        return self.one("StatefulSet")["spec"]["template"]["spec"]

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.template["containers"]
        return container

    def environment(self, pod: str, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a pod's container; `labels` are what Kubernetes gives the pod."""
        fields = {"metadata.name": pod, "spec.nodeName": f"machine-of-{pod}"}
        fields |= {f"metadata.labels['{name}']": value for name, value in labels.items()}
        return {
            each["name"]: each["value"]
            if "value" in each
            else fields.get(each["valueFrom"]["fieldRef"]["fieldPath"], "")
            for each in self.container["env"]
        }

    def arguments(self, pod: str) -> list[str]:
        """Return the container's arguments, with its variables in place."""
        environment = self.environment(pod, {})
        return [VARIABLE.sub(lambda found: environment[found[1]], each) for each in self.container["args"]]

    def files(self, secrets: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return the files that volumes of Secrets give the container, by path; `secrets` are those made elsewhere."""
        volumes = {each["name"]: each.get("secret") for each in self.template["volumes"]}
        found = {}
        for mount in self.container["volumeMounts"]:
            if secret := volumes.get(mount["name"]):
                name = secret["secretName"]
                content = secrets[name] if name in secrets else self._content(name)
                found |= {f"{mount['mountPath']}/{key}": text for key, text in content.items()}
        return found

    def _content(self, name: str) -> dict[str, str]:
        secret = self.objects["Secret", name]
        decoded = {key: base64.b64decode(text).decode() for key, text in secret.get("data", {}).items()}
        return decoded | secret.get("stringData", {})
