"""An idempotent producer with several batches in flight that writes to a partition before it exists.

It knows no leader. It sends all unacknowledged batches to one broker after another, as clients do while leaders move or
a topic is created. Refused batches are retried in order, or given up: then the later batches begin anew, in the next
epoch. Within a transaction its batches also go to several brokers at once, so that a later batch arrives first.

An impostor sends batches with another producer's id and epochs that were never assigned. They belong to no transaction
and all must be refused.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from raftlog.base.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.port import Fate, fate_of
from raftlog_chaos.workloads.raw_client import AWAY, INIT_PRODUCER_ID, PRODUCE, VERSIONS, Client, shapes
from raftlog_chaos.workloads.sole_owner import LongProducer
from raftlog_chaos.workloads.txn_client import BUMPING, Refused

IN_FLIGHT: Final = 3
ALL_ACKS: Final = -1
APART_S: Final = (0.0, 0.001, 0.01)
"""The longest pause between two batches in flight; a random choice of these."""
GIVES_UP: Final = 0.1
"""The share of refused batches that are given up."""
SPREADS: Final = 0.5
"""The share of transactions with batches for several brokers."""
AHEAD: Final = 1000
"""How far an impostor's epochs are ahead: no producer ever gets them."""
MADE_UP: Final = 12
FINAL: Final = frozenset(
    error.code for error in (OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, ProducerFenced)
)
"""After these errors the first unacknowledged batch can never be written."""
Address = tuple[str, int]


class EagerProducer:
    """Its client's bootstrap brokers are all brokers of the cluster."""

    version = VERSIONS[PRODUCE]
    attributes = 0
    transactional_id: str | None = None

    def __init__(self, client: Client, brokers: Sequence[Address], chance: random.Random) -> None:
        self.client = client
        self.refused = self.given_up = 0
        self._brokers = brokers
        self._chance = chance
        self._producer = (-1, -1)
        self.unsure: set[bytes] = set()
        """Values that were given up and may have been written: without an answer, or with an uncertain error."""
        self._sequences: dict[TopicIndex, int] = {}
        self._values: dict[TopicIndex, int] = {}

    @property
    def producer(self) -> tuple[int, int]:
        """The producer id, -1 before `begin`, and the epoch."""
        return self._producer

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
        """Write so many batches of one record, IN_FLIGHT at a time; return the values of all that were not given up.

        Raises AssertionError if the next batch can never be written.
        """
        left = self._new_values(where, count)
        kept = list(left)
        maybe: set[bytes] = set()
        turn = self._chance.randrange(len(self._brokers))
        while left:
            turn += 1
            sent = dict(list(left.items())[:IN_FLIGHT])
            codes = await self._send(turn, where, sent)
            assert codes[0] not in FINAL, f"{next(iter(sent))!r} can never be written: error {codes[0]}"
            for value, code in zip(sent, codes, strict=True):
                if code == 0:
                    del left[value]
                elif code is None or fate_of(code) is Fate.UNKNOWN:
                    maybe.add(value)
            self.refused += sum(bool(code) for code in codes)
            if all(codes) and self._gives_up():
                given_up = [each for each in left if each in maybe] or [next(iter(left))]
                self.unsure.update(maybe.intersection(given_up))
                kept = [each for each in kept if each not in given_up]
                left = self._begin_anew(where, [each for each in left if each not in given_up])
            if any(code != 0 for code in codes):
                await asyncio.sleep(self._chance.choice(APART_S))
        return kept

    def _new_values(self, where: TopicIndex, count: int) -> dict[bytes, int]:
        """Return so many new values and their sequences."""
        first = self._values.get(where, 0)
        self._values[where] = first + count
        values = range(first, first + count)
        return self._numbered(where, [f"{self.client.name}/{where[0]}/{each}".encode() for each in values])

    def _numbered(self, where: TopicIndex, values: list[bytes]) -> dict[bytes, int]:
        first = self._sequences.get(where, 0)
        self._sequences[where] = first + len(values)
        return dict(zip(values, range(first, first + len(values)), strict=True))

    def _begin_anew(self, where: TopicIndex, values: list[bytes]) -> dict[bytes, int]:
        """Go on in the next epoch with the batches that no broker accepted, as librdkafka does; return the new
        sequences.
        """
        self.given_up += 1
        self._producer = (self._producer[0], self._producer[1] + 1)
        self._sequences.clear()
        return self._numbered(where, values)

    def _gives_up(self) -> bool:
        return self._chance.random() < GIVES_UP

    def _addresses(self, turn: int, count: int) -> list[Address]:
        """Return a broker for each batch in flight: the same for all of them."""
        return [self._brokers[turn % len(self._brokers)]] * count

    async def _send(self, turn: int, where: TopicIndex, sent: dict[bytes, int]) -> list[int | None]:
        """Send batches one behind the other; return their error codes, None without an answer."""
        apart_s = self._chance.choice(APART_S)
        asked = []
        for address, (value, sequence) in zip(self._addresses(turn, len(sent)), sent.items(), strict=True):
            asked.append(asyncio.ensure_future(self._produce(address, where, value, sequence)))
            await asyncio.sleep(self._chance.uniform(0.0, apart_s))
        return list(await asyncio.gather(*asked))

    async def _produce(self, address: Address, where: TopicIndex, value: bytes, sequence: int) -> int | None:
        stamp = ProducerIdAndSequence(*self._producer, sequence)
        record = new_record(None, value, timestamp=-1)
        records = build_batch([record], producer=stamp, attributes=self.attributes)
        make = request_builders(PRODUCE, self.version)
        data = make.PartitionProduceData(index=where[1], records=records)
        request = make.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_ACKS,
            timeout=int(self.client.timeout_s * 1000),
            topic_data=(make.TopicProduceData(name=where[0], partition_data=(data,)),),
        )
        try:
            answer = await self.client.ask(address, PRODUCE, request, version=self.version)
        except AWAY:
            return None
        return int(answer.responses[0].partition_responses[0].error_code)


class EagerTransaction(EagerProducer):
    """The same in transactions of version 2, one at a time, with an id of its own."""

    version = BUMPING[PRODUCE]
    attributes = TRANSACTIONAL_BIT

    def __init__(self, client: Client, brokers: Sequence[Address], chance: random.Random) -> None:
        super().__init__(client, brokers, chance)
        self.transactional_id = client.name
        self._transaction = LongProducer(
            client, client.name, group=client.name, reads=(client.name, 0), bumping=True
        )

    async def begin(self) -> None:
        await self._until_done(self._transaction.init)

    async def write(self, where: TopicIndex, count: int) -> list[bytes]:
        kept = await super().write(where, count)
        await self._until_done(partial(self._transaction.end, commit=True))
        return kept

    async def _until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        """Retry a step until it succeeds: no broker may refuse it for good."""
        while True:
            try:
                await step()
            except Refused as error:
                raise AssertionError(f"{self.client.name}: {error}") from error
            except AWAY:
                continue
            self._producer = (self._transaction.producer_id, self._transaction.epoch)
            self._sequences.clear()
            return

    def _gives_up(self) -> bool:
        return False

    def _addresses(self, turn: int, count: int) -> list[Address]:
        if self._chance.random() >= SPREADS:
            return super()._addresses(turn, count)
        return self._chance.choices(self._brokers, k=count)


class EagerImpostor(EagerProducer):
    """Sends the first batches of made-up epochs, to one broker or another."""

    version = BUMPING[PRODUCE]
    attributes = TRANSACTIONAL_BIT

    def __init__(self, client: Client, brokers: Sequence[Address], chance: random.Random) -> None:
        super().__init__(client, brokers, chance)
        self.transactional_id = client.name

    async def pretend(self, other: EagerProducer, where: TopicIndex) -> None:
        """Make up MADE_UP epochs while another producer writes. Raises AssertionError if a batch is accepted."""
        for ahead in range(MADE_UP):
            producer_id, epoch = other.producer
            self._producer = (producer_id, epoch + AHEAD + ahead)
            if producer_id >= 0:
                address = self._chance.choice(self._brokers)
                code = await self._produce(address, where, b"made up", 0)
                assert code != 0, f"a batch under the epoch {self._producer[1]} was taken at {where}"
            await asyncio.sleep(self._chance.uniform(0.0, 0.01))
