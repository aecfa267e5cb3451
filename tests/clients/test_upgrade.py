"""A cluster of the previous release is upgraded node by node, and back, while stock clients use it (nightly)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from raftlog.base.types import METADATA_FOLDER
from raftlog.metadata.features import NEWEST_METADATA_LEVEL
from raftlog.testing.cluster import Cluster
from tests.clients.background_producer import BackgroundProducer
from tests.clients.nodes import events, told, violations, wait_isr
from tests.clients.with_confluent import Confluent
from tests.kit.releases import Release, previous_release
from tests.kit.waits import PATIENCE_S

pytestmark = pytest.mark.nightly

SOME = 50
TOPIC, COPIES = "upgraded", "copies"
GROUP = "copiers"
LEVEL_BEFORE = 1
"""The newest level of the previous release."""
REFUSED = f"supports levels 0 to {LEVEL_BEFORE} of raftlog.metadata.version, and the cluster's is"
GOES_TOO_LATE = ("quorum_failed", "node_failed")
"""The events of the previous release where its journal has newer records."""
WROTE_NO_CHECKSUMS = ("corrupt_file_ignored", "corrupt_lines_ignored")
"""The events of this release after the previous release wrote files beside the checksums of an earlier start."""


class MixedCluster(Cluster):
    """Three nodes that all run the previous release until a test switches them."""

    forked = False

    def __init__(self, release: Release) -> None:
        self.old = release
        super().__init__(3, settings={"min.insync.replicas": "2", "default.replication.factor": "3"})
        for node_id in self.nodes:
            self.choose(node_id, old=True)

    def choose(self, node_id: int, *, old: bool) -> None:
        """Choose the release that a node runs from its next start on."""
        self.nodes[node_id].python = str(self.old.python) if old else sys.executable

    def move(self, node_id: int, *, old: bool) -> None:
        """Stop a node gently and start it as another release, then wait until it is in sync."""
        assert self.stop(node_id) == 0
        self.choose(node_id, old=old)
        self.restart(node_id)
        for partition in range(3):
            wait_isr(self, TOPIC, self.nodes, partition)
        wait_isr(self, COPIES, self.nodes)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return previous_release(tmp_path_factory.mktemp("release"))


@pytest.fixture
def mixed_cluster(release: Release) -> Iterator[MixedCluster]:
    with MixedCluster(release) as running:
        yield running
        expected = (*GOES_TOO_LATE, *WROTE_NO_CHECKSUMS)
        found = [each for each in violations(running) if each["event"] not in expected]
        assert not found, told(found)


class Copier:
    """An exactly-once program: each step copies a number and commits an offset, in one transaction."""

    def __init__(self, bootstrap: str) -> None:
        # not rebootstrap: once all brokers are unreachable, librdkafka 2.16 replaces its broker objects, but waits
        # forever for the former object of the group coordinator
        here = {"bootstrap.servers": bootstrap, "log_level": 0, "metadata.recovery.strategy": "none"}
        self.copied = 0
        self._consumer = Consumer({**here, "group.id": GROUP})
        self._producer = Producer({**here, "transactional.id": "copier"})
        self._producer.init_transactions(PATIENCE_S)

    def step(self) -> None:
        """Copy once more, and find the offset as it was committed."""
        number = self.copied + 1
        group = self._consumer.consumer_group_metadata()
        self._producer.begin_transaction()
        self._producer.produce(COPIES, str(number))
        self._producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, number)], group, PATIENCE_S)
        self._producer.commit_transaction(PATIENCE_S)
        self.copied = number
        (found,) = self._consumer.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)
        assert found.offset == number

    def close(self) -> None:
        self._consumer.close()


def create_user(bootstrap: str, user: str) -> None:
    """Create a SCRAM user."""
    wanted = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret-of-it"
    )
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.alter_user_scram_credentials([wanted]).values()
    future.result(PATIENCE_S)


def users(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return set(admin.describe_user_scram_credentials().result(PATIENCE_S))


def upgrade(bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlog", "cluster", "upgrade", "-b", bootstrap, "-J", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_cluster_is_upgraded_and_brought_back_node_by_node_without_an_error(
    mixed_cluster: MixedCluster,
) -> None:
    """Clients notice neither way; the level is raised once all nodes know it, and then there is no way back."""
    bootstrap = mixed_cluster.bootstrap_servers
    admin = Confluent(bootstrap)
    admin.create_topic(TOPIC, 3, 3)
    admin.create_topic(COPIES, 1, 3)
    copier = Copier(bootstrap)
    streams = [BackgroundProducer(Confluent(bootstrap), TOPIC, partition=each) for each in range(3)]
    with ExitStack() as stack:
        take = stack.enter_context(admin.reading(TOPIC, 0))
        for stream in streams:
            stack.enter_context(stream)

        def served() -> None:
            for stream in streams:
                stream.wait_acked(SOME)
            assert len(take(SOME)) == SOME
            copier.step()

        served()
        for node_id in (1, 2):
            mixed_cluster.move(node_id, old=False)
            served()
        new = mixed_cluster.nodes[1].address
        _refuse_dynamic_voters(new)
        early = upgrade(new)
        assert early.returncode == 1
        assert f"broker 3 supports levels 0 to {LEVEL_BEFORE} of raftlog.metadata.version" in early.stderr
        for node_id in (2, 1):
            mixed_cluster.move(node_id, old=True)
            served()
        for node_id in (3, 1, 2):
            mixed_cluster.move(node_id, old=False)
            served()
        _refuse_dynamic_voters(bootstrap)
        tried = upgrade(bootstrap, "--dry-run")
        assert json.loads(tried.stdout) == {
            "before": LEVEL_BEFORE,
            "after": NEWEST_METADATA_LEVEL,
            "dry_run": True,
        }
        done = upgrade(bootstrap)
        assert (done.returncode, json.loads(done.stdout)["after"]) == (0, NEWEST_METADATA_LEVEL), done.stderr
        create_user(bootstrap, "alice")
        served()
        for node_id in mixed_cluster.nodes:
            mixed_cluster.move(node_id, old=False)
            served()
        assert users(bootstrap) == {"alice"}
    for stream in streams:
        assert stream.read_back(admin) == stream.values
    assert admin.bounds(COPIES, 0)[1] >= copier.copied
    copier.close()
    _refuse_the_previous_release(mixed_cluster, 3)
    dynamic = make_voters_dynamic(bootstrap)
    assert dynamic.returncode == 0, dynamic.stderr


def make_voters_dynamic(bootstrap: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlog", "quorum", "dynamic", "-b", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def _refuse_dynamic_voters(address: str) -> None:
    """What old nodes do not know is refused, whichever release the controller is of."""
    refused = make_voters_dynamic(address)
    assert refused.returncode != 0
    assert "raftlog.metadata.version" in refused.stderr or "kraft.version" in refused.stderr, refused.stderr


def _refuse_the_previous_release(cluster: MixedCluster, node_id: int) -> None:
    """A node that goes back too late takes no part, and harms no other; then it comes back as what it was."""
    assert cluster.stop(node_id) == 0
    cluster.choose(node_id, old=True)
    node = cluster.nodes[node_id]
    node.start()
    assert node.wait() != 0, "its journal has records that it does not know"
    journal = node.directory / "data" / METADATA_FOLDER
    journal.rename(node.directory / "kept")
    node.start()

    def is_refused() -> bool:
        """Without a journal it asks the others, and they return the reason of their refusal."""
        return any(REFUSED in json.dumps(event) for event in events(cluster, node_id))

    cluster.wait_until(is_refused, "the previous release hears why it is refused")
    assert users(cluster.nodes[1].address) == {"alice"}
    node.kill()
    shutil.rmtree(journal)
    (node.directory / "kept").rename(journal)
    cluster.choose(node_id, old=False)
    cluster.restart(node_id)
    assert users(node.address) == {"alice"}
