"""Apache Kafka's own scripts, by the classes that they start, in sequence on one JVM."""

from __future__ import annotations

import subprocess

from raftlog.testing.cluster import Cluster
from tests.interop.member_kinds import java_command
from tests.kit.waits import PATIENCE_S

FIRST_COLUMNS = {"GROUP", "TransactionalId", "CoordinatorId", "ProducerId", "Topic"}


class KafkaScripts:
    """A JVM that runs what the scripts start."""

    def __init__(self, *options: str) -> None:
        """`options` of the JVM, beside the options that all have."""
        self._process = subprocess.Popen(
            java_command("raftlog.Tools", *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *words: str) -> str:
        """Return what a class printed, on both outputs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        count = int(self._process.stdout.readline())
        return "".join(self._process.stdout.readline() for _ in range(count))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


class Tool:
    """A script at one cluster."""

    def __init__(self, scripts: KafkaScripts, cluster: Cluster, main: str) -> None:
        self._scripts = scripts
        self._command = (main, "--bootstrap-server", cluster.bootstrap_servers)

    def say(self, *words: str) -> str:
        """Return what it printed."""
        return self._scripts.run(*self._command, *words)

    def table(self, *words: str) -> list[dict[str, str]]:
        """Return the rows of what it printed, by the names of its columns."""
        lines = [line for line in self.say(*words).splitlines() if line.strip()]
        header = next((row for row, line in enumerate(lines) if line.split()[0] in FIRST_COLUMNS), None)
        assert header is not None, lines
        names = lines[header].split()
        return [dict(zip(names, line.split(), strict=False)) for line in lines[header + 1 :]]
