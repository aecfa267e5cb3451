"""Claims about a node's samples: rates between two moments, quantiles, and what is kept only while it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace as Fake
from typing import Any, cast

import pytest

from raftlog.admin.samples import EVERY_S, KEPT, MOST_OFFSETS, UNASKED_S, Samples, quantile_ms
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorNotAvailable
from raftlog.base.histogram import Histogram
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey


class Counts:
    """A node's numbers, which a test changes."""

    def __init__(self) -> None:
        self.topic = Fake(messages_in=0, bytes_in=0, bytes_out=0)
        self.latencies = {ApiKey.PRODUCE: Histogram()}
        self.group_offsets: Any = {("t", 0): 4, ("elsewhere", 0): 1}

    def traffic(self) -> dict[str, Any]:
        return {"t": self.topic}

    def connections(self) -> Any:
        return Fake(latencies=self.latencies)

    def partition(self, name: tuple[str, int]) -> Any:
        return Fake(high_watermark=10) if name[0] == "t" else None

    async def groups(self) -> list[Any]:
        if self.group_offsets is None:
            raise CoordinatorNotAvailable()
        return [Fake(offsets=self.group_offsets)]


class World:
    """One node, whose clock a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.counts = Counts()
        node = NodeView(
            config=NodeConfig(),
            image=MetadataImage,
            unready_reasons=list,
            wall_clock_ms=lambda: self.now * 1000,
            facts=cast(Any, self.counts),
        )
        self.samples = Samples(node, lambda: self.now)

    async def take(self) -> None:
        self.now += EVERY_S
        await self.samples.take()


@pytest.fixture
def world() -> Iterator[World]:
    yield World()


async def test_sample_has_the_rates_since_the_one_before(world: World) -> None:
    """Per second of the clock that does not jump."""
    world.samples.asked(0)
    await world.take()
    world.counts.topic = Fake(messages_in=30, bytes_in=3000, bytes_out=6000)
    world.counts.latencies[ApiKey.PRODUCE].observe(0.004)
    await world.take()
    (sample,) = world.samples.asked(0)
    assert (sample.records_in, sample.bytes_in, sample.bytes_out) == (10, 1000, 2000)
    assert sample.produce_p99_ms is not None
    assert 2.5 < sample.produce_p99_ms <= 5
    assert (sample.fetch_p50_ms, sample.lag, sample.at_ms) == (None, 6, int(world.now * 1000))
    assert world.samples.asked(sample.at_ms) == []


async def test_nothing_is_sampled_before_somebody_asks_nor_long_after(world: World) -> None:
    """A node that nobody looks at has no cost of it, and no line is drawn over a time that nobody knows."""
    for _ in range(3):
        await world.take()
    assert world.samples.asked(0) == []
    for _ in range(3):
        await world.take()
    world.now += UNASKED_S
    await world.take()
    assert world.samples.asked(0) == []


async def test_samples_kept_are_bounded(world: World) -> None:
    """A quarter of an hour of them, the newest."""
    for _ in range(KEPT + 20):
        world.samples.asked(0)
        await world.take()
    kept = world.samples.asked(0)
    assert (len(kept), kept[-1].at_ms) == (KEPT, int(world.now * 1000))


async def test_lag_that_nobody_can_tell_is_null(world: World) -> None:
    """While the groups are away, and where there are too many offsets to add up."""
    world.samples.asked(0)
    await world.take()
    world.counts.group_offsets = None
    await world.take()
    world.counts.group_offsets = {("t", each): 0 for each in range(MOST_OFFSETS + 1)}
    await world.take()
    assert [each.lag for each in world.samples.asked(0)] == [None, None]


def test_quantiles_are_of_what_came_between_two_moments() -> None:
    """Spread evenly in a bucket; what is above all bounds is the last of them."""
    bounds = (0.001, 0.002, 0.004)
    assert quantile_ms(bounds, (5, 5, 5, 5), (5, 5, 5, 5), share=0.5) is None
    assert quantile_ms(bounds, (), (0, 10, 0, 0), share=0.5) == pytest.approx(1.5)
    assert quantile_ms(bounds, (100, 0, 0, 0), (100, 0, 10, 0), share=1) == pytest.approx(4)
    assert quantile_ms(bounds, (0, 0, 0, 0), (0, 0, 0, 3), share=0.5) == pytest.approx(4)


async def test_sampling_lets_others_run(world: World) -> None:
    """Many offsets are added up in slices."""
    world.samples.asked(0)
    world.counts.group_offsets = {("t", each): 0 for each in range(MOST_OFFSETS)}
    await world.take()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await world.take()
    other.cancel()
    assert turns > 10
