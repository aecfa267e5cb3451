"""A client that writes in others' transactions under epochs that no coordinator assigned.

It may be any client that knows a transactional id: each of its batches is refused, and no owner of an id notices it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from raftlog_chaos.workloads.exactly_once import ExactlyOnceModel
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.raw_client import AWAY, Client
from raftlog_chaos.workloads.sole_owner import SoleOwner
from raftlog_chaos.workloads.txn_client import TransactionalProducer

AHEAD: Final = 1000
"""How far its epochs are ahead: no producer ever gets them."""
AT_ONCE: Final = 12
"""Epochs that it makes up at once, each on a connection of its own."""
ROUNDS: Final = (1, 1, 1, 15)
"""How often each of them is sent in immediate succession; a random choice of these."""
LONGEST_PAUSE_S: Final = 0.5


class HastyProducer(TransactionalProducer):
    """A producer that sends each request once."""

    patience_s = 0.0


class Impostor:
    """Writes in the transactions of some owners, one at a time; `clients`: AT_ONCE of them."""

    def __init__(
        self,
        clients: Sequence[Client],
        owners: Sequence[SoleOwner],
        book: ExactlyOnceModel,
        chance: random.Random,
    ) -> None:
        self.clients = clients
        self.stopping = False
        self._owners = owners
        self._book = book
        self._chance = chance

    async def run(self) -> None:
        while not self.stopping:
            owner = self._chance.choice(self._owners)
            where = (self._book.topic, self._chance.randrange(self._book.partitions))
            rounds = self._chance.choice(ROUNDS)
            await asyncio.gather(
                *(
                    self._insist(owner, where, client, AHEAD + number, rounds)
                    for number, client in enumerate(self.clients)
                )
            )
            await asyncio.sleep(self._chance.uniform(0.0, LONGEST_PAUSE_S))

    async def _insist(
        self, owner: SoleOwner, where: TopicIndex, client: Client, ahead: int, rounds: int
    ) -> None:
        for _ in range(rounds):
            if owner.own is not None and owner.own.producer_id >= 0:
                await self._pretend_to_be(owner.own, where, client, owner.own.epoch + ahead)

    async def _pretend_to_be(
        self, own: TransactionalProducer, where: TopicIndex, client: Client, epoch: int
    ) -> None:
        bumping = self._chance.random() < 0.5
        producer = HastyProducer(
            client, own.transactional_id, group=own.group, reads=own.reads, bumping=bumping
        )
        producer.producer_id, producer.epoch = own.producer_id, epoch
        attempt = self._book.begin(own.transactional_id, 0)
        try:
            await producer.write(where, attempt.value())
        except AWAY:
            return
        self._book.history.blame(f"{attempt} was taken at {where} under the epoch {producer.epoch}")
