"""`raftlog cluster restart` and `raftlog node wait-safe`, at real nodes that restart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from raftlog.cli import exits
from raftlog.testing.cluster import AdminCluster
from tests.cli.live import invoke
from tests.kit.waits import PATIENCE_S, ended

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[AdminCluster]:
    """Three nodes, and a topic that has one replica to spare."""
    with AdminCluster(3) as found:
        found.create_topic("rides", partitions=2, settings={"min.insync.replicas": "2"})
        found.wait_until_healthy()
        yield found


def raftlog(*arguments: str, cluster: AdminCluster, node_id: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "raftlog", *arguments, "--http", cluster.admin_url(node_id)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Operator:
    """Restarts the nodes that a command asks for: it writes a number to one pipe, and waits at the other."""

    def __init__(self, folder: Path) -> None:
        self.wanted, self.done = folder / "wanted", folder / "done"
        for each in (self.wanted, self.done):
            os.mkfifo(each)
        self.command = f"echo {{id}} > {self.wanted}; read code < {self.done}; exit $code"

    def next(self) -> int:
        return int(self.wanted.read_text())

    def answer(self, code: int = 0) -> None:
        self.done.write_text(f"{code}\n")


@contextmanager
def writing(cluster: AdminCluster) -> Iterator[Counter[str]]:
    """Produce to both partitions with acks=all, each record once; yield the names of the errors and how often each was.

    Moved leaders count as errors, since no record is sent again.
    """
    from confluent_kafka import Producer

    ended, errors = Event(), Counter[str]()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "retries": 0})

    def write() -> None:
        number = 0
        while not ended.wait(0.04):
            number += 1
            producer.produce(
                "rides",
                str(number),
                partition=number % 2,
                on_delivery=lambda error, _record: errors.update([error.name() if error else "none"]),
            )
            producer.poll(0)
        producer.flush(PATIENCE_S)

    thread = Thread(target=write)
    thread.start()
    try:
        yield errors
    finally:
        ended.set()
        thread.join()


def test_each_node_is_restarted_once_the_leader_of_the_quorum_last(
    own_cluster: AdminCluster, tmp_path: Path
) -> None:
    """Each restart waits until the previous node is in every ISR again."""
    operator, restarted = Operator(tmp_path), []
    leader = own_cluster.controller_id()
    running = raftlog("cluster", "restart", "--each", operator.command, "--wait", "60", cluster=own_cluster)
    with writing(own_cluster) as errors:
        for _ in range(3):
            node_id = operator.next()
            restarted.append(node_id)
            partitions = own_cluster.partitions("rides").values()
            assert all(sorted(each.isr) == [1, 2, 3] for each in partitions), "the last one has not caught up"
            assert all(each.leader != node_id for each in partitions), "it is drained"
            own_cluster.stop(node_id)
            own_cluster.restart(node_id, wait=False)
            operator.answer()
        assert ended(running) == 0, running.stderr and running.stderr.read()
    assert errors["none"] > 0
    assert not [name for name in errors if name.startswith("NOT_ENOUGH_REPLICAS")], errors
    assert running.stderr is not None and running.stdout is not None
    said = running.stderr.read().splitlines()
    running.stderr.close()
    running.stdout.close()
    assert sorted(restarted) == [1, 2, 3]
    assert restarted[-1] == leader
    assert [line for line in said if "caught up" in line and "waiting" not in line] == [
        f"node {each}: caught up" for each in restarted
    ]
    own_cluster.wait_until_healthy()


def test_it_stops_at_a_command_that_fails_and_resumes_later(own_cluster: AdminCluster) -> None:
    """The node is not left drained, and nodes that restarted since are left alone."""
    url = own_cluster.admin_url(1)
    code, _, errors = invoke("cluster", "restart", "--each", "exit 3 # {id}", "--http", url)
    assert code == exits.FAILED
    assert "ended with exit code 3; no broker has been restarted" in errors
    code, printed, _ = invoke(
        "cluster",
        "restart",
        "--each",
        "true {id}",
        "--skip",
        "1,2,3",
        "--dry-run",
        "-o",
        "jsonl",
        "--http",
        url,
    )
    assert (code, printed) == (0, "")
    code, _, errors = invoke("cluster", "restart", "--each", "true", "--http", url)
    assert (code, errors) == (
        exits.USAGE,
        "raftlog: --each: must contain {id}, which stands for the node's id\n",
    )
    own_cluster.wait_until_healthy()


def test_a_node_whose_stop_would_do_harm_is_waited_for(own_cluster: AdminCluster) -> None:
    """With one node down, a second stop would leave one voter and one replica; it is safe once the first is back."""
    own_cluster.kill(3)  # in the same moment it is not missed yet, and is in the ISRs
    url = own_cluster.admin_url(2)
    code, _, errors = invoke("node", "wait-safe", "--wait", "0", "--http", url)
    assert code == exits.UNHEALTHY
    assert "only 1 of 3 voters would keep up" in errors
    assert "2 partitions: fewer replicas than min.insync.replicas would be in sync" in errors
    waiting = raftlog("node", "wait-safe", "--wait", "60", cluster=own_cluster, node_id=2)
    assert waiting.stderr is not None and waiting.stdout is not None
    assert waiting.stderr.readline().startswith("waiting: only 1 of 3 voters")
    assert waiting.poll() is None
    own_cluster.restart(3)
    assert ended(waiting) == 0, waiting.stderr.read()
    for stream in (waiting.stdout, waiting.stderr):
        stream.close()
    rows = invoke("cluster", "restart", "--each", "true {id}", "--dry-run", "-o", "jsonl", "--http", url)
    assert rows[1].count('"safe":true') == 3 or rows[1].count('"safe": true') == 3, rows


def test_a_node_that_does_not_answer_is_not_waited_for(own_cluster: AdminCluster) -> None:
    """It delays no other node: the operator may go on."""
    own_cluster.stop(3)
    code, _, errors = invoke("node", "wait-safe", "--wait", "60", "--http", own_cluster.admin_url(3))
    assert code == exits.UNREACHABLE
    assert "no answer at" in errors
    own_cluster.restart(3)
