"""Transactions hang, and an operator finds and aborts them, while the producers with their ids go on.

Only the transaction that began at the offset shown to the operator ends: no transaction with a coordinator loses a
record. And every hanging transaction is found.
"""

from __future__ import annotations

import asyncio
import random
from copy import copy
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.base.types import TopicPartition
from raftlog_chaos.scenarios.exactly_once import OUTCOMES, PARTITIONS, ExactlyOnce
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.loop import SimLoop
from raftlog_chaos.workloads.exactly_once import ExactlyOnceReader, ExactlyOnceWorker
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.raw_client import AWAY, Client
from raftlog_chaos.workloads.straying_worker import StrayingWorker, StrayModel, StrayReader

ROUND_S: Final = 1.5
"""The longest wait of an operator for a node's answer: the node may be dead."""

LINGERS_S: Final = (0.0, 0.02, 0.1, 0.4)
"""Up to how long a node takes for a step of an operator's request."""

OPERATORS: Final = ("operator0", "operator1")

LOOKS_EVERY_S: Final = 0.05
"""About how long an operator waits before the next look."""


class HangingTransactions(ExactlyOnce):
    """The stage with operators, and workers that each have their own id."""

    kind = StrayingWorker
    ids = ("one", "two", "three")
    workers_each = 1

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.book: StrayModel = StrayModel(OUTCOMES, PARTITIONS, self.scene.history)

    async def begin(self) -> None:
        await super().begin()
        for name in OPERATORS:
            chance = self.scene.loop.stream(name)
            self.scene.loop.host(name).start(self._operate(chance))

    def _employ(self, name: str, transactional_id: str) -> ExactlyOnceWorker:
        worker = super()._employ(name, transactional_id)
        assert isinstance(worker, StrayingWorker)
        worker.believe = self._believe
        worker.bumping &= transactional_id == self.ids[0]  # the others are classic: only those stray
        return worker

    def _reader(self, name: str, index: int) -> ExactlyOnceReader:
        reader = StrayReader(Client(name, self.scene.cluster.bootstrap), (OUTCOMES, index), self.book)
        self.scene.loop.host(name).start(reader.run())
        return reader

    def _believe(self, where: TopicIndex, producer_id: int, epoch: int) -> bool:
        state = self.scene.cluster.state(*where)
        replica = None if state is None else self.scene.cluster.replica(state.leader, *where)
        if replica is None or not replica.is_leader:
            return False
        try:
            asked = replica.begin_verification(producer_id, epoch)
        except KafkaError:
            return False
        return asked is not None and asked.confirm()

    # -- the operators -------------------------------------------------------------------------------------

    async def _operate(self, chance: random.Random) -> None:
        """Make each node in turn search for hanging transactions, and end them."""
        while True:
            ready = [each for each in self.scene.cluster.running() if each.ready]
            node = chance.choice(ready).node if ready else None
            if node is not None and node.broker is not None:
                clears = self._clear(_slow(node.broker.transactions.survey(), chance), chance)
                host = self.scene.cluster.nodes[node.config.node_id].host
                await asyncio.wait([host.start(clears)], timeout=ROUND_S)
            await asyncio.sleep(chance.expovariate(1 / LOOKS_EVERY_S))

    async def _clear(self, survey: Any, chance: random.Random) -> None:
        try:
            for each in await survey.hanging(OUTCOMES, unused_ms=0):
                await _linger(chance)
                tp = TopicPartition(each.topic, each.partition)
                await survey.end_hanging(tp, each.start_offset)
                self.book.abort(tp, each.start_offset)
        except (KafkaError, *AWAY):
            pass  # there is trouble, or it has ended: the next round shows


def _slow(survey: Any, chance: random.Random) -> Any:
    """Delay a node's survey once coordinators have answered."""
    slow = copy(survey)
    ask_all = slow.all

    async def ask_all_and_linger(**which: Any) -> Any:
        found = await ask_all(**which)
        await _linger(chance)
        return found

    slow.all = ask_all_and_linger
    return slow


async def _linger(chance: random.Random) -> None:
    await asyncio.sleep(chance.uniform(0.0, chance.choice(LINGERS_S)))


async def hanging_transactions(loop: SimLoop, seconds: float = 6.0) -> Report:
    """Writes come after their transactions, and an operator ends what that begins. Raises AssertionError."""
    scenario = HangingTransactions(loop)
    report = await scenario.run(seconds)
    assert scenario.book.strays, "nothing ever hung"
    return report
