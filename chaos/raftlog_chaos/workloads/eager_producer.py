"""An idempotent producer with several batches in flight, that writes to a partition before it is there.

It knows no leader: it sends all that is not acknowledged to one broker after another, as clients do while leaders move
or a topic is made. Refused batches come again in their order, and no client has another way to send them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from raftlog.base.errors import OutOfOrderSequenceNumber
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.raw_client import AWAY, INIT_PRODUCER_ID, PRODUCE, Client, shapes

IN_FLIGHT: Final = 3
ALL_ACKS: Final = -1
APART_S: Final = (0.0, 0.001, 0.01)
"""The longest pause between two batches in flight; one of these."""


class EagerProducer:
    """Its client's bootstrap brokers are all that there are."""

    def __init__(self, client: Client, brokers: Sequence[tuple[str, int]], chance: random.Random) -> None:
        self.client = client
        self.refused = 0
        self._brokers = brokers
        self._chance = chance
        self._producer = (-1, -1)
        self._sequences: dict[TopicIndex, int] = {}

    async def begin(self) -> None:
        """Take a producer id."""
        request = shapes(INIT_PRODUCER_ID).InitProducerIdRequest(
            transactional_id=None, transaction_timeout=1000
        )
        while self._producer[0] < 0:
            try:
                answer = await self.client.ask_any(INIT_PRODUCER_ID, request)
                if not int(answer.error_code):
                    self._producer = (answer.producer_id, answer.producer_epoch)
            except AWAY:
                await asyncio.sleep(0.05)

    async def write(self, where: TopicIndex, count: int) -> list[bytes]:
        """Write so many batches of one record, IN_FLIGHT at a time; return the values once all are acknowledged.

        Raises AssertionError if the next batch can never be written.
        """
        first = self._sequences.get(where, 0)
        self._sequences[where] = first + count
        left = list(range(first, first + count))
        turn = self._chance.randrange(len(self._brokers))
        while left:
            turn += 1
            sent = left[:IN_FLIGHT]
            codes = await self._send(self._brokers[turn % len(self._brokers)], where, sent)
            is_stuck = codes[0] == OutOfOrderSequenceNumber.code
            assert not is_stuck, f"{self.client.name}: sequence {sent[0]} of {where} is out of order for ever"
            left = [each for each in left if each not in sent or codes[sent.index(each)] != 0]
            self.refused += sum(bool(code) for code in codes)
            if any(code != 0 for code in codes):
                await asyncio.sleep(self._chance.choice(APART_S))
        return [self._value(where, each) for each in range(first, first + count)]

    def _value(self, where: TopicIndex, sequence: int) -> bytes:
        return f"{self.client.name}/{where[0]}/{sequence}".encode()

    async def _send(
        self, address: tuple[str, int], where: TopicIndex, sequences: list[int]
    ) -> list[int | None]:
        """Send batches one behind the other; return their error codes, None for what was not answered."""
        apart_s = self._chance.choice(APART_S)
        asked = []
        for sequence in sequences:
            asked.append(asyncio.ensure_future(self._produce(address, where, sequence)))
            await asyncio.sleep(self._chance.uniform(0.0, apart_s))
        return list(await asyncio.gather(*asked))

    async def _produce(self, address: tuple[str, int], where: TopicIndex, sequence: int) -> int | None:
        make = shapes(PRODUCE)
        stamp = ProducerIdAndSequence(*self._producer, sequence)
        record = new_record(None, self._value(where, sequence), timestamp=-1)
        data = make.PartitionProduceData(index=where[1], records=build_batch([record], producer=stamp))
        request = make.ProduceRequest(
            transactional_id=None,
            acks=ALL_ACKS,
            timeout=int(self.client.timeout_s * 1000),
            topic_data=(make.TopicProduceData(name=where[0], partition_data=(data,)),),
        )
        try:
            answer = await self.client.ask(address, PRODUCE, request)
        except AWAY:
            return None
        return int(answer.responses[0].partition_responses[0].error_code)
