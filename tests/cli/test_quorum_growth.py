"""One voter becomes three, five, three and one again, while records are written and a node is killed at each step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raftlog.cli import exits
from tests.cli.live import CommandLine
from tests.cli.test_decommission import Writer, read_all
from tests.cli.test_quorum_voters import add, leader_of, voters_of
from tests.kit.joining import Joining
from tests.kit.waits import poll_until

BROKER = 6
"""The node that never votes. Its config names voter 1 alone."""
FIRST, LAST = 1, 5
"""The only voter at the beginning, and at the end."""

pytestmark = [pytest.mark.clients, pytest.mark.nightly]


class Growing(Joining):
    """Nodes that can vote, and a broker."""

    def settings_of(self, node_id: int) -> Mapping[str, str]:
        return {} if node_id == BROKER else super().settings_of(node_id)

    def known_voters(self) -> str:
        """Return what the broker keeps for its next start."""
        path = self.nodes[BROKER].directory / "data" / "known-voters"
        return path.read_text() if path.exists() else ""


def come_back(cluster: Growing, raftlog: CommandLine, node_id: int) -> None:
    """Start a killed node, and wait until the quorum has a leader and all replicas are in sync."""
    cluster.restart(node_id)
    poll_until(lambda: leads(raftlog), "a voter leads")
    if BROKER in cluster.running_ids():
        cluster.wait_until_healthy()


def remove(raftlog: CommandLine, node_id: int) -> None:
    removed = raftlog("quorum", "remove", str(node_id))
    assert removed.returncode == exits.OK, removed.stderr


def leads(raftlog: CommandLine) -> bool:
    return raftlog("quorum", "status").returncode == exits.OK


def grow(cluster: Growing, raftlog: CommandLine) -> None:
    """Add four voters. From three on a voter is dead meanwhile, the leader first."""
    for node_id in (2, 3):
        add(cluster, raftlog, node_id)
        killed = leader_of(raftlog)
        cluster.kill(killed)
        come_back(cluster, raftlog, killed)
    for node_id in (4, 5):
        present = voters_of(raftlog)
        killed = leader_of(raftlog) if node_id == 4 else present[0]
        cluster.kill(killed)
        poll_until(lambda: leads(raftlog), "another voter leads")
        add(cluster, raftlog, node_id)
        come_back(cluster, raftlog, killed)
        assert voters_of(raftlog) == [*present, node_id]


def shrink(cluster: Growing, raftlog: CommandLine) -> None:
    """Remove four voters: dead voters as long as others are a majority, at last the leader of two."""
    for node_id in (FIRST, 2, 3):
        cluster.kill(node_id)
        poll_until(lambda: leads(raftlog), "another voter leads")
        remove(raftlog, node_id)
        come_back(cluster, raftlog, node_id)
    remove(raftlog, 4)
    cluster.kill(LAST)
    come_back(cluster, raftlog, LAST)
    assert voters_of(raftlog) == [LAST]


def test_voters_grow_and_shrink_and_no_record_is_lost() -> None:
    """The broker is down while the quorum shrinks, and finds the last voter although its config names the first."""
    settings = {"min.insync.replicas": "2"}
    with Growing(6, voters=1, settings=settings) as cluster:
        cluster.create_topic("rides", partitions=8, replication_factor=3)
        cluster.wait_until_healthy()
        raftlog = CommandLine(cluster.bootstrap_servers)
        with Writer(cluster) as writer:
            assert raftlog("quorum", "dynamic").returncode == exits.OK
            grow(cluster, raftlog)
            poll_until(lambda: f"{LAST}@" in cluster.known_voters(), "the broker keeps the voters")
            cluster.kill(BROKER)
            shrink(cluster, raftlog)
            cluster.kill(FIRST)
            cluster.restart(BROKER)
            come_back(cluster, raftlog, FIRST)
        assert len(writer.acked) > 1_000
        assert sorted(read_all(cluster, len(writer.acked))) == sorted(writer.acked)
