"""Fetches at the end of a segment, through the real partition and log."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog.base.config.topic import TopicConfig
from raftlog.records.batch import iter_headers
from tests.broker.fakes import FakeClient, FakePartitionServer, fetch, produce
from tests.broker.handlers.test_fetch import run_pending, told
from tests.broker.test_call_budget import commit, lead
from tests.replication.replica_cluster import NOW_MS, FakeHost, batch, registrations

BATCHES = 8


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(1, registrations([1]))


@pytest.fixture
async def pipe(host: FakeHost, tmp_path: Path) -> FakeClient:
    """A partition with segments of two batches each."""
    partition = lead(host, tmp_path, 0)
    records = bytes(batch("a" * 100))
    partition.configure(TopicConfig(segment_bytes=2 * len(records)))
    fake = FakePartitionServer(partition)  # type: ignore[arg-type]
    fake.broker.env.wall_clock_ms = lambda: NOW_MS
    pipe = fake.connect()
    for number in range(BATCHES):
        pipe.send(produce(number, (0, records)))
        commit(host)
    await run_pending()
    pipe.frames()
    assert len(partition.log.segments) == BATCHES // 2
    return pipe


def offsets(pipe: FakeClient) -> list[int]:
    return [header.base_offset for _, header in iter_headers(memoryview(bytes(told(pipe)[0].records)))]


async def test_min_bytes_is_met_by_what_lies_in_the_next_segments(pipe: FakeClient) -> None:
    """fetch.min.bytes once waited its whole time at the end of each closed segment."""
    pipe.send(fetch(1, (0, 1), max_wait_ms=60_000, min_bytes=700))
    assert offsets(pipe) == [1, 2, 3, 4, 5, 6, 7]


async def test_a_fetch_that_leaves_records_does_not_wait(pipe: FakeClient) -> None:
    """Kafka answers at once where a position is in an older segment: waiting brings no more of it."""
    pipe.send(fetch(1, (0, 1), max_wait_ms=60_000, min_bytes=100_000, partition_max_bytes=400))
    assert offsets(pipe) == [1, 2]


async def test_a_fetch_that_reads_to_the_end_waits_for_min_bytes(pipe: FakeClient) -> None:
    """There, what is written next counts."""
    pipe.send(fetch(1, (0, 1), max_wait_ms=60_000, min_bytes=100_000))
    await run_pending()
    assert not pipe.frames()
