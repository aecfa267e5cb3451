"""A worker of Kafka Connect in distributed mode with an exactly-once source, killed with a leader (KIP-618)."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.cluster import Cluster
from tests.clients.nodes import run_checked
from tests.house.source import ROOT
from tests.interop.member_kinds import java_command
from tests.kit.waits import PATIENCE_S, until

pytestmark = pytest.mark.java

PROPERTIES = ROOT / "deploy" / "examples" / "connect" / "worker.properties"
CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "exactly.once.support": "required",
    "topic": "lines",
    "topic.creation.default.replication.factor": "3",
    "topic.creation.default.partitions": "1",
}
STRINGS = {
    f"{each}.converter": "org.apache.kafka.connect.storage.StringConverter" for each in ("key", "value")
}


class Worker:
    """A worker with the properties of the example, and other `properties` where they are given."""

    def __init__(self, cluster: Cluster, folder: Path, properties: Mapping[str, str] = STRINGS) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}/connectors"
        changed = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "listeners": f"http://127.0.0.1:{port}",
            "plugin.path": str(folder / "plugins"),
            "plugin.discovery": "service_load",  # a scan of all classes takes a minute
            "offset.flush.interval.ms": "500",
            **properties,
        }
        kept = (each for each in PROPERTIES.read_text().splitlines() if each.partition("=")[0] not in changed)
        path = folder / "worker.properties"
        path.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in changed.items())]))
        (folder / "plugins").mkdir(exist_ok=True)
        command = java_command("org.apache.kafka.connect.cli.ConnectDistributed", "-Xmx256m")
        self._process = subprocess.Popen([*command, path])

    def connect(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, once the worker serves."""
        until(lambda: self._put(name, config), "the worker takes a connector")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def _put(self, name: str, config: Any) -> bool:
        request = urllib.request.Request(
            f"{self._url}/{name}/config",
            json.dumps(config).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status in (200, 201)
        except (urllib.error.URLError, ConnectionError):
            return False


def add_lines(path: Path, numbers: range) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in numbers)


def test_each_line_of_a_file_comes_once_although_a_leader_and_the_worker_die(tmp_path: Path) -> None:
    """The worker's properties are those of the page about Connect."""
    path = tmp_path / "in.txt"
    add_lines(path, range(500))
    with run_checked(3) as cluster:
        worker = Worker(cluster, tmp_path)
        try:
            worker.connect("lines", CONNECTOR | {"file": str(path)})
            cluster.read("lines", 500)
            killed = cluster.kill_leader("lines")
            add_lines(path, range(500, 1000))
            cluster.read("lines", 600)
            worker.kill()
            cluster.restart(killed)
            add_lines(path, range(1000, 1500))
            worker = Worker(cluster, tmp_path)
            cluster.read("lines", 1500)
            cluster.wait_until_healthy()
        finally:
            worker.kill()
        found = cluster.read("lines", 1500)
    assert [each.value for each in found] == [b"%d" % number for number in range(1500)]
