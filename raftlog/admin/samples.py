"""The last quarter of an hour of a node in numbers, a sample every few seconds, for the console's charts.

The node keeps at most `KEPT` in memory from its start, used or not. So a sample has to be cheap: it reads a few
counters, those of each topic with traffic here, and the partitions with changed metadata. Only the lag is a walk over
all committed offsets: it is null until a client requests samples.

It must not know aiohttp, which most nodes never load.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from raftlog.admin.facts import Facts
from raftlog.base.errors import KafkaError
from raftlog.base.turns import TurnQueue
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, changed_partitions
from raftlog.metadata.partition_health import is_under_replicated
from raftlog.protocol.apis import ApiKey

EVERY_S: Final = 3.0
KEPT: Final = 300
"""Samples: a quarter of an hour."""
UNASKED_S: Final = 900.0
"""The lag is computed until no client has requested samples for this long."""
SLICE: Final = 200
"""Partitions, offsets or topics in one slice."""
MAX_OFFSETS: Final = 20_000
"""Committed offsets of groups for the lag; with more, the lag is null."""
GROUPS_S: Final = 1.0
"""Longest wait for the groups, which are returned once a majority has them."""


class Sample(msgspec.Struct):
    """One moment of a node. Rates are per second since the previous sample; null is unknown, or no activity.

    `offline` and `under_replicated` count the cluster's partitions; everything else is of this node alone. Consumers'
    reads go out, followers' do not. `records_out` is counted by offsets: in a compacted topic, removed records count
    too. `lag` is of the groups that the node coordinates, in partitions with a replica here. It is null without a
    request for samples in the last quarter of an hour.
    """

    at_ms: int
    records_in: float
    bytes_in: float
    records_out: float
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
    def image(self) -> Callable[[], MetadataImage]: ...
    @property
    def wall_clock_ms(self) -> Callable[[], float]: ...
    @property
    def facts(self) -> Facts | None: ...
    @property
    def turns(self) -> TurnQueue: ...


class _Totals(NamedTuple):
    """Counts that only grow, at one moment."""

    at: float
    records_in: int
    bytes_in: int
    records_out: int
    bytes_out: int
    produces: tuple[int, ...]
    """The buckets of the histogram of Produce."""
    fetches: tuple[int, ...]


class _Partitions:
    """The cluster's partitions in two conditions, counted by what differs between one image and the next."""

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        self.under_replicated = 0
        self.offline = 0

    async def follow(self, image: MetadataImage, turns: TurnQueue) -> None:
        """Bring the counts to this image."""
        before, self._image = self._image, image
        for number, (_, _, old, new) in enumerate(changed_partitions(before, image), 1):
            for state, by in ((old, -1), (new, 1)):
                if state is not None:
                    self.under_replicated += by * is_under_replicated(state)
                    self.offline += by * (state.leader == NO_BROKER)
            if number % SLICE == 0:
                await turns.next()


class Samples:
    """Takes a sample every EVERY_S seconds. Call `start` once, `cancel` once, and `asked` for each question."""

    def __init__(self, node: SampledNode, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._clock = clock
        self._kept: deque[Sample] = deque(maxlen=KEPT)
        self._asked_at: float | None = None
        self._before: _Totals | None = None
        self._partitions = _Partitions()
        self._keeping: asyncio.Task[None] | None = None
        self.on_taken: Callable[[], None] = lambda: None
        """Called after each sample."""

    def start(self) -> None:
        """Take samples from now on."""
        self._keeping = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Take no more."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def _run(self) -> None:
        while True:
            await self.take_sample()
            await asyncio.sleep(EVERY_S)

    def asked(self, after_ms: int) -> list[Sample]:
        """Return the samples after a time, oldest first, and include the lag in the next samples."""
        self._asked_at = self._clock()
        return [each for each in self._kept if each.at_ms > after_ms]

    @property
    def newest_ms(self) -> int:
        """The time of the newest sample; 0: there is none."""
        return self._kept[-1].at_ms if self._kept else 0

    @property
    def _is_wanted(self) -> bool:
        return self._asked_at is not None and self._clock() - self._asked_at < UNASKED_S

    async def take_sample(self) -> None:
        """Take a sample; the first only sets the baseline of the next."""
        facts = self._node.facts
        if facts is None:
            return
        before, self._before = self._before, await self._totals(facts)
        await self._partitions.follow(self._node.image(), self._node.turns)
        if before is not None:
            sample = await self._sample(facts, before, self._before)
            if sample.at_ms <= self.newest_ms:
                self._kept.clear()  # the wall clock was set back: a line would go backwards
            self._kept.append(sample)
            self.on_taken()

    async def _totals(self, facts: Facts) -> _Totals:
        records_in = bytes_in = records_out = bytes_out = 0
        for number, each in enumerate(list(facts.traffic().values()), 1):
            records_in += each.messages_in
            bytes_in += each.bytes_in
            records_out += each.messages_out
            bytes_out += each.bytes_out
            if number % SLICE == 0:
                await self._node.turns.next()
        counted = facts.connections()
        latencies = {} if counted is None else counted.latencies
        produces, fetches = (
            tuple(latencies[key].counts) if key in latencies else () for key in (ApiKey.PRODUCE, ApiKey.FETCH)
        )
        return _Totals(self._clock(), records_in, bytes_in, records_out, bytes_out, produces, fetches)

    async def _sample(self, facts: Facts, before: _Totals, now: _Totals) -> Sample:
        passed_s = max(1e-3, now.at - before.at)
        counted = facts.connections()
        latencies = {} if counted is None else counted.latencies

        def quantile(key: int, share: float, counts: tuple[tuple[int, ...], tuple[int, ...]]) -> float | None:
            return None if key not in latencies else quantile_ms(latencies[key].bounds, *counts, share=share)

        produces, fetches = (before.produces, now.produces), (before.fetches, now.fetches)
        return Sample(
            at_ms=int(self._node.wall_clock_ms()),
            records_in=max(0, now.records_in - before.records_in) / passed_s,
            bytes_in=max(0, now.bytes_in - before.bytes_in) / passed_s,
            records_out=max(0, now.records_out - before.records_out) / passed_s,
            bytes_out=max(0, now.bytes_out - before.bytes_out) / passed_s,
            produce_p50_ms=quantile(ApiKey.PRODUCE, 0.5, produces),
            produce_p99_ms=quantile(ApiKey.PRODUCE, 0.99, produces),
            fetch_p50_ms=quantile(ApiKey.FETCH, 0.5, fetches),
            fetch_p99_ms=quantile(ApiKey.FETCH, 0.99, fetches),
            under_replicated=self._partitions.under_replicated,
            offline=self._partitions.offline,
            lag=await self._lag(facts) if self._is_wanted else None,
        )

    async def _lag(self, facts: Facts) -> int | None:
        try:
            async with asyncio.timeout(GROUPS_S):
                groups = await facts.groups()
        except (KafkaError, TimeoutError):
            return None
        if sum(len(each.offsets) for each in groups) > MAX_OFFSETS:
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
    """Return about the quantile `share` of the times that a histogram counted between two moments.

    None without any. Inside a bucket times are assumed to be spread evenly; above the last bound the bound counts.
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
