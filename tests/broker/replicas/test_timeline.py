"""An operator reads when something happens to one partition, and to thousands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from raftlog.broker.replicas.timeline import NAMED, SAID_ONE_BY_ONE, Timeline
from raftlog.replication.partition import Partition


def partition(index: int) -> Partition:
    return cast(Partition, SimpleNamespace(topic="t", index=index, leader_epoch=3))


async def told(count: int, event: str = "isr_shrunk") -> list[Any]:
    timeline = Timeline(asyncio.get_running_loop())
    with capture_logs() as lines:
        for index in range(count):
            timeline.log_event(event, partition(index), {"isr": (1, 2)})
        await asyncio.sleep(0)
    return lines


@pytest.mark.parametrize("count", [1, SAID_ONE_BY_ONE])
async def test_what_happens_to_few_partitions_is_said_of_each(count: int) -> None:
    """With topic, partition and leader epoch."""
    lines = await told(count)
    assert len(lines) == count
    expected = {"event": "isr_shrunk", "topic": "t", "partition": 0, "leader_epoch": 3, "isr": (1, 2)}
    assert {**lines[0], **expected} == lines[0]


async def test_what_happens_to_many_partitions_at_once_is_one_line() -> None:
    """A failover of thousands must not bury what else is said."""
    (line,) = await told(2_000)
    assert (line["event"], line["count"]) == ("isr_shrunk", 2_000)
    assert line["partitions"] == [f"t-{index}" for index in range(NAMED)]


async def test_what_needs_a_person_is_said_of_each_and_at_once() -> None:
    """Damage is named partition by partition."""
    timeline = Timeline(asyncio.get_running_loop())
    with capture_logs() as lines:
        for index in range(2 * SAID_ONE_BY_ONE):
            timeline.log_event("log_damaged", partition(index), {})
    assert len(lines) == 2 * SAID_ONE_BY_ONE
    assert {line["log_level"] for line in lines} == {"error"}
