"""Apache Kafka: three KRaft nodes, broker and controller each, with 1 GB of heap, as its own scripts start them.

Maven fetches the jars once; `pom.xml` beside this folder names the version.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from raftlog.base.config.files import format_properties
from raftlog.base.disk import make_folders, write_file
from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog.testing.progress import patient
from raftlog_chaos.compare.processes import Child
from raftlog_chaos.compare.systems.daemons import Daemons
from raftlog_chaos.compare.systems.kafka_wire import KafkaWire
from raftlog_chaos.compare.systems.system import Failed, Missing

POM: Final = Path(__file__).parents[1] / "pom.xml"
MAVEN_S: Final = 300.0
FORMAT_S: Final = 60.0
VOTERS: Final = 3
JVM_OPTIONS: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""The options of kafka-run-class.sh; the last option is for the log."""


def classpath() -> str:
    """Return the jars that a broker needs, fetched if need be. Raises Missing."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"there is no {program} here")
    jars, wrong = resolve()
    if wrong:
        raise Missing(f"Maven did not fetch the jars{wrong}")
    return jars


@functools.cache
def resolve() -> tuple[str, str]:
    """Return the jars, or what Maven has against them. It is asked once: a failure may have taken it minutes."""
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
    command = ["mvn", "--batch-mode", "--file", str(POM), goal]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, timeout=patient(MAVEN_S)
        )
    except subprocess.TimeoutExpired:
        return "", f" in {MAVEN_S:.0f} s"
    lines = done.stdout.splitlines()
    found = [line for line in lines if ".jar" in line and os.pathsep in line and not line.startswith("[")]
    if done.returncode or not found:
        wrong = [line for line in lines if line.startswith("[ERROR]")]
        return "", f": {next(iter(wrong), 'it says nothing')[:200]}"
    return found[-1], ""


class Kafka(KafkaWire, Daemons):
    """Apache Kafka as shipped: it acknowledges what is in the page cache of all replicas."""

    key = "kafka"
    title = "Apache Kafka"
    warm_up_s = 8.0
    warm_up_small_s = 20.0
    """Its virtual machine compiles what is slow only after thousands of requests, and three of them share the cores."""
    settings: Mapping[str, str] = {}
    jvm_options: Sequence[str] = JVM_OPTIONS

    @classmethod
    def version(cls) -> str:
        found = re.search(r"<kafka.version>(.*)</kafka.version>", POM.read_text())
        classpath()
        return found[1] if found else ""

    def start(self) -> float:
        """Start it; formatting its folders does not count, as it is done once in the life of a cluster."""
        jars = classpath()
        self._held = HeldPorts(2 * self.nodes)
        for node in range(1, self.nodes + 1):
            self._write_settings(node)
        self._format(jars)
        return self.restart()

    def command(self, node: int) -> Sequence[str]:
        return ["java", *self.jvm_options, "-cp", classpath(), "kafka.Kafka", str(self._settings_path(node))]

    def is_ready(self) -> bool:
        return self.all_see_each_other()

    def _settings_path(self, node: int) -> Path:
        return self.node_folder(node) / "server.properties"

    def _write_settings(self, node: int) -> None:
        assert self._held is not None
        ports, voters = self._held.ports, range(1, min(VOTERS, self.nodes) + 1)
        client = f"PLAINTEXT://{LOOPBACK}:{ports[node - 1]}"
        controller = f",CONTROLLER://{LOOPBACK}:{ports[self.nodes + node - 1]}"
        replicas = str(self.replicas)
        settings = {
            "node.id": str(node),
            "process.roles": "broker,controller" if node in voters else "broker",
            "controller.quorum.voters": ",".join(
                f"{each}@{LOOPBACK}:{ports[self.nodes + each - 1]}" for each in voters
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": client + (controller if node in voters else ""),
            "advertised.listeners": client,
            "log.dirs": str(self.node_folder(node) / "data"),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.replicas)),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, self.replicas)),
            "default.replication.factor": replicas,
            **self.settings,
        }
        make_folders(self.node_folder(node))
        write_file(self._settings_path(node), format_properties(settings))

    def _format(self, jars: str) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "x")
        formatters = [
            Child(
                [
                    *("java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", jars, "kafka.tools.StorageTool"),
                    *("format", "--cluster-id", cluster_id, "--config", str(self._settings_path(node))),
                ],
                log_path=self.node_folder(node) / "format.log",
            )
            for node in range(1, self.nodes + 1)
        ]
        try:
            for each in formatters:
                if each.wait(patient(FORMAT_S)):
                    raise Failed(f"its folders can't be formatted: {each.last_words()[:300]}")
        except subprocess.TimeoutExpired:
            raise Failed(f"its folders were not formatted in {FORMAT_S:.0f} s") from None
        finally:
            for each in formatters:
                each.kill()

    @property
    def ports(self) -> dict[int, int]:
        assert self._held is not None
        running = sorted(node for node, child in self._children.items() if child.running and not child.paused)
        return {node: self._held.ports[node - 1] for node in running}


class KafkaFlush(Kafka):
    """The same, with a sync of each batch before it counts."""

    key = "kafka-flush"
    title = "Kafka, flush 1"
    variant = True
    settings = {"log.flush.interval.messages": "1"}
