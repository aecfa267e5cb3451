"""Apache Kafka's own tools for the voters: kafka-metadata-quorum.sh, and kafka-features.sh for kraft.version (KIP-853).

The config that they take is the node's own file, and the directory id the one in its metadata folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from raftlog.cli import exits
from tests.cli.live import CommandLine
from tests.clients.nodes import told, violations
from tests.interop.conftest import SETTINGS
from tests.interop.scripts import KafkaScripts
from tests.kit.joining import Joining
from tests.kit.waits import until

pytestmark = pytest.mark.java

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
NEW = 4
"""The node that becomes a voter."""


class Apart(Joining):
    """Its nodes keep the metadata in a folder of its own."""

    def settings_of(self, node_id: int) -> dict[str, str]:
        metadata = self.directory / f"node-{node_id}" / "metadata"
        return {**super().settings_of(node_id), "metadata.log.dir": str(metadata)}

    def directory_id(self, node_id: int) -> str:
        """Return the id in the metadata folder of a node."""
        path = self.directory / f"node-{node_id}" / "metadata" / "meta.properties"
        (found,) = re.findall(r"^directory.id=(.*)$", path.read_text(), re.M)
        return str(found)


@pytest.fixture(scope="module")
def joining() -> Iterator[Apart]:
    """At kraft.version 1."""
    with Apart(NEW, voters=NEW - 1, settings=SETTINGS) as cluster:
        cluster.wait_until_healthy()
        assert CommandLine(cluster.bootstrap_servers)("quorum", "dynamic").returncode == exits.OK
        yield cluster
        found = violations(cluster)
        assert not found, told(found)


class Tools:
    """The tools at the brokers, or at the controllers."""

    def __init__(self, scripts: KafkaScripts, cluster: Apart, where: str) -> None:
        controllers = ",".join(cluster.controller_of(each) for each in range(1, NEW))
        servers = cluster.bootstrap_servers if where == "--bootstrap-server" else controllers
        self.cluster = cluster
        self._scripts = scripts
        self._where = (where, servers)

    def quorum(self, *words: str) -> str:
        """Run kafka-metadata-quorum.sh with the config of the new node."""
        config = ("--command-config", str(self.cluster.nodes[NEW].config_path))
        return self._scripts.run(QUORUM, *self._where, *config, *words)

    def features(self, *words: str) -> str:
        """Run kafka-features.sh."""
        return self._scripts.run(FEATURES, *self._where, *words)

    def kraft_version(self) -> list[str]:
        """Return the lowest, the highest and the finalized level."""
        line = next(each for each in self.features("describe").splitlines() if "kraft.version" in each)
        return re.findall(r"Version(?:Level)?: (\S+)", line)

    def status(self) -> dict[str, Any]:
        """Return the lines of `describe --status`; voters and observers by id."""
        lines = [
            each.split(":", 1) for each in self.quorum("describe", "--status").splitlines() if ":" in each
        ]
        found: dict[str, Any] = {name: value.strip() for name, value in lines}
        for name in ("CurrentVoters", "CurrentObservers"):
            found[name] = {each["id"]: each for each in json.loads(found[name])}
        return found

    def replication(self, *words: str) -> dict[str, dict[str, str]]:
        """Return the rows of `describe --replication`, by node."""
        lines = self.quorum("describe", "--replication", *words).splitlines()
        names, *rows = ([each.strip() for each in line.split("\t")] for line in lines if line.strip())
        return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


@pytest.fixture(params=["--bootstrap-server", "--bootstrap-controller"])
def tools(request: pytest.FixtureRequest, scripts: KafkaScripts, joining: Apart) -> Tools:
    return Tools(scripts, joining, request.param)


def test_kraft_version_is_shown_and_raised_once(scripts: KafkaScripts) -> None:
    """Until then an addition is refused; afterwards the level stays."""
    with Apart(NEW, voters=NEW - 1, settings=SETTINGS) as cluster:
        cluster.wait_until_healthy()
        tools, other = (
            Tools(scripts, cluster, where) for where in ("--bootstrap-server", "--bootstrap-controller")
        )
        assert tools.kraft_version() == ["0", "1", "0"]
        assert "UnsupportedVersionException" in tools.quorum("add-controller")
        raised = ("upgrade", "--feature", "kraft.version=1")
        assert "can be upgraded to 1" in tools.features(*raised, "--dry-run")
        assert "was upgraded to 1" in tools.features(*raised)
        until(lambda: tools.kraft_version() == ["0", "1", "1"], "the brokers show it")
        until(lambda: other.kraft_version() == ["0", "1", "1"], "the controllers show it")
        assert "Could not downgrade" in tools.features("downgrade", "--feature", "kraft.version=0")
        assert sorted(tools.status()["CurrentVoters"]) == [1, 2, 3]


def test_the_stock_tool_describes_voters_and_observers(tools: Tools) -> None:
    """Directory ids and endpoints, and how far each node is: the node that does not vote yet, too."""
    cluster = tools.cluster
    until(lambda: tools.replication()[str(NEW)]["Lag"] == "0", "the observer's position is known")
    status = tools.status()
    assert int(status["LeaderId"]) in range(1, NEW) and status["MaxFollowerLag"] == "0"
    assert status["CurrentVoters"] == {
        each: {
            "id": each,
            "directoryId": cluster.directory_id(each),
            "endpoints": [f"CONTROLLER://{cluster.controller_of(each)}"],
        }
        for each in range(1, NEW)
    }
    assert status["CurrentObservers"] == {NEW: {"id": NEW, "directoryId": cluster.directory_id(NEW)}}
    rows = tools.replication()
    assert [row["Status"] for row in rows.values()] == ["Leader", "Follower", "Follower", "Observer"]
    assert all(row["DirectoryId"] == cluster.directory_id(int(node)) for node, row in rows.items())
    readable = tools.replication("--human-readable")
    assert all(re.fullmatch(r"\d+ ms ago", row["LastFetchTimestamp"]) for row in readable.values()), readable


def test_the_stock_tool_adds_and_removes_a_controller(tools: Tools) -> None:
    """As Kafka's documentation does it, dry runs first; then what cannot be done is refused by its name."""
    cluster, directory_id = tools.cluster, tools.cluster.directory_id(NEW)
    new = f"{NEW} with directory id {directory_id}"
    added = f"controller {new} and endpoints: CONTROLLER://{cluster.controller_of(NEW)}"
    gone = ("remove-controller", "--controller-id", str(NEW), "--controller-directory-id", directory_id)
    until(lambda: NEW in tools.status()["CurrentObservers"], "the node follows")
    assert f"DRY RUN of adding {added}" in tools.quorum("add-controller", "--dry-run")
    assert tools.replication()[str(NEW)]["Status"] == "Observer"
    assert f"Added {added}" in tools.quorum("add-controller")
    assert sorted(tools.status()["CurrentVoters"]) == [1, 2, 3, NEW]
    assert "DuplicateVoterException" in tools.quorum("add-controller")
    assert "DRY RUN of removing" in tools.quorum(*gone, "--dry-run")
    assert "VoterNotFoundException" in tools.quorum(*gone[:-1], cluster.directory_id(1))
    assert sorted(tools.status()["CurrentVoters"]) == [1, 2, 3, NEW]
    removed = tools.quorum(*gone)
    assert "Removed" in removed and f"controller {new}" in removed, removed
    assert "VoterNotFoundException" in tools.quorum(*gone)
    assert sorted(tools.status()["CurrentVoters"]) == [1, 2, 3]
