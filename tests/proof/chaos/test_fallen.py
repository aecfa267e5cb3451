"""Claims about nodes that end by themselves: no fault and no cure that follows hides one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.proof.chaos.places import load

PROCESSES = Path(__file__).parents[3] / "chaos" / "places" / "processes.py"


class FakeNode:
    """A process that runs until it is told otherwise."""

    running = True
    paused = False

    def start(self) -> None:
        self.running = True

    def signal(self, _number: int) -> None:
        self.running = False

    def log_tail(self, _lines: int) -> str:
        return "the last line"


def a_place() -> tuple[Any, dict[int, FakeNode]]:
    """Three nodes that run, as the place started them."""
    nodes = {node_id: FakeNode() for node_id in (1, 2, 3)}

    def stop(node_id: int, *_: object) -> None:
        nodes[node_id].running = False

    cluster = SimpleNamespace(nodes=nodes, bootstrap_servers="", kill=stop, power_cut=stop)
    place = load(PROCESSES).ProcessPlace(cluster, random.Random(1))
    for node_id in nodes:
        stop(node_id)
        asyncio.run(place.start(node_id))
    return place, nodes


@pytest.mark.parametrize("fault", ["kill", "power_cut", "terminate", "start"])
def test_a_node_that_ended_by_itself_is_told_whatever_befalls_it_next(fault: str) -> None:
    """A restart of all nodes would else wash away that one of them had died before."""
    place, nodes = a_place()
    nodes[2].running = False
    asyncio.run(getattr(place, fault)(2))
    asyncio.run(place.start(2))
    assert place.fallen() == {2: "ended by itself: the last line"}


@pytest.mark.parametrize("fault", ["kill", "power_cut", "terminate"])
def test_a_node_that_a_fault_stopped_has_not_fallen(fault: str) -> None:
    """Neither while it is down nor after it was started again."""
    place, _ = a_place()
    asyncio.run(getattr(place, fault)(2))
    assert place.fallen() == {}
    asyncio.run(place.start(2))
    assert place.fallen() == {}
