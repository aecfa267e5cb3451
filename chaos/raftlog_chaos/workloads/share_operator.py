"""An operator who releases and archives records of share groups by hand, at moments that suit nobody (KIP-932).

Its word goes to the leader that is known at the time, which may have lost its lead, crash, or stand still meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.base.share_deliveries import HandAcknowledgement, HandOutcome
from raftlog.broker.context import BrokerContext
from raftlog.broker.handlers.shared.share_by_hand import acknowledge_by_hand
from raftlog_chaos.workloads.share_group_model import Reign, ShareGroupModel

PAUSE_S: Final = 0.15
ANSWER_S: Final = 5.0
"""How long it waits for an answer: a broker that crashes gives none."""
MOST: Final = (1, 1, 1, 3, 20)
"""The offsets that it names, at most."""


class ShareOperator:
    """Acts until `stopping`. `leader(book)` returns the broker that leads a group's partition, and its object there."""

    def __init__(
        self,
        books: Sequence[ShareGroupModel],
        *,
        leader: Callable[[ShareGroupModel], BrokerContext | None],
        reign: Callable[[ShareGroupModel, BrokerContext], Reign],
        start: Callable[[BrokerContext, Coroutine[Any, Any, HandOutcome]], asyncio.Task[HandOutcome]],
        chance: random.Random,
    ) -> None:
        self.stopping = False
        self.done = False
        self.released = self.archived = 0
        self._books = books
        self._leader = leader
        self._reign = reign
        self._start = start
        self._chance = chance

    async def run(self) -> None:
        """Act again and again."""
        while not self.stopping:
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))
            book = self._chance.choice(self._books)
            broker = self._leader(book)
            reign = None if broker is None else self._reign(book, broker)
            named = self._named(book, reign)
            if named and broker is not None:
                first_offset = self._chance.choice(named)
                await self._act(
                    book, broker, reign, first_offset, first_offset + self._chance.choice(MOST) - 1
                )
        self.done = True

    def _named(self, book: ShareGroupModel, reign: Reign) -> list[int]:
        """Return records to name: mostly such that a member holds, or that were given back."""
        if reign is None or not reign.is_loaded or self._chance.random() < 0.1:
            return sorted(book.counted)[-40:]
        return [
            offset
            for each in reign.machine.ranges
            if each.is_held or (each.is_available and each.delivery_count)
            for offset in range(each.first_offset, each.end_offset)
        ]

    async def _act(
        self, book: ShareGroupModel, broker: BrokerContext, reign: Reign, first_offset: int, last_offset: int
    ) -> None:
        topic = broker.image().topics.get(book.where[0])
        if topic is None:
            return
        rejects = self._chance.random() < 0.5
        offsets = range(first_offset, last_offset + 1)
        said = HandAcknowledgement(topic.topic_id, book.where[1], rejects, (first_offset, last_offset))
        sent_at = asyncio.get_running_loop().time()
        book.sent_by_hand(offsets, rejects=rejects)
        task = self._start(broker, acknowledge_by_hand(broker, book.group, said))
        answered, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if not answered:
            return
        try:
            found = task.result()
        except (KafkaError, asyncio.CancelledError):
            return  # it may be written or not
        self.released += found.released
        self.archived += found.archived
        if reign is not None and self._reign(book, broker) is reign:
            book.answered_by_hand(offsets, found, rejects=rejects, reign=reign, sent_at=sent_at)
