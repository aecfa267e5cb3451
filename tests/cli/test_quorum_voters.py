"""Voters are added and removed while the cluster runs and produces, by `raftlog quorum add` and `remove` (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from raftlog.cli import exits
from raftlog.testing.cluster import AdminCluster
from tests.cli.live import CommandLine
from tests.cli.test_decommission import Writer, read_all
from tests.kit.waits import poll_until

pytestmark = [pytest.mark.clients, pytest.mark.slow]


class Joining(AdminCluster):
    """A fourth node with a controller that the config of no node names as a voter."""

    def settings_of(self, node_id: int) -> Mapping[str, str]:
        host, port, controller_port, _ = self.addresses[node_id]
        if node_id <= 3:
            return {}
        return {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        }

    def controller_of(self, node_id: int) -> str:
        """Return the address of a node's controller listener."""
        address = self.addresses[node_id]
        return f"{address.host}:{address.controller_port}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Joining]:
    with Joining(4, voters=3) as found:
        found.create_topic("rides", partitions=8, replication_factor=3)
        found.wait_until_healthy()
        yield found


@pytest.fixture(scope="module")
def raftlog(cluster: Joining) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


def voters_of(raftlog: CommandLine) -> list[int]:
    return sorted(row["node"] for row in raftlog.rows("quorum", "replication") if row["status"] != "observer")


def leader_of(raftlog: CommandLine) -> int:
    return next(row["node"] for row in raftlog.rows("quorum", "replication") if row["status"] == "leader")


def test_voters_change_only_at_kraft_version_1(cluster: Joining, raftlog: CommandLine) -> None:
    """The refusal says what to do; then the fourth node becomes a voter, once."""
    refused = raftlog("quorum", "remove", "3")
    assert refused.returncode != exits.OK and "kraft.version" in refused.stderr
    assert raftlog("quorum", "dynamic").returncode == exits.OK
    poll_until(
        lambda: any(
            row["node"] == 4 and row["directory_id"] for row in raftlog.rows("quorum", "replication")
        ),
        "node 4 follows as an observer",
    )
    writer = Writer(cluster)
    added = raftlog("quorum", "add", "4", "--controller", cluster.controller_of(4))
    assert added.returncode == exits.OK, added.stderr
    assert voters_of(raftlog) == [1, 2, 3, 4]
    again = raftlog("quorum", "add", "4", "--controller", cluster.controller_of(4))
    assert again.returncode != exits.OK and "a voter already" in again.stderr
    acked = writer.end()
    assert sorted(read_all(cluster, len(acked))) == sorted(acked)


def test_a_dead_leader_is_removed_and_the_others_go_on(cluster: Joining, raftlog: CommandLine) -> None:
    """Four voters, one of which is killed: the new leader removes it, and it follows once it runs again."""
    leader = leader_of(raftlog)
    cluster.kill(leader)
    others = [each for each in (1, 2, 3, 4) if each != leader]
    survivors = CommandLine(",".join(cluster.nodes[each].address for each in others))
    poll_until(lambda: survivors("quorum", "status").returncode == exits.OK, "another leader answers")
    removed = survivors("quorum", "remove", str(leader))
    assert removed.returncode == exits.OK, removed.stderr
    assert voters_of(survivors) == others
    cluster.restart(leader)
    cluster.wait_until_healthy()
    poll_until(
        lambda: (
            leader
            in [r["node"] for r in survivors.rows("quorum", "replication") if r["status"] == "observer"]
        ),
        "the removed voter follows",
    )
    assert voters_of(survivors) == others


def test_the_living_leader_is_removed(cluster: Joining, raftlog: CommandLine) -> None:
    """Another leads soon, and changes of topics go on."""
    before = voters_of(raftlog)
    leader = leader_of(raftlog)
    removed = raftlog("quorum", "remove", str(leader))
    assert removed.returncode == exits.OK, removed.stderr
    poll_until(
        lambda: raftlog("quorum", "status").returncode == exits.OK and leader_of(raftlog) != leader,
        "another leads",
    )
    assert voters_of(raftlog) == [each for each in before if each != leader]
    cluster.create_topic("after", partitions=3, replication_factor=3)
    cluster.wait_until_healthy()


def test_all_nodes_start_again_with_the_voters_of_the_log(cluster: Joining, raftlog: CommandLine) -> None:
    """Their configs still name the first three."""
    before = voters_of(raftlog)
    for node_id in (1, 2, 3, 4):
        cluster.stop(node_id)
    for node_id in (1, 2, 3, 4):
        cluster.restart(node_id, wait=False)
    cluster.wait_until_healthy()
    assert voters_of(raftlog) == before
