"""Claims about a node's samples: rates between two moments, quantiles, and their cost on an idle node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator, Sequence
from types import FrameType
from types import SimpleNamespace as Fake
from typing import Any, Final, cast
from uuid import UUID

import pytest

from raftlog.admin.cluster_summary import survey
from raftlog.admin.samples import EVERY_S, KEPT, MAX_OFFSETS, UNASKED_S, Samples, quantile_ms
from raftlog.admin.view import NodeView
from raftlog.base.config import NodeConfig
from raftlog.base.errors import CoordinatorNotAvailable
from raftlog.base.histogram import Histogram
from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState, TopicState
from raftlog.protocol.apis import ApiKey

MAX_CALLS: Final = 35
"""The calls for one sample without readers: some microseconds every three seconds."""


class Counts:
    """A node's numbers, which a test changes."""

    def __init__(self) -> None:
        self.topic = Fake(messages_in=0, bytes_in=0, messages_out=0, bytes_out=0)
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
    """One node; a test moves its clock and metadata."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wall_ms = 0
        self.counts = Counts()
        self.image = EMPTY_IMAGE
        node = NodeView(
            config=NodeConfig(),
            image=lambda: self.image,
            unready_reasons=list,
            wall_clock_ms=lambda: self.now * 1000 + self.wall_ms,
            facts=cast(Any, self.counts),
        )
        self.samples = Samples(node, lambda: self.now)

    async def take(self) -> None:
        self.now += EVERY_S
        await self.samples.take_sample()


@pytest.fixture
def world() -> Iterator[World]:
    yield World()


async def test_sample_has_the_rates_since_the_one_before(world: World) -> None:
    """Per second of the clock that does not jump."""
    world.samples.asked(0)
    await world.take()
    world.counts.topic = Fake(messages_in=30, bytes_in=3000, messages_out=60, bytes_out=6000)
    world.counts.latencies[ApiKey.PRODUCE].observe(0.004)
    await world.take()
    (sample,) = world.samples.asked(0)
    assert (sample.records_in, sample.bytes_in) == (10, 1000)
    assert (sample.records_out, sample.bytes_out) == (20, 2000)
    assert sample.produce_p99_ms is not None
    assert 2.5 < sample.produce_p99_ms <= 5
    assert (sample.fetch_p50_ms, sample.lag, sample.at_ms) == (None, 6, int(world.now * 1000))
    assert world.samples.asked(sample.at_ms) == []


async def test_samples_are_kept_before_anybody_asks_and_lag_is_not(world: World) -> None:
    """The console shows the time before it was opened. Offsets are walked for readers, and shortly after."""
    for _ in range(3):
        await world.take()
    assert [each.lag for each in world.samples.asked(0)] == [None, None]
    await world.take()
    world.now += UNASKED_S
    await world.take()
    assert [each.lag for each in world.samples.asked(0)] == [None, None, 6, None]


def image_of(*topics: Sequence[PartitionState]) -> MetadataImage:
    states = [TopicState(f"t{number}", UUID(int=number), tuple(each)) for number, each in enumerate(topics)]
    return MetadataImage(topics={each.name: each for each in states})


async def test_partitions_are_counted_by_what_changed(world: World) -> None:
    """As a survey of the same metadata counts them, through topics that come, change and go."""
    well, behind, away = (
        PartitionState((1, 2), (1, 2), 1),
        PartitionState((1, 2), (1,), 1),
        PartitionState((1,), (1,), NO_BROKER),
    )
    await world.take()
    for image in (
        image_of([well, behind, away], [behind]),
        image_of([well, well, away], [away, away]),
        image_of([well]),
        EMPTY_IMAGE,
    ):
        world.image = image
        await world.take()
        found = await survey(NodeConfig(), image)
        sample = world.samples.asked(0)[-1]
        assert (sample.under_replicated, sample.offline) == (
            found.under_replicated.count,
            found.leaderless.count,
        )


async def test_sample_of_an_idle_node_costs_the_same_however_large_the_cluster(
    world: World,
) -> None:
    """In Python calls: neither partitions nor groups are walked while they do not change."""
    costs = []
    for size in (1, 2_000):
        world.image = image_of([PartitionState((1, 2), (1,), 1)] * size)
        world.counts.group_offsets = {("t", each): 0 for each in range(size)}
        for _ in range(2):
            await world.take()
        costs.append(await calls_of(world.take()))
    assert costs[0] == costs[1] <= MAX_CALLS


async def calls_of(work: Awaitable[None]) -> int:
    """Return how many Python functions some work calls."""
    calls = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        await work
    finally:
        sys.setprofile(None)
    return calls


async def test_samples_kept_are_bounded(world: World) -> None:
    """A quarter of an hour of them, the newest."""
    for _ in range(KEPT + 20):
        world.samples.asked(0)
        await world.take()
    kept = world.samples.asked(0)
    assert (len(kept), kept[-1].at_ms) == (KEPT, int(world.now * 1000))


async def test_clock_that_was_set_back_begins_the_samples_anew(world: World) -> None:
    """The kept samples would lie in the future."""
    for _ in range(3):
        await world.take()
    world.wall_ms = -3_600_000
    await world.take()
    assert [each.at_ms for each in world.samples.asked(-(2**53))] == [int(world.now * 1000) - 3_600_000]


async def test_unknown_lag_is_null(world: World) -> None:
    """While the groups are away, and where there are too many offsets to add up."""
    world.samples.asked(0)
    await world.take()
    world.counts.group_offsets = None
    await world.take()
    world.counts.group_offsets = {("t", each): 0 for each in range(MAX_OFFSETS + 1)}
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
    world.counts.group_offsets = {("t", each): 0 for each in range(MAX_OFFSETS)}
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
