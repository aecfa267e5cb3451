"""A worker of a queue is a process of its own: it can be killed, and it does not outlive its parent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from raftlog_chaos.workloads import queue_port
from raftlog_chaos.workloads.port import Indefinite
from raftlog_chaos.workloads.queue_port import StockQueuePort
from raftlog_chaos.workloads.queue_workload import Said
from raftlog_chaos.workloads.share_client import acknowledge
from tests.kit.waits import PATIENCE_S

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def test_a_worker_without_a_cluster_gets_nothing_and_can_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed worker answers nothing any more: the fate of its operation is unknown."""
    monkeypatch.setattr(queue_port, "POLL_S", 0.01)

    async def play() -> None:
        port = StockQueuePort(NOWHERE, 1, "g", ["t"])
        assert await port.acquire() == []
        await port.kill()
        with pytest.raises(Indefinite, match="worker 1 ended"):
            await port.acknowledge([Said("accept", "t-0", 0)])
        await port.close()

    asyncio.run(play())


def test_a_worker_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call into the client library may never return."""
    monkeypatch.setattr(queue_port, "CALL_S", 0.05)

    async def play() -> None:
        port = StockQueuePort(NOWHERE, 2, "g", ["t"])
        with pytest.raises(Indefinite, match="worker 2 did not return from acquire"):
            await port.acquire()
        with pytest.raises(Indefinite):
            await port.acquire()

    asyncio.run(play())


def test_a_worker_ends_with_its_parent() -> None:
    """Its input ends, and it waits for no broker then."""
    child = subprocess.Popen(
        [sys.executable, "-m", "raftlog_chaos.workloads.share_client"],
        stdin=subprocess.PIPE,
        cwd=Path(queue_port.__file__).parents[2],
    )
    assert child.stdin is not None
    child.stdin.write(b'[{"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["t"], 1]\n')
    child.stdin.close()
    assert child.wait(PATIENCE_S) == 0


class Consumer:
    """Confirms partition 0, refuses partition 1, and says nothing of any other."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def acknowledge_offset(self, *said: object) -> None:
        self.said.append(said)

    def commit_sync(self, timeout_s: float) -> dict[TopicPartition, object]:
        class Refused(Exception):
            def code(self) -> int:
                return 121

        return {TopicPartition("t", 0): None, TopicPartition("t", 1): Exception(Refused())}


def test_an_outcome_belongs_to_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """INVALID_RECORD_STATE is certain; what the client does not mention is not."""
    consumer = Consumer()
    rows = acknowledge(consumer, [["accept", "t", 0, 5], ["reject", "t", 1, 6]], 1.0)
    assert rows == [["t", 0, 0], ["t", 1, 121]] and [each[2] for each in consumer.said] == [5, 6]

    async def answer(_port: object, *command: object) -> list[list[object]]:
        return rows

    monkeypatch.setattr(StockQueuePort, "_call", answer)
    said = [Said("accept", f"t-{index}", 5) for index in range(3)]
    outcomes = asyncio.run(StockQueuePort(NOWHERE, 3, "g", ["t"]).acknowledge(said))
    assert outcomes == {"t-0": "ok", "t-1": "fail", "t-2": "info"}
