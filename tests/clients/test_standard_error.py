"""Trouble with the nodes' standard error is no trouble of the cluster: every walk goes on, and the nodes say so."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.cluster import AdminCluster
from raftlog.testing.forked_process import ForkedProcess
from raftlog.testing.node_process import NodeProcess
from tests.clients.with_confluent import Confluent
from tests.kit.marks import taste
from tests.kit.waits import PATIENCE_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

KINDS = ("closed-pipe", "stuck-pipe", "closed-terminal", "full-disk")
REASONS = {
    "closed-pipe": "Broken pipe",
    "stuck-pipe": "its reader does not keep up",
    "closed-terminal": "Input/output error",
    "full-disk": "No space left on device",
}
SMALL_PIPE_BYTES = 4096


class Standing(NodeProcess):
    """A node with trouble at its standard error once `trouble` was called, or from its start on."""

    kind = ""
    ours = -1
    theirs = -1

    def start(self) -> None:
        if self.kind == "closed-terminal":
            self.ours, self.theirs = pty.openpty()
        elif self.kind == "full-disk":
            self.theirs = os.open("/dev/full", os.O_WRONLY)
        else:
            self.ours, self.theirs = os.pipe()
        if self.kind == "stuck-pipe":
            os.write(self.theirs, b"." * fcntl.fcntl(self.theirs, fcntl.F_SETPIPE_SZ, SMALL_PIPE_BYTES))
        super().start()
        os.close(self.theirs)

    def _fork(self, streams: Sequence[int]) -> ForkedProcess | None:
        return super()._fork([*streams[:2], self.theirs])

    def trouble(self) -> None:
        """Have the reader go."""
        if self.kind.startswith("closed"):
            os.close(self.ours)
            self.ours = -1

    def let_go(self) -> None:
        """Close our end."""
        with suppress(OSError):
            os.close(self.ours)


class TroubledCluster(AdminCluster):
    """Three nodes with one kind of standard error."""

    kind = ""

    def trouble(self, node_id: int) -> None:
        """Have the reader of a node's standard error go."""
        node = self.nodes[node_id]
        assert isinstance(node, Standing)
        node.trouble()

    def make_node(self, node_id: int, folder: Path, **options: Any) -> NodeProcess:
        node = Standing(node_id, folder, **options)
        node.kind = self.kind
        return node


@pytest.fixture(params=taste(("closed-pipe", "stuck-pipe"), KINDS))
def troubled_cluster(request: pytest.FixtureRequest) -> Iterator[TroubledCluster]:
    made = type("Made", (TroubledCluster,), {"kind": request.param})(3)
    try:
        made.start()
        for node_id in made.nodes:
            made.trouble(node_id)
        yield made
    finally:
        made.close()
        for node in made.nodes.values():
            node.let_go()


def asked(cluster: AdminCluster, node_id: int, path: str) -> Any:
    """Return what a node answers; an answer that is no 200 raises HTTPError."""
    with urllib.request.urlopen(f"{cluster.admin_url(node_id)}{path}", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith("{") else text


def codes_of(cluster: AdminCluster, node_id: int) -> set[str]:
    """Return the codes of the reasons in what a node says of the cluster's health."""
    return {each["code"] for each in asked(cluster, node_id, "/v1/health")["reasons"]}


def kill_controller(cluster: AdminCluster) -> int:
    """Kill the active controller, wait for its successor, and return the killed node."""
    controller = cluster.controller_id()
    assert controller is not None
    cluster.kill(controller)
    until(lambda: cluster.controller_id() not in (None, controller), "another controller is active")
    return controller


def test_every_walk_of_a_cluster_goes_on(troubled_cluster: TroubledCluster) -> None:
    """Topics come and go, records are acknowledged, controllers and leaders fail over, nodes stop in order."""
    client = Confluent(troubled_cluster.bootstrap_servers)
    client.create_topic("kept", 6, 3, min_insync_replicas="2")
    client.create_topic("gone", 6, 3)
    client.produce("kept", [b"before"], partition=0)
    for _ in range(2):
        controller = kill_controller(troubled_cluster)
        client.produce("kept", [b"meanwhile"], partition=0)
        troubled_cluster.restart(controller)
        troubled_cluster.trouble(controller)
    client.delete_topic("gone")
    until(
        lambda: codes_of(troubled_cluster, 1) <= {"log_unwritable", "node_slow", "leaders_not_preferred"},
        "all is well but for the logs",
    )
    (read,) = client.read_ranges("kept", 0, [(0, 3)])
    assert [each.value for each in read] == [b"before", b"meanwhile", b"meanwhile"]
    client.close()
    for node_id in troubled_cluster.nodes:
        assert troubled_cluster.stop(node_id) == 0


def test_a_node_says_that_its_log_cannot_be_written(troubled_cluster: TroubledCluster) -> None:
    """It stays ready, since it serves; its body says so, and so do health and metrics."""
    reason = REASONS[troubled_cluster.kind]

    Confluent(troubled_cluster.bootstrap_servers).create_topic("a", 6, 3)
    until(lambda: "log_unwritable" in codes_of(troubled_cluster, 2), "health says so")
    health = asked(troubled_cluster, 2, "/v1/health")["reasons"]
    (found,) = (each for each in health if each["code"] == "log_unwritable")
    assert (found["severity"], found["brokers"]) == ("yellow", [2]) and reason in found["message"]
    ready = asked(troubled_cluster, 2, "/v1/ready")
    assert ready["ready"] and ready["reasons"] == [] and reason in ready["warnings"][0]
    metrics = asked(troubled_cluster, 2, "/metrics")
    assert "\nraftlog_log_writable 0\n" in metrics and "\nraftlog_log_lines_lost_total" in metrics
