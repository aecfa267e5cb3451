"""What commands show of a broker that is down or hangs, in a cluster of three."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from raftlog.cli import exits
from raftlog.testing.cluster import AdminCluster
from tests.cli.live import CommandLine, invoke

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[AdminCluster]:
    with AdminCluster(3) as found:
        found.create_topic("rides", partitions=6, replication_factor=3)
        found.wait_until_healthy()
        yield found


@pytest.fixture
def raftlog(own_cluster: AdminCluster) -> CommandLine:
    return CommandLine(own_cluster.bootstrap_servers)


def test_leaders_come_back_to_a_broker_that_was_drained(
    own_cluster: AdminCluster, raftlog: CommandLine
) -> None:
    """No replica has to move for it; in between the plan shows the elections."""
    url = own_cluster.admin_url(1)
    assert invoke("broker", "drain", "2", "--http", url)[0] == exits.OK
    assert invoke("broker", "drain", "2", "--undo", "--http", url)[0] == exits.OK
    raftlog.rows_once(lambda rows: {row["action"] for row in rows} == {"elect"}, "cluster", "rebalance")
    ran = raftlog("cluster", "rebalance", "--execute")
    assert ran.returncode == exits.OK and "preferred leaders elected" in ran.stderr
    rows = raftlog.rows_once(lambda rows: all(row["leads"] for row in rows), "broker", "list")
    assert max(row["leads"] for row in rows) - min(row["leads"] for row in rows) <= 1
    assert raftlog("cluster", "rebalance").stderr == "the cluster is balanced\n"


def test_a_dead_broker_is_shown_as_fenced(own_cluster: AdminCluster, raftlog: CommandLine) -> None:
    """It is registered: the list, its description and the cluster's show it, and the rebalance says why it waits."""
    own_cluster.kill(2)
    try:
        rows = raftlog.rows_once(lambda rows: rows[1]["state"] == "fenced", "broker", "list")
        assert [row["state"] for row in rows] == ["unfenced", "fenced", "unfenced"]
        ran = raftlog("broker", "describe", "2", "--json")
        assert ran.returncode == exits.OK and json.loads(ran.stdout)["state"] == "fenced"
        found = json.loads(raftlog("cluster", "describe", "--json").stdout)
        assert (found["brokers"], found["fenced_brokers"]) == (3, 1)
        ran = raftlog("cluster", "rebalance", "--execute")
        assert ran.returncode == exits.UNHEALTHY
        assert "broker 2 is down" in ran.stderr and "balanced" not in ran.stderr
        ran = raftlog("broker", "describe", "9")
        assert ran.returncode == exits.NOT_FOUND and "the brokers are 1, 2, 3" in ran.stderr
    finally:
        own_cluster.restart(2)
        own_cluster.wait_until_healthy()


def test_commands_name_the_node_that_hangs_and_what_helps(
    own_cluster: AdminCluster, raftlog: CommandLine
) -> None:
    """The only server that is named hangs: ask others. A broker that hangs is named, and the others' groups shown."""
    first, last = ("-b", own_cluster.nodes[1].address), ("-b", own_cluster.nodes[3].address)
    own_cluster.pause(3)
    try:
        code, out, err = invoke("group", "list", *first, "-m", "3")
        assert out.startswith("group")
        assert code == exits.OK or "some groups are missing: broker 3 does not answer" in err
        code, out, err = invoke("broker", "log-dirs", *first, "-m", "3")
        assert out.startswith("broker") and "node-1" in out and "node-2" in out
        assert code == exits.OK or "some folders are missing: broker 3 does not answer" in err
        code, _, err = invoke("broker", "configs", "3", *first, "-m", "1")
        assert code == exits.UNREACHABLE and err.startswith("raftlog: broker 3 does not answer")
        code, _, err = invoke("topic", "list", *last, "-m", "1")
        assert code == exits.UNREACHABLE and "-b HOST:PORT,HOST:PORT" in err
        code, _, err = invoke("cluster", "health", "--http", own_cluster.admin_url(3), "-m", "1")
        assert code == exits.UNREACHABLE and "-b HOST:PORT,HOST:PORT" in err
    finally:
        own_cluster.resume(3)
        own_cluster.wait_until_healthy()
