"""The drill of the page about voters: its commands run, in order, against a cluster that is written to meanwhile."""

from __future__ import annotations

import shlex

import pytest

from raftlog.cli import exits
from tests.cli.live import CommandLine
from tests.cli.test_decommission import Writer, read_all
from tests.cli.test_quorum_voters import voters_of
from tests.docs.pages import blocks_of, shows
from tests.house.source import ROOT
from tests.kit.joining import Joining

PAGE = ROOT / "docs" / "pages" / "howto" / "voters.md"
FIRST = "raftlog quorum dynamic\nraftlog quorum add 4"
"""The begin of the drill's first block."""
MACHINES = {"two": 2, "four": 4, "five": 5}
"""The nodes on the hosts of the page."""


class Drill:
    """Runs the lines of the page; a machine is lost where the page ends its node."""

    def __init__(self, cluster: Joining) -> None:
        self.cluster = cluster
        self.raftlog = CommandLine(cluster.bootstrap_servers)

    def run(self, block: str) -> str:
        """Return what the commands of a block print."""
        return "".join(self._run(line) for line in block.splitlines())

    def _run(self, line: str) -> str:
        for host, node_id in MACHINES.items():
            if line.startswith(f"ssh {host}.example"):
                self.cluster.kill(node_id)
                return ""
            line = line.replace(f"{host}.example:9093", self.cluster.controller_of(node_id))
        program, *words = shlex.split(line)
        assert program == "raftlog", line
        if words[1] == "add":
            self._wait_for(int(words[2]))
        done = self.raftlog(*words)
        assert done.returncode == exits.OK, f"{line}\n{done.stderr}"
        printed: str = done.stdout
        return printed

    def _wait_for(self, node_id: int) -> None:
        """Wait until a node follows, as the page assumes."""
        self.raftlog.rows_once(
            lambda rows: any(row["node"] == node_id and row["directory_id"] for row in rows),
            "quorum",
            "replication",
        )


@pytest.mark.clients
@pytest.mark.nightly
def test_the_drill_works_and_no_record_is_lost() -> None:
    """Five voters, a dead machine, three voters: each command prints what the page shows."""
    blocks = blocks_of(PAGE)
    first = next(number for number, each in enumerate(blocks) if each.text.startswith(FIRST))
    with Joining(5, voters=3, settings={"min.insync.replicas": "2"}) as cluster:
        cluster.create_topic("rides", partitions=8, replication_factor=3)
        cluster.wait_until_healthy()
        drill, printed = Drill(cluster), ""
        with Writer(cluster) as writer:
            for block in blocks[first : first + 5]:
                if block.language == "bash":
                    printed = drill.run(block.text)
                else:
                    assert shows(printed, block.text), f"{block.text}\nprinted:\n{printed}"
            assert voters_of(drill.raftlog) == [1, 3, 4]
            cluster.restart(2)
            cluster.wait_until_healthy()
        assert sorted(read_all(cluster, len(writer.acked))) == sorted(writer.acked)
