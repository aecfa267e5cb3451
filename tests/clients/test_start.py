"""Nodes that must not start or join: each logs the reason, ends, and disturbs no other."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator

import pytest

from raftlog.testing.cluster import Cluster, NodeProcess
from tests.clients.nodes import view
from tests.clients.with_confluent import Confluent

OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
INTRUDER = 4


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """Three voters that run, and a fourth node, a broker, that does not yet."""
    with_fourth = Cluster(4, voters=3)
    try:
        for node_id in (1, 2, 3):
            with_fourth.nodes[node_id].start()
        with_fourth.wait_ready()
        yield with_fourth
        assert with_fourth.running_ids() == {1, 2, 3}
        for node_id in (1, 2, 3):
            assert "Traceback" not in with_fourth.nodes[node_id].log_path.read_text()
    finally:
        with_fourth.close()


@pytest.fixture(autouse=True)
def undisturbed(own_cluster: Cluster, topic: str) -> Iterator[None]:
    """The three voters go on: a record is produced before and after, and no fourth broker is there."""
    client = Confluent(",".join(own_cluster.nodes[node_id].address for node_id in (1, 2, 3)))
    client.create_topic(topic, 1, 3)
    client.produce(topic, [b"before"])
    yield
    assert client.produce(topic, [b"after"]) == [(0, 1)]
    assert client.describe().broker_ids == {1, 2, 3}
    client.close()


def fourth(cluster: Cluster, **changes: str) -> NodeProcess:
    """Return the fourth node with some settings changed (_ for .), on an empty folder."""
    lines = dict(line.split("=", 1) for line in cluster.nodes[INTRUDER].config_path.read_text().splitlines())
    lines |= {name.replace("_", "."): value for name, value in changes.items()}
    folder = cluster.directory / f"intruder-{len(list(cluster.directory.iterdir()))}"
    lines["log.dirs"] = changes.get("log_dirs", str(folder / "data"))
    node_id = int(lines["node.id"])
    return NodeProcess(node_id, folder, settings=lines, port=cluster.nodes[INTRUDER].port)


def refusal(cluster: Cluster, node: NodeProcess) -> str:
    """Run a node to its end, which must come by itself, and return what it logged; never a traceback."""
    node.start()
    try:
        cluster.wait_until(lambda: not node.running, f"it ends: {node.log_tail()}")
        assert node.wait() == 1, node.log_tail()
    finally:
        node.kill()
    text = node.log_path.read_text()
    assert "Traceback" not in text, text
    return text


def test_a_node_with_a_foreign_cluster_id_does_not_join(own_cluster: Cluster) -> None:
    """cluster.id of another cluster, all else right: both ids are named."""
    text = refusal(own_cluster, fourth(own_cluster, cluster_id=OTHER_CLUSTER))
    assert OTHER_CLUSTER in text
    assert Confluent(own_cluster.nodes[1].address).describe().cluster_id in text


def test_a_voter_with_a_foreign_cluster_id_does_not_vote(own_cluster: Cluster) -> None:
    """A voter that lost its disk and got another cluster's id: refused by the others, and it cannot lead alone."""
    own_cluster.kill(3)
    port = own_cluster.nodes[3].port
    settings = dict(line.split("=", 1) for line in own_cluster.nodes[3].config_path.read_text().splitlines())
    folder = own_cluster.directory / "foreign-voter"
    settings |= {"cluster.id": OTHER_CLUSTER, "log.dirs": str(folder / "data")}
    impostor = NodeProcess(3, folder, settings=settings, port=port)
    impostor.start()
    try:
        own_cluster.wait_until(
            lambda: not impostor.running or OTHER_CLUSTER in impostor.log_path.read_text(), "it says why"
        )
        assert view(own_cluster, "none") is None
    finally:
        impostor.kill()
    assert "Traceback" not in impostor.log_path.read_text()
    own_cluster.restart(3)


def test_a_node_without_the_secret_does_not_join(own_cluster: Cluster) -> None:
    """Knowing the addresses is not enough: it never registers, and its log says that it is refused."""
    node = fourth(own_cluster, raftlog_cluster_secret="guessed, but not well")
    node.start()
    try:
        own_cluster.wait_until(lambda: "secret" in node.log_path.read_text(), "it says why")
        assert node.running
    finally:
        node.kill()
    assert "Traceback" not in node.log_path.read_text()


def test_the_data_folder_of_another_node_is_refused(own_cluster: Cluster) -> None:
    """meta.properties names its owner; the folder is left as it was."""
    copy = own_cluster.directory / "copy-of-1"
    shutil.copytree(own_cluster.nodes[1].directory / "data", copy)
    before = (copy / "meta.properties").read_bytes()
    text = refusal(own_cluster, fourth(own_cluster, log_dirs=str(copy)))
    assert "node.id=1" in text
    assert "node.id=4" in text
    assert (copy / "meta.properties").read_bytes() == before


def test_a_data_folder_in_use_is_refused(own_cluster: Cluster) -> None:
    """Two processes on one folder would destroy it: the second does not touch it."""
    folder = own_cluster.nodes[1].directory / "data"
    settings = dict(line.split("=", 1) for line in own_cluster.nodes[1].config_path.read_text().splitlines())
    twin = NodeProcess(1, own_cluster.directory / "twin", settings=settings, port=own_cluster.nodes[1].port)
    text = refusal(own_cluster, twin)
    assert str(folder) in text
    assert "in use" in text or "lock" in text


def test_a_data_folder_of_another_cluster_is_refused(own_cluster: Cluster) -> None:
    """The right node id, but the folder belongs to another cluster id."""
    folder = own_cluster.directory / "of-another-cluster"
    folder.mkdir()
    (folder / "meta.properties").write_text(f"version=1\nnode.id=4\ncluster.id={OTHER_CLUSTER}\n")
    text = refusal(own_cluster, fourth(own_cluster, log_dirs=str(folder)))
    assert OTHER_CLUSTER in text


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_port_in_use_is_a_clear_error(own_cluster: Cluster, listener: str) -> None:
    """Which listener, which port, and that it is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = own_cluster.nodes[INTRUDER].port
        ports = {"PLAINTEXT": free, "CONTROLLER": 0} | {listener: port}
        alone = fourth(
            own_cluster,
            process_roles="broker,controller",
            controller_quorum_voters=f"4@127.0.0.1:{ports['CONTROLLER'] or 1}",
            listeners=",".join(f"{name}://127.0.0.1:{number}" for name, number in ports.items()),
        )
        text = refusal(own_cluster, alone)
    assert f"{listener}://127.0.0.1:{port}" in text
    assert "in use" in text


def test_all_faults_of_a_config_are_named_at_once(own_cluster: Cluster) -> None:
    """Misspelt, out of range, contradictory: one run shows them all, without a traceback."""
    node = fourth(own_cluster, log_retention_hour="5", num_partitions="0", listeners="nonsense")
    node.start()
    assert node.wait() == 2
    text = node.log_path.read_text()
    assert "Traceback" not in text
    for name in ("log.retention.hour", "num.partitions", "listeners"):
        assert name in text
