"""The last quarter of an hour of a node in numbers, one sample every few seconds: what the console draws as lines.

Kept in memory by the node itself, at most `KEPT` samples, and only while somebody asks: the first who does gets the
first sample a few seconds later. Rates are between two samples; what happened before is not told.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from raftlog.admin.cluster_summary import Survey
from raftlog.admin.facts import Facts
from raftlog.base.config import NodeConfig
from raftlog.base.env import TurnQueue
from raftlog.base.errors import KafkaError
from raftlog.base.types import TopicPartition
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey

EVERY_S: Final = 3.0
KEPT: Final = 300
"""Samples: a quarter of an hour."""
UNASKED_S: Final = 900.0
"""Samples are taken until nobody has asked for so long."""
SLICE: Final = 200
"""Partitions, offsets or topics that are looked at before others may run."""
MOST_OFFSETS: Final = 20_000
"""Committed offsets of groups that are added up; where there are more, the lag is not told."""
GROUPS_S: Final = 1.0
"""Longest wait for the groups, which are told once a majority has them."""


class Sample(msgspec.Struct):
    """One moment of a node. Rates are per second since the sample before; null is not known, or nothing happened.

    `offline` and `under_replicated` count the cluster's partitions; everything else is of this node alone:
    `lag` is that of the groups that it coordinates, in partitions with a replica here.
    """

    at_ms: int
    records_in: float
    bytes_in: float
    bytes_out: float
    produce_p50_ms: float | None
    produce_p99_ms: float | None
    fetch_p50_ms: float | None
    fetch_p99_ms: float | None
    under_replicated: int
    offline: int
    lag: int | None


class SampledNode(Protocol):
    """The part of a `NodeView` that is sampled."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def image(self) -> Callable[[], MetadataImage]: ...
    @property
    def wall_clock_ms(self) -> Callable[[], float]: ...
    @property
    def facts(self) -> Facts | None: ...
    @property
    def turns(self) -> TurnQueue: ...

    async def survey_of(self, image: MetadataImage, /) -> Survey: ...


class _Totals(NamedTuple):
    """Counts that only grow, at one moment."""

    at: float
    records_in: int
    bytes_in: int
    bytes_out: int
    produces: tuple[int, ...]
    """Of the histogram of Produce: how many took how long."""
    fetches: tuple[int, ...]


class Samples:
    """`asked` for each question, `take` at each `EVERY_S`."""

    def __init__(self, node: SampledNode, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._clock = clock
        self._kept: deque[Sample] = deque(maxlen=KEPT)
        self._asked_at: float | None = None
        self._before: _Totals | None = None

    def asked(self, after_ms: int) -> list[Sample]:
        """Return the samples after a time, oldest first, and have more taken."""
        self._asked_at = self._clock()
        return [each for each in self._kept if each.at_ms > after_ms]

    @property
    def is_wanted(self) -> bool:
        return self._asked_at is not None and self._clock() - self._asked_at < UNASKED_S

    async def take(self) -> None:
        """Take one sample, if anybody wants it."""
        facts = self._node.facts
        if facts is None or not self.is_wanted:
            self._kept.clear()  # a line over the time without samples would be made up
            self._before = None
            return
        before, self._before = self._before, await self._totals(facts)
        if before is not None:
            self._kept.append(await self._sample(facts, before, self._before))

    async def _totals(self, facts: Facts) -> _Totals:
        records_in = bytes_in = bytes_out = 0
        for number, each in enumerate(list(facts.traffic().values()), 1):
            records_in += each.messages_in
            bytes_in += each.bytes_in
            bytes_out += each.bytes_out
            if number % SLICE == 0:
                await self._node.turns.next()
        counted = facts.connections()
        latencies = {} if counted is None else counted.latencies
        produces, fetches = (
            tuple(latencies[key].counts) if key in latencies else () for key in (ApiKey.PRODUCE, ApiKey.FETCH)
        )
        return _Totals(self._clock(), records_in, bytes_in, bytes_out, produces, fetches)

    async def _sample(self, facts: Facts, before: _Totals, now: _Totals) -> Sample:
        passed_s = max(1e-3, now.at - before.at)
        partitions = await self._node.survey_of(self._node.image())
        counted = facts.connections()
        latencies = {} if counted is None else counted.latencies

        def quantile(key: int, share: float, counts: tuple[tuple[int, ...], tuple[int, ...]]) -> float | None:
            return None if key not in latencies else quantile_ms(latencies[key].bounds, *counts, share=share)

        produces, fetches = (before.produces, now.produces), (before.fetches, now.fetches)
        return Sample(
            at_ms=int(self._node.wall_clock_ms()),
            records_in=max(0, now.records_in - before.records_in) / passed_s,
            bytes_in=max(0, now.bytes_in - before.bytes_in) / passed_s,
            bytes_out=max(0, now.bytes_out - before.bytes_out) / passed_s,
            produce_p50_ms=quantile(ApiKey.PRODUCE, 0.5, produces),
            produce_p99_ms=quantile(ApiKey.PRODUCE, 0.99, produces),
            fetch_p50_ms=quantile(ApiKey.FETCH, 0.5, fetches),
            fetch_p99_ms=quantile(ApiKey.FETCH, 0.99, fetches),
            under_replicated=partitions.under_replicated.count,
            offline=partitions.leaderless.count,
            lag=await self._lag(facts),
        )

    async def _lag(self, facts: Facts) -> int | None:
        try:
            async with asyncio.timeout(GROUPS_S):
                groups = await facts.groups()
        except (KafkaError, TimeoutError):
            return None
        if sum(len(each.offsets) for each in groups) > MOST_OFFSETS:
            return None
        lag = looked = 0
        for group in groups:
            for (topic, partition), offset in group.offsets.items():
                replica = facts.partition(TopicPartition(topic, partition))
                lag += 0 if replica is None else max(0, replica.high_watermark - offset)
                looked += 1
                if looked % SLICE == 0:
                    await self._node.turns.next()
        return lag


def quantile_ms(
    bounds: Sequence[float], before: Sequence[int], now: Sequence[int], *, share: float
) -> float | None:
    """Return about how long such a share took at most, of what a histogram counted between two moments.

    None if that is nothing. Inside a bucket times are taken to be spread evenly; those above the last bound are it.
    """
    counts = [after - (before[index] if before else 0) for index, after in enumerate(now)]
    wanted, so_far, low = share * sum(counts), 0, 0.0
    if wanted <= 0:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        if count and so_far + count >= wanted:
            return 1000 * (low + (bound - low) * (wanted - so_far) / count)
        so_far += count
        low = bound
    return 1000 * low
