"""Claims about nodes that end by themselves, or will not end: no later fault or repair hides this."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.faults.harm import Rot
from raftlog.testing.progress import Stalled
from raftlog_chaos.testbeds import processes


class FakeNode:
    """A process that runs until it is stopped."""

    running = True
    paused = False
    address = "127.0.0.1:1"
    log_path = Path()

    def start(self) -> None:
        self.running = True

    def signal(self, _number: int) -> None:
        self.running = False

    def wait(self) -> int:
        if self.running:
            raise Stalled("node 2 ends: nothing moved", 60.0)
        return 0

    def kill(self) -> None:
        self.running = False

    def log_tail(self, _lines: int) -> str:
        return "the last line"


def a_place() -> tuple[Any, dict[int, FakeNode]]:
    """Three nodes that run, as the place started them."""
    nodes = {node_id: FakeNode() for node_id in (1, 2, 3)}

    def stop(node_id: int, *_: object) -> None:
        nodes[node_id].running = False

    cluster = SimpleNamespace(nodes=nodes, bootstrap_servers="", kill=stop, power_cut=stop)
    testbed = processes.ProcessTestbed(cluster, random.Random(1))
    for node_id in nodes:
        stop(node_id)
        asyncio.run(testbed.start(node_id))
    return testbed, nodes


@pytest.mark.parametrize("fault", ["kill", "power_cut", "terminate", "start"])
def test_a_node_that_ended_by_itself_is_reported_whatever_befalls_it_next(fault: str) -> None:
    """Without this a restart of all nodes would hide an earlier death."""
    testbed, nodes = a_place()
    nodes[2].running = False
    asyncio.run(getattr(testbed, fault)(2))
    asyncio.run(testbed.start(2))
    assert testbed.fallen() == {2: "ended by itself: the last line"}


@pytest.mark.parametrize("fault", ["kill", "power_cut", "terminate"])
def test_a_node_that_a_fault_stopped_has_not_fallen(fault: str) -> None:
    """Neither while it is down nor after it was started again."""
    testbed, _ = a_place()
    asyncio.run(getattr(testbed, fault)(2))
    assert testbed.fallen() == {}
    asyncio.run(testbed.start(2))
    assert testbed.fallen() == {}


class Deaf(FakeNode):
    """A process that hears no SIGTERM."""

    def signal(self, _number: int) -> None:
        """It goes on."""


@pytest.mark.parametrize("paused", [False, True])
def test_a_node_that_does_not_end_on_request_is_a_scandal(paused: bool) -> None:
    """It is killed so that the run can go on, and that is reported; for a paused node it is normal."""
    testbed, nodes = a_place()
    nodes[2] = Deaf()
    asyncio.run(testbed.terminate(2))
    nodes[2].paused = paused
    asyncio.run(testbed.start(2))
    assert nodes[2].running
    assert bool(testbed.violations()) is not paused
    assert all("node 2 ends: nothing moved" in each for each in testbed.violations())


def test_rot_on_a_node_is_watched_over_its_restart(tmp_path: Path) -> None:
    """The place knows what it flipped, and asks the node's log."""
    testbed, nodes = a_place()
    nodes[2].log_path = tmp_path / "node.log"
    (tmp_path / "t-0").mkdir()
    rot = Rot(str(tmp_path / "t-0" / "0.log"), is_due=True)
    testbed.cluster.flip_bit = lambda *_: rot
    assert asyncio.run(testbed.flip_bit(2, 0.5))
    assert nodes[2].running
    assert testbed.violations() == ("node 2: a bit flipped in t-0 was never noticed",)
