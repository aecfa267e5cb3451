"""`FakePartition` and a real partition pass the same claims: the claims that tests of handlers rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raftlog.base.errors import NONE, OffsetOutOfRange
from raftlog.records.batch import build_batch, new_record
from raftlog.replication.partition import Partition
from tests.broker import fakes
from tests.broker.fakes import FakePartition
from tests.broker.test_call_budget import lead
from tests.replication.replica_cluster import NOW_MS, FakeHost, RecordingWaiter, registrations


class Stand(NamedTuple):
    """Either of them, and its surroundings."""

    partition: Any
    batch: Callable[[int], bytes]
    commit: Callable[[], None]
    """Commit all appended records, and notify parked fetches."""


@pytest.fixture(params=["fake", "real"])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    if request.param == "fake":
        fake = FakePartition()
        fake.auto_commit = False
        return Stand(fake, lambda records: fakes.batch(records, size=100), fake.commit)
    host = FakeHost(1, registrations([1]))
    real: Partition = lead(host, tmp_path, 0)

    def commit() -> None:
        host.flush()
        host.wake()

    return Stand(
        real,
        lambda records: build_batch([new_record(None, bytes(100), timestamp=NOW_MS) for _ in range(records)]),
        commit,
    )


def append(stand: Stand, records: int = 1) -> tuple[int, int]:
    appended = stand.partition.append_produced(memoryview(stand.batch(records)), acks=-1, now_ms=NOW_MS)
    return appended.base_offset, appended.end_offset


async def test_offsets_follow_each_other(stand: Stand) -> None:
    """A batch has as many offsets as records, from the log's end on."""
    assert [append(stand, 3), append(stand, 2)] == [(0, 3), (3, 5)]
    assert (stand.partition.log_end_offset, stand.partition.high_watermark) == (5, 0)


async def test_a_producer_is_notified_when_its_batch_is_committed(stand: Stand) -> None:
    """At once if it is already, once, and without an error."""
    late, early = RecordingWaiter(), RecordingWaiter()
    _, end_offset = append(stand)
    stand.partition.await_commit(end_offset, late)
    assert late.outcome is None
    stand.commit()
    assert late.outcome == "committed" and stand.partition.high_watermark == end_offset
    stand.partition.await_commit(end_offset, early)
    assert early.outcome == "committed"


async def test_consumers_read_what_is_committed(stand: Stand) -> None:
    """Whole batches; the first one even if it is larger than asked for, where that is wanted."""
    append(stand)
    read = stand.partition.read(0, 1 << 20)
    assert (read.error_code, read.high_watermark, bytes(read.records)) == (NONE, 0, b"")
    stand.commit()
    size = len(stand.batch(1))
    assert len(stand.partition.read(0, 1 << 20).records) == size
    assert len(stand.partition.read(0, size - 1, min_one=True).records) == size
    assert len(stand.partition.read(0, size - 1, min_one=False).records) == 0
    assert len(stand.partition.read(1, 1 << 20).records) == 0


@pytest.mark.parametrize("offset", [-1, 2])
async def test_an_offset_outside_the_log_is_refused(stand: Stand, offset: int) -> None:
    """OFFSET_OUT_OF_RANGE, with where the log begins and how far it is committed."""
    append(stand)
    stand.commit()
    read = stand.partition.read(offset, 1 << 20)
    assert (read.error_code, read.log_start_offset, read.high_watermark) == (OffsetOutOfRange.code, 0, 1)


async def test_a_parked_fetch_is_woken_until_it_leaves(stand: Stand) -> None:
    """By a commit; not any more once it is unparked."""
    stays, leaves = RecordingWaiter(), RecordingWaiter()
    for each in (stays, leaves):
        stand.partition.park(each)
    stand.partition.unpark(leaves)
    append(stand)
    stand.commit()
    await asyncio.sleep(0)
    assert (stays.wakes, leaves.wakes) == (1, 0)


async def test_records_are_deleted_up_to_what_is_committed(stand: Stand) -> None:
    """KIP-107: -1 is the high watermark, and records beyond it stay."""
    append(stand, 4)
    stand.commit()
    append(stand, 1)
    with pytest.raises(OffsetOutOfRange):
        stand.partition.delete_records(5)
    assert stand.partition.delete_records(2) == stand.partition.log_start_offset == 2
    assert stand.partition.delete_records(-1) == stand.partition.log_start_offset == 4
    assert stand.partition.low_watermark() == 4
