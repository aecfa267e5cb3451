"""One leadership of one partition of `__transaction_state`: its transactional ids, from log to coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from raftlog.broker.coordination.shard import CoordinatorShard
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import batches, each_part
from raftlog.coordinator.timer import Moment
from raftlog.coordinator.transactions.transaction import Transaction
from raftlog.coordinator.transactions.transaction_coordinator import (
    OutcomeCounts,
    TransactionCapacity,
    TransactionCoordinator,
)
from raftlog.coordinator.transactions.transaction_records import TransactionReplay
from raftlog.coordinator.transactions.transaction_requests import SendMarkers

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition


class TransactionCoordinatorShard(CoordinatorShard[TransactionCoordinator, TransactionReplay]):
    """`send(shard, markers)` starts to send an outcome. `room` is the broker's capacity."""

    what: ClassVar = "transaction"

    def __init__(
        self,
        index_and_epoch: tuple[int, int],
        *,
        broker: LocalBroker,
        find: Callable[[int], Partition],
        send: Callable[[TransactionCoordinatorShard, SendMarkers], None],
        room: TransactionCapacity,
        ended: OutcomeCounts | None = None,
    ) -> None:
        super().__init__(*index_and_epoch, env=broker.env, find=find)
        self._broker = broker
        self._send = send
        self._room = room
        self._ended = ended
        self._outcomes: list[SendMarkers] = []
        """To be sent once their coordinator is ready to be notified."""

    def _take_id(self) -> int:
        assert self._broker.producer_ids is not None, "the broker server provides it"
        return self._broker.producer_ids.take()

    def _new_replay(self) -> TransactionReplay:
        return TransactionReplay()

    async def _take_up(
        self, replay: TransactionReplay, end_offset: int
    ) -> tuple[TransactionCoordinator, int]:
        transactions = replay.transactions()
        coordinator = TransactionCoordinator(
            self._broker.config,
            self._append,
            send=lambda markers: self._send(self, markers),
            take_id=self._take_id,
            room=self._room,
            ended=self._ended,
        )
        self._outcomes = []

        def load(some: Sequence[Transaction]) -> None:
            at = Moment(asyncio.get_running_loop().time(), self._env.ages.now_ms())
            self._outcomes += coordinator.load(some, at=at)

        await each_part(self._env, batches(transactions), load, at_once=1)
        coordinator.committed(end_offset)
        return coordinator, len(transactions)

    async def _taken_up(self, coordinator: TransactionCoordinator) -> None:
        outcomes, self._outcomes = self._outcomes, []
        await each_part(self._env, outcomes, partial(self._send, self))
