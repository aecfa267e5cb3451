"""A client with batch headers that say little or wrong about the times of its records, as stock and hostile clients
do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from raftlog.base.types import NO_EPOCH, NO_TIMESTAMP
from raftlog.records.batch import build_batch, new_record
from raftlog.records.compression import GZIP, LZ4, NONE
from raftlog.records.header import HEADER_BYTES, read_header, stamp_max_timestamp
from raftlog_chaos.workloads.produce_frames import decode_produced, encode_produce
from raftlog_chaos.workloads.producer import RETRIABLE
from raftlog_chaos.workloads.raw_client import AWAY, Client

HOUR_MS: Final = 3_600_000
OLD_MS: Final = 2 * HOUR_MS
"""The age of records that topics with a retention of an hour may delete."""
TIMEOUT_MS: Final = 1000
BACKOFF_S: Final = 0.03
KEY: Final = b"k"


class OddBatch(NamedTuple):
    """The times of a batch's records, and the largest timestamp that its header claims; None: the right timestamp."""

    times: tuple[int, ...]
    newest: int | None = None


class Written(NamedTuple):
    """An acknowledged record. `timestamp` -1: it has none."""

    offset: int
    value: bytes
    timestamp: int
    is_fresh: bool


OLD: Final = "honest and old"

Odd = Callable[[int], OddBatch]

ODD: Final[dict[str, Odd]] = {
    "honest": lambda now: OddBatch((now - 1, now)),
    OLD: lambda now: OddBatch((now - OLD_MS,)),
    "sarama before 1.45.1": lambda now: OddBatch((now, now), newest=NO_TIMESTAMP),
    "librdkafka without a timestamp": lambda now: OddBatch((NO_TIMESTAMP,), newest=0),
    "kafkajs out of order": lambda now: OddBatch((now - OLD_MS, now, now - OLD_MS), newest=now - OLD_MS),
    "no timestamps": lambda now: OddBatch((NO_TIMESTAMP, NO_TIMESTAMP)),
    "too small": lambda now: OddBatch((now - 5, now), newest=now - 6),
    "far ahead": lambda now: OddBatch((now, now), newest=now + 10**12),
    "base of -1": lambda now: OddBatch((NO_TIMESTAMP, now), newest=NO_TIMESTAMP),
}
"""Keyed by the name of the sending client."""

UNTIMED: Final = ("librdkafka without a timestamp", "no timestamps")


def build_odd(odd: OddBatch, values: Sequence[bytes], codec: int) -> bytes:
    """Return a batch with these values and the header that it claims; its CRC holds."""
    records = [new_record(KEY, value, timestamp=time) for value, time in zip(values, odd.times, strict=True)]
    batch = build_batch(records, codec=codec)
    if odd.newest is None:
        return batch
    head = stamp_max_timestamp(
        read_header(batch), batch, base_offset=0, leader_epoch=NO_EPOCH, max_timestamp=odd.newest
    )
    return head + batch[HEADER_BYTES:]


class OddWriter:
    """Writes batches of some kinds to partition 0 of a topic, one at a time with acks=-1; `acked` are its records."""

    def __init__(
        self,
        client: Client,
        topic: str,
        kinds: Sequence[str],
        *,
        wall_clock_ms: Callable[[], int],
        chance: Random,
    ) -> None:
        self.client = client
        self.topic = topic
        self.acked: list[Written] = []
        self.batches = 0
        """How many were acknowledged."""
        self.refused: list[str] = []
        """Answers that no fault of the cluster explains."""
        self.stopping = self.done = False
        self._kinds = kinds
        self._now_ms = wall_clock_ms
        self._chance = chance
        self._number = 0

    async def run(self) -> None:
        """Write until `stopping`; what was not acknowledged is not sent again."""
        while not self.stopping:
            try:
                await self._write()
            except AWAY:
                await self._look_for_the_leader()
            await asyncio.sleep(self._chance.expovariate(100))
        self.done = True

    async def _write(self) -> None:
        wire, _ = await self.client.leader_wire(self.topic, 0)
        odd = ODD[self._chance.choice(self._kinds)](self._now_ms())
        values = [f"{self.topic}/{self._number}/{each}".encode() for each in range(len(odd.times))]
        self._number += 1
        batch = build_odd(odd, values, self._chance.choice((NONE, NONE, GZIP, LZ4)))
        asked = wire.ask_by(
            lambda number: encode_produce(
                number, self.client.name, (self.topic, 0), batch, acks=-1, timeout_ms=TIMEOUT_MS
            ),
            decode_produced,
        )
        answer = await self.client.answer(wire, asked)
        if answer.error_code in RETRIABLE:
            raise LookupError("another broker leads")
        if answer.error_code:
            self.refused.append(f"{odd} was refused with error {answer.error_code}")
            return
        self.batches += 1
        is_fresh = max(odd.times) < 0 or max(odd.times) > self._now_ms() - HOUR_MS // 2
        self.acked += [
            Written(answer.base_offset + delta, value, time, is_fresh)
            for delta, (value, time) in enumerate(zip(values, odd.times, strict=True))
        ]

    async def _look_for_the_leader(self) -> None:
        try:
            await self.client.refresh(self.topic)
        except AWAY:
            pass
        await asyncio.sleep(BACKOFF_S)
