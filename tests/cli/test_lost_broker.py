"""What commands show of a broker that is down or hangs, in a cluster of three."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from raftlog.cli import exits
from raftlog.testing.cluster import AdminCluster
from raftlog.testing.progress import patient
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
        assert re.search(r"^fenced +broker 2$", raftlog("status").stdout, re.MULTILINE)
        ran = raftlog("cluster", "rebalance", "--execute")
        assert ran.returncode == exits.UNHEALTHY
        assert "broker 2 is down" in ran.stderr and "balanced" not in ran.stderr
        ran = raftlog("broker", "describe", "9")
        assert ran.returncode == exits.NOT_FOUND and "the brokers are 1, 2, 3" in ran.stderr
    finally:
        own_cluster.restart(2)
        own_cluster.wait_until_healthy()


def test_without_a_majority_status_says_what_health_says(
    own_cluster: AdminCluster, raftlog: CommandLine
) -> None:
    """Within --timeout, at the node that is left: its first lines are the health's, and no controller is named."""
    left = ("-b", own_cluster.nodes[2].address)
    led = {row["partition"]: row["leader"] for row in raftlog.rows("partition", "list")}
    assert {1, 3} & set(led.values())
    for node in (1, 3):
        own_cluster.kill(node)
    try:
        began = time.monotonic()
        code, out, err = invoke("status", *left, "-m", "8")
        assert time.monotonic() - began < patient(8)
        assert code == exits.UNHEALTHY
        assert out.startswith("red\n  no active controller answers: 2 of the voters 1, 2, 3 must run")
        assert "Without a controller" in out and "controller           -\n" in out
        assert [line.split()[1] for line in out.splitlines()[-3:]].count("unfenced") == 1
        assert "no broker answers" not in err
        found = json.loads(invoke("status", *left, "-m", "8", "-J")[1])
        assert (
            found["stale"]
            and found["controller"] is None
            and sorted(found["silent"] + found["fenced"]) == [1, 3]
        )
        assert not any(each["controller"] for each in found["nodes"])
        _check_errors(own_cluster, left)
    finally:
        for node in (1, 3):
            own_cluster.restart(node)
        own_cluster.wait_until_healthy()


def _check_errors(own_cluster: AdminCluster, left: tuple[str, str]) -> None:
    """What refuses is named with its address, and why it was asked; what answers is not called silent."""
    addresses = {own_cluster.nodes[node].address for node in (1, 3)}
    code, _, err = invoke("consume", "-t", "rides", "-e", *left, "-m", "2")
    assert code == exits.UNREACHABLE and "which leads rides-" in err and "`raftlog cluster health`" in err
    assert any(f"does not answer at {address}" in err for address in addresses)
    (lost, *_) = (
        row["partition"] for row in CommandLine(left[1]).rows("partition", "list") if row["leader"] in (1, 3)
    )
    code, _, err = CommandLine(left[1])("produce", "-t", "rides", "-p", str(lost), "-m", "2", stdin=b"a\n")[
        0:3
    ]
    assert code == exits.UNREACHABLE and f", which leads rides-{lost}, does not answer".encode() in err
    code, out, err = invoke("quorum", "why", *left)
    assert (code, out) == (exits.UNREACHABLE, "") and "no leader of the quorum answers" in err
    assert "`raftlog cluster health`" in err


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
