"""Claims about clusters of processes: ready, killed, paused, restarted, and gone without a trace."""

from __future__ import annotations

import asyncio
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

import raftlog.testing
from raftlog.testing import InProcessCluster
from raftlog.testing.cluster import Cluster, ClusterError
from raftlog.testing.network_cluster import NetworkCluster
from raftlog.testing.ports import LOOPBACK
from tests.kit.waits import PATIENCE_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

NETWORK_OF_THREAD = "/proc/thread-self/ns/net"


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three nodes that all tests here share; each leaves them running."""
    with Cluster(3) as cluster:
        yield cluster


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_node_sees_all_nodes_once_the_cluster_is_ready(three):
    """A client may bootstrap from any node at once."""
    assert all(three.view(node_id).broker_ids == {1, 2, 3} for node_id in three.nodes)
    assert three.controller_id() in three.nodes


@pytest.mark.parametrize("ask", [Cluster.leader, Cluster.kill_leader])
def test_leader_of_a_topic_that_does_not_exist_is_an_error_and_creates_none(three, ask):
    """A typing mistake: no node is killed for it, and no topic is there afterwards."""
    with pytest.raises(ClusterError, match="topic typo-1"):
        ask(three, "typo-1")
    assert three.partitions("typo-1") == {}
    three.create_topic(f"known-{ask.__name__}", partitions=2)
    with pytest.raises(ClusterError, match=r"topic known-.* has no partition 2, but 0 to 1"):
        ask(three, f"known-{ask.__name__}", 2)
    assert three.running_ids() == {1, 2, 3}


def test_a_killed_node_disappears_from_the_cluster_and_comes_back(three):
    """kill -9 and restart on the same data and ports."""
    victim = next(node_id for node_id in three.nodes if node_id != three.controller_id())
    witness = next(node_id for node_id in three.nodes if node_id != victim)
    three.kill(victim)
    assert victim not in three.running_ids()
    three.wait_until(lambda: victim not in three.view(witness).broker_ids, "the node is fenced")
    three.restart(victim)
    assert three.view(victim).broker_ids == {1, 2, 3}


def test_a_paused_node_is_fenced_and_unfenced_after_it_goes_on(three):
    """SIGSTOP drops no connection, so the session timeout decides."""
    victim = next(node_id for node_id in three.nodes if node_id != three.controller_id())
    witness = next(node_id for node_id in three.nodes if node_id != victim)
    three.pause(victim)
    assert victim not in three.running_ids()
    three.wait_until(lambda: victim not in three.view(witness).broker_ids, "the node is fenced")
    three.resume(victim)
    three.wait_ready()
    assert three.view(witness).broker_ids == {1, 2, 3}


def test_a_node_that_is_asked_to_stop_ends_with_0(three):
    """SIGTERM is the gentle way."""
    victim = next(node_id for node_id in three.nodes if node_id != three.controller_id())
    assert three.stop(victim) == 0
    three.restart(victim)


def test_two_clusters_on_one_machine_do_not_notice_each_other(three):
    """Ports, folders and secrets are each cluster's own."""
    with Cluster(1) as other:
        assert other.view(1).broker_ids == {1}
        assert three.view(1).broker_ids == {1, 2, 3}
        assert other.directory != three.directory


@pytest.mark.parametrize("kind", [Cluster, InProcessCluster])
def test_settings_reach_a_node_as_they_were_given(kind: type[Cluster]) -> None:
    """Backslashes, which distinguished names have, and new lines, which keys and passwords have."""
    given = {
        "broker.rack": "dc\\1\\",
        "super.users": "User:CN=a\\,b,OU=x",
        "raftlog.cluster.secret": "a secret\nof two lines",
    }
    with kind(1, settings=given) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        broker = ConfigResource(ConfigResource.Type.BROKER, "1")
        found = admin.describe_configs([broker])[broker].result(PATIENCE_S)
        assert {name: found[name].value for name in ("broker.rack", "super.users")} == {
            name: given[name] for name in ("broker.rack", "super.users")
        }


def test_nodes_can_be_given_few_files():
    """The limit is the process's own hard limit, which it cannot raise."""
    cluster = Cluster(1)
    cluster.limit_files(700)
    with cluster:
        limits = Path(f"/proc/{cluster.nodes[1].pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == ["700", "700"]


def test_closing_takes_processes_data_and_ports_away():
    """No process or file is left behind, and closing twice does no harm."""
    cluster = Cluster(1)
    cluster.start()
    pid = cluster.nodes[1].pid
    cluster.close()
    cluster.close()
    assert not alive(pid)
    assert not cluster.directory.exists()


def test_a_node_ends_with_whoever_started_it():
    """Even a killed test run leaves no node behind: each watches a pipe."""
    code = """
import sys, time
from raftlog.testing.cluster import Cluster
cluster = Cluster(1)
cluster.start()
print(cluster.nodes[1].pid, cluster.directory, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, directory = starter.stdout.readline().split()
        starter.kill()
    until(lambda: not alive(int(pid)), "the node ends")
    subprocess.run(["rm", "-rf", directory], check=True)


class Closing(socketserver.TCPServer):
    """Closes each connection at once, so no client waits for a response."""

    allow_reuse_address = True


def test_a_node_that_cannot_start_is_reported_with_its_log():
    """A port in use is a clear error, which also ends the wait for the cluster."""
    cluster = Cluster(1)
    port = cluster.nodes[1].port
    with Closing(("127.0.0.1", port), socketserver.BaseRequestHandler) as holder:
        threading.Thread(target=holder.serve_forever, daemon=True).start()
        with pytest.raises(ClusterError, match=str(port)) as caught:
            cluster.start()
        holder.shutdown()
    cluster.close()
    assert "node 1 ended while starting" in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("name", raftlog.testing.__all__)
def test_each_cluster_is_imported_from_the_package(name):
    """As the guide for testers does."""
    assert getattr(raftlog.testing, name).__name__ == name


@pytest.mark.parametrize("nodes", [0, -1, "3", 1.5])
def test_a_number_of_nodes_that_cannot_be_is_refused(nodes):
    """Before ports are looked for."""
    with pytest.raises(ValueError, match=f"nodes: must be a whole number of at least 1, not {nodes!r}"):
        Cluster(nodes)


def test_what_a_cluster_cannot_do_is_refused_with_what_can(tmp_path):
    """Its folder may be text; none of its nodes has to run for this."""
    with closing(Cluster(2, directory=str(tmp_path / "kept"))) as cluster:
        with pytest.raises(ValueError, match="there is no node 3: the nodes are 1, 2"):
            cluster.kill(3)
        for hurt in (lambda: cluster.slow_disk(1, 0.05), lambda: cluster.power_cut(1)):
            with pytest.raises(ValueError, match="make it with faults=True"):
                hurt()
        with pytest.raises(ValueError, match="use an AdminCluster"):
            cluster.admin_url(1)
    assert (tmp_path / "kept" / "node-2").is_dir()


def test_a_cluster_that_cannot_be_made_leaves_nothing_behind(tmp_path, monkeypatch):
    """Neither its folder, nor the ports of its nodes: there is no object to close."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[Cluster] = []

    class Unmakeable(Cluster):
        def settings_of(self, node_id: int) -> Mapping[str, str]:
            made.append(self)
            raise LookupError

    with pytest.raises(LookupError):
        Unmakeable(1)
    assert list(tmp_path.iterdir()) == []
    port = made[0].addresses[1].port
    with socket.socket() as free:
        free.bind((LOOPBACK, port))


async def test_a_start_that_is_cancelled_leaves_no_node(monkeypatch):
    """A time limit of a test: the `async with` has no body yet, and so no end."""
    cluster = Cluster(1)
    waits = threading.Event()
    start = cluster.start

    def cancel() -> None:
        task.cancel()
        waits.set()

    def slow_start() -> float:
        loop.call_soon_threadsafe(cancel)
        waits.wait()
        return start()

    async def use() -> None:
        async with cluster:
            raise AssertionError("it was cancelled before")

    monkeypatch.setattr(cluster, "start", slow_start)
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(use())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cluster.running_ids() == set()
    assert not cluster.directory.exists()


async def test_a_network_is_left_by_the_thread_that_entered_it():
    """An `async with` starts and closes the cluster in other threads, whatever threads there were before."""
    before = os.readlink(NETWORK_OF_THREAD)
    await asyncio.to_thread(int)  # a thread that is idle, and not on the network
    try:
        cluster = NetworkCluster(1)
    except OSError as error:
        pytest.skip(str(error))
    async with cluster:
        assert os.readlink(NETWORK_OF_THREAD) != before
        assert cluster.view(1).broker_ids == {1}
    assert os.readlink(NETWORK_OF_THREAD) == before
    assert await asyncio.to_thread(os.readlink, NETWORK_OF_THREAD) == before
