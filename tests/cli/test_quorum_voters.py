"""Voters are added and removed while the cluster runs and produces, by `raftlog quorum add` and `remove` (KIP-853)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen
from uuid import UUID

import pytest

from raftlog.base.types import encode_uuid
from raftlog.cli import exits
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.ports import HeldPorts
from tests.cli.live import CommandLine
from tests.cli.test_decommission import Writer, read_all
from tests.kit.joining import Joining
from tests.kit.waits import poll_until

pytestmark = [pytest.mark.clients, pytest.mark.slow]


NODES = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def joining_cluster() -> Iterator[Joining]:
    """At kraft.version 1."""
    with Joining(4, voters=3) as found:
        found.create_topic("rides", partitions=8, replication_factor=3)
        found.wait_until_healthy()
        assert CommandLine(found.bootstrap_servers)("quorum", "dynamic").returncode == exits.OK
        yield found


@pytest.fixture
def raftlog(joining_cluster: Joining) -> CommandLine:
    """All four nodes vote."""
    raftlog = CommandLine(joining_cluster.bootstrap_servers)
    for node_id in set(NODES) - set(voters_of(raftlog)):
        add(joining_cluster, raftlog, node_id)
    return raftlog


def add(cluster: Joining, raftlog: CommandLine, node_id: int) -> None:
    """Make a node a voter, once it follows."""
    raftlog.rows_once(
        lambda rows: any(row["node"] == node_id and row["directory_id"] for row in rows),
        "quorum",
        "replication",
    )
    added = raftlog("quorum", "add", str(node_id), "--controller", cluster.controller_of(node_id))
    assert added.returncode == exits.OK, added.stderr


def voters_of(raftlog: CommandLine) -> list[int]:
    return sorted(row["node"] for row in raftlog.rows("quorum", "replication") if row["status"] != "observer")


def leader_of(raftlog: CommandLine) -> int:
    return next(row["node"] for row in raftlog.rows("quorum", "replication") if row["status"] == "leader")


def test_voters_change_only_at_kraft_version_1(tmp_path: Path) -> None:
    """The refusal says what to do; then the second node becomes a voter, once, while records are written.

    It keeps the metadata in a folder of its own.
    """
    apart = {2: {"metadata.log.dir": str(tmp_path / "metadata")}}
    with Joining(2, voters=1, directory=tmp_path, node_settings=apart) as cluster:
        cluster.create_topic("rides", partitions=8, replication_factor=2)
        raftlog = CommandLine(cluster.bootstrap_servers)
        with Writer(cluster) as writer:
            refused = raftlog("quorum", "remove", "1")
            assert refused.returncode != exits.OK and "kraft.version" in refused.stderr
            assert raftlog("quorum", "dynamic").returncode == exits.OK
            add(cluster, raftlog, 2)
            assert voters_of(raftlog) == [1, 2]
            again = raftlog("quorum", "add", "2", "--controller", cluster.controller_of(2))
            assert again.returncode != exits.OK and again.stderr.endswith(": node 2 is a voter already\n")
        assert sorted(read_all(cluster, len(writer.acked))) == sorted(writer.acked)


def test_a_node_joins_the_voters_by_itself() -> None:
    """With controller.quorum.auto.join.enable, once the voters can change (KIP-1186)."""
    own = {2: {"controller.quorum.auto.join.enable": "true"}}
    with Joining(2, voters=1, node_settings=own) as cluster:
        raftlog = CommandLine(cluster.bootstrap_servers)
        assert raftlog("quorum", "dynamic").returncode == exits.OK
        poll_until(lambda: voters_of(raftlog) == [1, 2], "node 2 votes")
        assert raftlog.rows("quorum", "why")[0]["by"] == "node 2"


def test_a_dead_leader_is_removed_and_the_others_go_on(
    joining_cluster: Joining, raftlog: CommandLine
) -> None:
    """The new leader of the four voters removes it, and it follows once it runs again."""
    leader = leader_of(raftlog)
    joining_cluster.kill(leader)
    others = [each for each in NODES if each != leader]
    survivors = CommandLine(",".join(joining_cluster.nodes[each].address for each in others))
    poll_until(lambda: survivors("quorum", "status").returncode == exits.OK, "another leader answers")
    removed = survivors("quorum", "remove", str(leader))
    assert removed.returncode == exits.OK, removed.stderr
    assert voters_of(survivors) == others
    joining_cluster.restart(leader)
    joining_cluster.wait_until_healthy()
    poll_until(
        lambda: (
            leader
            in [r["node"] for r in survivors.rows("quorum", "replication") if r["status"] == "observer"]
        ),
        "the removed voter follows",
    )
    assert voters_of(survivors) == others


def test_the_living_leader_is_removed(joining_cluster: Joining, raftlog: CommandLine) -> None:
    """Another leads soon, and changes of topics go on."""
    leader = leader_of(raftlog)
    removed = raftlog("quorum", "remove", str(leader))
    assert removed.returncode == exits.OK, removed.stderr
    poll_until(
        lambda: raftlog("quorum", "status").returncode == exits.OK and leader_of(raftlog) != leader,
        "another leads",
    )
    assert voters_of(raftlog) == [each for each in NODES if each != leader]
    joining_cluster.create_topic("after", partitions=3, replication_factor=3)
    joining_cluster.wait_until_healthy()


def test_a_voter_is_replaced(joining_cluster: Joining, raftlog: CommandLine) -> None:
    """In one command: the new voter is added before the former is removed. With its present disk it stays."""
    assert raftlog("quorum", "remove", "4").returncode == exits.OK
    raftlog.rows_once(
        lambda rows: any(row["node"] == 4 and row["directory_id"] for row in rows), "quorum", "replication"
    )
    old = next(each for each in (1, 2, 3) if each != leader_of(raftlog))
    replaced = raftlog("quorum", "replace", str(old), "4", "--controller", joining_cluster.controller_of(4))
    assert replaced.returncode == exits.OK, replaced.stderr
    assert voters_of(raftlog) == [each for each in NODES if each != old]
    other = next(each for each in (1, 2, 3) if each != old)
    where = ("--controller", joining_cluster.controller_of(4), "--directory-id", encode_uuid(UUID(int=99)))
    refused = raftlog("quorum", "replace", str(other), "4", *where)
    assert refused.returncode == exits.FAILED and "replace that first" in refused.stderr, refused.stderr
    (found,) = [row for row in raftlog.rows("quorum", "replication") if row["node"] == 4]
    where = ("--controller", joining_cluster.controller_of(4), "--directory-id", found["directory_id"])
    again = raftlog("quorum", "replace", "4", "4", *where)
    assert (again.returncode, again.stdout) == (exits.OK, "node 4 is a voter already\n"), again.stderr


def test_a_node_that_is_no_controller_any_more_leaves_the_voters(
    joining_cluster: Joining, raftlog: CommandLine
) -> None:
    """With controller.quorum.auto.join.enable its vote follows its roles, and back. Another directory stays."""
    node = joining_cluster.nodes[4]
    as_controller = {name: node.setting(name) for name in ("process.roles", "listeners")}
    listener = as_controller["listeners"].split(",")[0]
    node.configure(
        {"process.roles": "broker", "listeners": listener, "controller.quorum.auto.join.enable": "true"}
    )
    joining_cluster.restart(4)
    poll_until(lambda: voters_of(raftlog) == [1, 2, 3], "node 4 leaves")
    node.configure(as_controller)
    joining_cluster.restart(4)
    poll_until(lambda: voters_of(raftlog) == list(NODES), "node 4 votes again")
    node.configure({"controller.quorum.auto.join.enable": "false"})
    changes = [(row["change"], row["by"]) for row in raftlog.rows("quorum", "why")[:2]]
    assert changes == [("added", "node 4"), ("removed", "node 4")]


def test_the_quorum_says_why_its_voters_are_these(joining_cluster: Joining, raftlog: CommandLine) -> None:
    """Who changed them, and when; the newest change first."""
    rows = raftlog.rows("quorum", "why")
    assert rows[-1]["change"] == "dynamic" and {"added", "removed"} <= {row["change"] for row in rows}
    assert all(row["at"] > "2020" for row in rows) and rows == sorted(rows, key=lambda row: row["at"])[::-1]
    (found,) = raftlog.rows("quorum", "status")
    assert len(found["last_changes"]) == 3 and found["last_changes"][0].startswith(rows[0]["at"])


def test_all_nodes_start_again_with_the_voters_of_the_log(
    joining_cluster: Joining, raftlog: CommandLine
) -> None:
    """Their configs still name the first three."""
    for node_id in NODES:
        joining_cluster.stop(node_id)
    for node_id in NODES:
        joining_cluster.restart(node_id, wait=False)
    joining_cluster.wait_until_healthy()
    assert voters_of(raftlog) == list(NODES)


def test_all_voters_move_at_once(tmp_path: Path) -> None:
    """The set names their former addresses alone until they have asked; a broker without a vote follows."""
    with ExitStack() as stack:
        held = HeldPorts(3)
        stack.callback(held.release)
        cluster = stack.enter_context(AdminCluster(4, voters=3, directory=tmp_path))
        raftlog = CommandLine(cluster.bootstrap_servers)
        cluster.create_topic("rides", partitions=4, replication_factor=3)
        assert raftlog("quorum", "dynamic").returncode == exits.OK
        ports = dict(zip((1, 2, 3), held.ports, strict=True))
        voters = ",".join(f"{each}@{cluster.nodes[each].host}:{port}" for each, port in ports.items())
        for node_id in NODES:
            cluster.stop(node_id)
        for node_id, node in cluster.nodes.items():
            more = {"controller.quorum.voters": voters}
            if node_id in ports:
                former = str(cluster.addresses[node_id].controller_port)
                more["listeners"] = node.setting("listeners").replace(former, str(ports[node_id]))
            node.configure(more)
        for node_id in NODES:
            cluster.restart(node_id, wait=False)
        cluster.wait_until_healthy()

        def addresses() -> dict[int, int]:
            with urlopen(f"{cluster.admin_url(4)}/v1/quorum") as answer:
                return {each["node_id"]: each["port"] for each in json.load(answer)["voters"]}

        poll_until(lambda: addresses() == ports, "the set names the new addresses")
        (row,) = raftlog.rows("quorum", "status")
        assert any("moved to another address" in each for each in row["last_changes"])
