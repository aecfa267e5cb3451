"""The drill: a cluster is filled, backed up, destroyed, and brought back elsewhere, with all that clients had."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from typer.testing import CliRunner

from raftlog.cli.app import app
from raftlog.testing.cluster import Cluster
from raftlog.testing.probe import elect_preferred_leaders
from tests.kit.settings import SMALL
from tests.kit.waits import PATIENCE_S, until

TOPIC, GROUP = "orders", "billing"
PARTITIONS, RECORDS = 3, 6000
VALUE = "x" * 1000
CONFIGS = {"segment.bytes": "1048576", "retention.ms": "123456789"}

COORDINATOR_LOAD_IN_PROGRESS = 14

Record = tuple[int, int, str, str]


def run(*arguments: object) -> tuple[int, str, str]:
    """Return exit code, output and complaints."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def fill(cluster: Cluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(TOPIC, f"{number}:{VALUE}", key=str(number), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def consumer_of(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )


def read_all(cluster: Cluster) -> list[Record]:
    """Return every record of the topic."""
    consumer = consumer_of(cluster)
    assigned = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    ends: dict[int, int] = {}

    def are_known() -> bool:
        """The broker that is asked first may not have heard of the topic since it started."""
        try:
            ends.update(
                {each.partition: consumer.get_watermark_offsets(each, PATIENCE_S)[1] for each in assigned}
            )
        except KafkaException as error:
            assert error.args[0].code() == KafkaError._UNKNOWN_PARTITION, error
        return len(ends) == PARTITIONS

    until(are_known, "the ends of the partitions are known")
    left = sum(ends.values())
    consumer.assign(assigned)
    found: list[Message] = []
    while len(found) < left:
        batch = consumer.consume(left - len(found), PATIENCE_S)
        assert batch, f"{len(found)} of {left}"
        found += batch
    consumer.close()
    assert not [each.error() for each in found if each.error()]
    return sorted(
        (each.partition(), each.offset(), each.key().decode(), each.value().decode()) for each in found
    )


def commit(cluster: Cluster, offsets: dict[int, int]) -> None:
    consumer = consumer_of(cluster)
    committed = [TopicPartition(TOPIC, number, offset) for number, offset in offsets.items()]

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=committed, asynchronous=False)
        except KafkaException as error:
            assert error.args[0].retriable() or error.args[0].code() == COORDINATOR_LOAD_IN_PROGRESS, error
            return False
        return True

    until(is_committed, "the offsets are committed")
    consumer.close()


def committed(cluster: Cluster) -> dict[int, int]:
    consumer = consumer_of(cluster)
    asked = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(asked, timeout=PATIENCE_S)}
    consumer.close()
    return found


def configs_of(cluster: Cluster) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values()
    found = asked.result(PATIENCE_S)
    return {name: found[name].value for name in CONFIGS}


def stop(cluster: Cluster) -> None:
    """Stop all nodes at once; the second signal spares each the search for new leaders."""
    for _ in range(2):
        for node in cluster.nodes.values():
            node.signal(signal.SIGTERM)
    assert [node.wait() for node in cluster.nodes.values()] == [0] * len(cluster.nodes)


def back_up(cluster: Cluster, folder: Path) -> str:
    told = ""
    for node in cluster.nodes.values():
        code, out, err = run("backup", "-c", node.config_path, folder)
        assert code == 0, err
        told += out
    return told


@pytest.fixture
def original(folder: Path) -> Iterator[Cluster]:
    """A cluster that was filled."""
    with Cluster(3, directory=folder / "original", settings=SMALL) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, settings=CONFIGS)
        fill(cluster, 0, RECORDS)
        commit(cluster, {0: 17, 1: 1000, 2: 0})
        yield cluster


def test_a_destroyed_cluster_comes_back_from_its_backup_elsewhere(original, folder):
    """Records with their offsets, groups' offsets and configs are as they were when the cluster was stopped."""
    before = read_all(original)
    assert len(before) == RECORDS
    stop(original)
    backup = folder / "backup"
    back_up(original, backup)
    links = [each for each in backup.rglob("*.log") if each.stat().st_nlink == 2]
    assert len(links) >= 3, "segments that never change are linked"

    # The cluster goes on, and what it does to its own files is none of the backup's business.
    for node in original.nodes.values():
        node.start()
    original.wait_ready()
    fill(original, RECORDS, 300)
    commit(original, {0: 99, 1: 99, 2: 99})
    admin = AdminClient({"bootstrap.servers": original.bootstrap_servers})
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
    original.close()
    shutil.rmtree(folder / "original")
    code, _, err = run("restore", "--check", backup)
    assert code == 0, err

    copy = Cluster(3, directory=folder / "copy", settings=SMALL)
    try:
        for node in copy.nodes.values():
            code, _, err = run("restore", "-c", node.config_path, backup)
            assert (code, err) == (0, "")
        copy.start()
        assert read_all(copy) == before
        assert committed(copy) == {0: 17, 1: 1000, 2: 0}
        assert configs_of(copy) == CONFIGS
        fill(copy, RECORDS, 300)
        assert len(read_all(copy)) == RECORDS + 300
    finally:
        copy.close()


def test_backups_of_two_times_are_refused_together(original, folder):
    """A node that ran again has lost no record, but its old backup has: the two together would."""
    code, _, err = run("backup", "-c", original.nodes[1].config_path, folder / "early")
    assert (code, "in use by another process: stop the node first" in err) == (1, True)
    assert not (folder / "early").exists()
    original.stop(1)
    assert run("backup", "-c", original.nodes[1].config_path, folder / "early")[0] == 0
    original.restart(1)
    fill(original, RECORDS, 300)
    stop(original)
    back_up(original, folder / "late")
    assert run("restore", "--check", folder / "late")[0] == 0
    shutil.rmtree(folder / "late" / "node-1")
    (folder / "early" / "node-1").rename(folder / "late" / "node-1")
    code, _, err = run("restore", "--check", folder / "late")
    assert (code, "node 1 ran again before node" in err) == (1, True)


SECRET = {"raftlog.cluster.secret": "one secret of two clusters", **SMALL}
COPY = "the-copy"


def cluster_id_of(cluster: Cluster) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return str(admin.describe_cluster().result(PATIENCE_S).cluster_id)


def test_a_copy_runs_beside_the_original_and_they_never_mix(folder):
    """They share a secret, and nodes of the copy get the original's addresses by mistake."""
    with Cluster(3, directory=folder / "original", settings=SECRET) as original:
        original.create_topic(TOPIC, partitions=PARTITIONS, settings=CONFIGS)
        fill(original, 0, 300)
        before = read_all(original)
        stop(original)
        back_up(original, folder / "backup")
        for node in original.nodes.values():
            node.start()
        original.wait_ready()
        copy = Cluster(3, directory=folder / "copy", settings=SECRET)
        try:
            for node in copy.nodes.values():
                code, _, err = run(
                    "restore", "-c", node.config_path, folder / "backup", "--new-cluster-id", COPY
                )
                assert (code, err) == (0, "")
            copy.start()
            assert cluster_id_of(copy) == COPY != cluster_id_of(original)
            assert read_all(copy) == read_all(original) == before
            fill(original, 300, 30)
            fill(copy, 1000, 60)
            in_original, in_copy = read_all(original), read_all(copy)
            assert ([each[2] for each in in_original], len(in_copy)) == (keys(*range(330)), 360)

            refuse_voter_of_another_cluster(copy, original)
            refuse_broker_of_another_cluster(copy, original)
            assert read_all(original) == in_original
            fill(original, 330, 30)
            assert [each[2] for each in read_all(original)] == keys(*range(360))
        finally:
            copy.close()


def keys(*numbers: int) -> list[str]:
    """Return the keys of some numbers in the order of `read_all`."""
    return [str(each) for each in sorted(numbers, key=lambda number: (number % PARTITIONS, number))]


def refuse_voter_of_another_cluster(copy: Cluster, original: Cluster) -> None:
    """Start a node of the copy with the original's voters: it finds no quorum, and logs the reason."""
    voters = "controller.quorum.voters"
    node, right = copy.nodes[3], copy.nodes[3].setting(voters)
    assert copy.stop(3) == 0
    node.configure({voters: original.nodes[3].setting(voters)})
    node.start()
    until(lambda: "belongs to cluster" in node.log_path.read_text(), "the node is told of the other cluster")
    node.signal(signal.SIGTERM)
    node.wait()
    node.configure({voters: right})
    copy.restart(3)


def refuse_broker_of_another_cluster(copy: Cluster, original: Cluster) -> None:
    """Let a broker of the copy advertise a broker of the original: that one refuses its followers."""
    assert copy.stop(3) == 0
    copy.nodes[3].configure({"advertised.listeners": original.nodes[3].setting("advertised.listeners")})
    copy.nodes[3].start()
    refused = original.nodes[3].log_path

    def is_refused() -> bool:
        """Let node 3 lead again as soon as it is in sync, so that others have to follow it."""
        with suppress(OSError):
            elect_preferred_leaders(copy.nodes[1].host, copy.nodes[1].port)
        return "belongs to another cluster" in refused.read_text()

    until(is_refused, "the original refuses the copy")


def test_one_nodes_older_backup_is_refilled_from_the_others(original, folder):
    """It comes back first, with logs and metadata of before; no record acknowledged since is lost."""
    original.stop(3)
    node, early = original.nodes[3], folder / "early"
    assert run("backup", "-c", node.config_path, early)[0] == 0
    original.restart(3)
    fill(original, RECORDS, 900)
    before = read_all(original)
    assert original.stop(3) == 0  # not last: the last in-sync replica alone is known to have all records
    stop(original)
    for each in map(Path, node.folders):
        shutil.rmtree(each)
        each.mkdir()
    code, _, err = run("restore", "-c", node.config_path, early)
    assert (code, "this node is trusted with none of its records" in err) == (0, True)
    for each in (3, 1, 2):
        original.nodes[each].start()
    original.wait_ready()
    assert len(before) == RECORDS + 900
    assert read_all(original) == before
    assert "log_directory_outdated" in node.log_path.read_text()
    original.wait_until_healthy()
    logs = [each.log_path.read_text() for each in original.nodes.values()]
    assert not [each for each in logs if "committed_records_truncated" in each or "replica_failed" in each]
