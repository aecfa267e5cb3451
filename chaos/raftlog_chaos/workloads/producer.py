"""An idempotent acks=all producer of one partition, up to five batches in flight, that never gives up.

After a failure it waits for its other batches in flight, looks for the leader, and sends again in order (KIP-98).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any, Final

from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.raw_client import AWAY, INIT_PRODUCER_ID, Client, RawConnection, shapes

PRODUCE: Final = 0
IN_FLIGHT: Final = 5
"""Batches without an acknowledgement yet: as many as a broker remembers."""

BACKOFF_S: Final = 0.03
OUT_OF_ORDER_SEQUENCE: Final = 45
RETRIABLE: Final = frozenset({3, 5, 6, 7, 9, 13, 19, 20, 56, 72, 74, 75, 100})
"""Answers after which a client looks for the leader and sends again; anything else is blamed on the broker."""


class _Batch:
    """One batch on its way, or waiting for it."""

    __slots__ = ("answer", "sequence", "values")

    def __init__(self, sequence: int, values: tuple[bytes, ...]) -> None:
        self.sequence = sequence
        self.values = values
        self.answer: asyncio.Future[Any] | None = None


class Producer:
    """`run` produces until `stop`, then until all is acknowledged."""

    def __init__(
        self, client: Client, topic: str, index: int, *, history: Observations, chance: random.Random
    ) -> None:
        self.client = client
        self.where = (topic, index)
        self.history = history
        self.stopping = False
        self.done = False
        self.pause_s = 0.01
        """Mean pause between two batches, seconds."""
        self._chance = chance
        self._number = 0
        self._sequence = 0
        # A leader that does not know a producer accepts any first sequence (KIP-360). With several batches in flight
        # when the leader dies, the next leader could accept the second batch first, as Apache Kafka may. So the first
        # batch goes alone until it is acknowledged; then every later leader knows it.
        self._window = 1
        self._stamp = ProducerIdAndSequence()
        self._unacked: deque[_Batch] = deque()

    def stop(self) -> None:
        self.stopping = True

    async def run(self) -> None:
        self._stamp = await self._begin()
        while not (self.stopping and not self._unacked):
            try:
                await self._round()
            except AWAY:
                await self._again()
        self.done = True

    async def _begin(self) -> ProducerIdAndSequence:
        while True:
            try:
                message = shapes(INIT_PRODUCER_ID).InitProducerIdRequest(
                    transactional_id=None, producer_id=-1, producer_epoch=-1
                )
                response = await self.client.ask_any(INIT_PRODUCER_ID, message)
                if not int(response.error_code):
                    return ProducerIdAndSequence(response.producer_id, response.producer_epoch, 0)
            except AWAY:
                pass
            await asyncio.sleep(BACKOFF_S)

    async def _round(self) -> None:
        """Send what is unsent, add new batches, take the oldest answer."""
        wire, _ = await self.client.leader_wire(*self.where)
        for batch in self._unacked:
            if batch.answer is None:
                self._send(wire, batch)
        while not self.stopping and len(self._unacked) < self._window:
            self._unacked.append(self._new_batch())
            self._send(wire, self._unacked[-1])
            if self._chance.random() < 0.6:
                break
        await asyncio.sleep(self._chance.expovariate(1 / self.pause_s))
        if not self._unacked:
            return
        answer = self._unacked[0].answer
        assert answer is not None
        if len(self._unacked) >= self._window or self.stopping or self._chance.random() < 0.5:
            try:
                async with asyncio.timeout(self.client.timeout_s):
                    await asyncio.wait([answer])
            except TimeoutError:
                wire.close()
                raise
        while self._unacked and (answer := self._unacked[0].answer) is not None and answer.done():
            if not self._settle(self._unacked[0], answer):
                raise ConnectionAbortedError("to be sent again")

    def _new_batch(self) -> _Batch:
        topic, index = self.where
        values = []
        for _ in range(self._chance.choice((1, 1, 2, 5))):
            filler = "." * self._chance.choice((0, 10, 300))
            values.append(f"{self.client.name}/{topic}-{index}/{self._number}/{filler}".encode())
            self._number += 1
        batch = _Batch(self._sequence, tuple(values))
        self._sequence += len(values)
        self.history.attempt(self.where, batch.values)
        return batch

    def _send(self, wire: RawConnection, batch: _Batch) -> None:
        records = [new_record(None, value, timestamp=-1) for value in batch.values]
        stamp = self._stamp._replace(base_sequence=batch.sequence)
        batch.answer = wire.send(PRODUCE, produce_request(self.where, build_batch(records, producer=stamp)))

    def _settle(self, batch: _Batch, answer: asyncio.Future[Any]) -> bool:
        """Take the answer of the oldest batch; False: it must be sent again."""
        if answer.exception() is not None:
            return False
        result = answer.result().responses[0].partition_responses[0]
        code = int(result.error_code)
        if code == 0:
            assert self._unacked.popleft() is batch
            self._window = IN_FLIGHT
            self.history.acknowledge(self.where, result.base_offset, batch.values)
            return True
        if code not in RETRIABLE:
            # all before it was acknowledged, so not even a gap in the sequence is possible
            self.history.blame(f"{self.where}: {batch.values[0]!r} was refused with error {code}")
        return False

    async def _again(self) -> None:
        """Wait for what is in flight, believe the good news, and look for the leader."""
        flying = [each.answer for each in self._unacked if each.answer is not None]
        if flying:
            await asyncio.wait(flying, timeout=self.client.timeout_s)
        while self._unacked and (answer := self._unacked[0].answer) is not None and answer.done():
            if not self._settle(self._unacked[0], answer):
                break
        for batch in self._unacked:
            batch.answer = None
        await asyncio.sleep(BACKOFF_S)
        try:
            await self.client.refresh(self.where[0])
        except AWAY:
            pass


def produce_request(where: tuple[str, int], records: bytes, *, acks: int = -1) -> Any:
    """Return a request of one batch for one partition."""
    topic, index = where
    make = shapes(PRODUCE)
    data = make.PartitionProduceData(index=index, records=records)
    return make.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=1500,
        topic_data=(make.TopicProduceData(name=topic, partition_data=(data,)),),
    )


class CarelessProducer:
    """Writes with acks=1, once each: its records may be lost, are there once at most, and make logs diverge."""

    def __init__(
        self, client: Client, topic: str, index: int, *, history: Observations, chance: random.Random
    ) -> None:
        self.client = client
        self.where = (topic, index)
        self.history = history
        self.stopping = False
        self._chance = chance

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self._chance.expovariate(20))
            number += 1
            value = f"{self.client.name}/{number}".encode()
            try:
                wire, _ = await self.client.leader_wire(*self.where)
                self.history.attempt(self.where, (value,))
                batch = build_batch([new_record(None, value, timestamp=-1)])
                answer = wire.send(PRODUCE, produce_request(self.where, batch, acks=1))
                async with asyncio.timeout(0.2):
                    response = await answer
                if not int(response.responses[0].partition_responses[0].error_code):
                    continue
            except AWAY:
                pass
            try:
                await self.client.refresh(self.where[0])
            except AWAY:
                pass
