"""raftlog.tables.job: what an offset that is out of range means, by where the partition begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftlog.base.errors import OffsetOutOfRange
from raftlog.client.fetching import Fetched
from raftlog.client.metadata import EARLIEST, LATEST, PartitionKey

pytestmark = pytest.mark.tables

AT = ("orders", 0)
READ = 1000
"""The offset that is out of range, up to which the partition was read."""


def _read_on(monkeypatch: pytest.MonkeyPatch, first: int, end: int) -> int:
    """Return where a job with --skip-lost reads on in a partition with these offsets."""
    from raftlog.tables import job

    def offsets(_cluster: Any, keys: list[PartitionKey], timestamp: int, **_: Any) -> dict[PartitionKey, int]:
        return dict.fromkeys(keys, {EARLIEST: first, LATEST: end}[timestamp])

    monkeypatch.setattr(job, "list_offsets", offsets)
    reports: Any = SimpleNamespace(commit=None, say=lambda _line: None)
    cluster: Any = None
    reader = job.Job(cluster, {}, job.Plan(skip_lost=True), reports)
    feed: Any = SimpleNamespace(topic="orders", positions={0: READ}, leader_epochs={0: 3})
    reader._feeds["orders"] = feed
    reader._take(Fetched(AT, 1, iter(()), READ, error=OffsetOutOfRange()))
    assert not feed.leader_epochs
    return feed.positions[0]


@pytest.mark.parametrize(("first", "end"), [(0, READ - 10), (0, READ), (0, READ + 10), (READ, READ + 10)])
def test_a_topic_that_lost_its_end_is_never_read_again_from_its_first_record(
    monkeypatch: pytest.MonkeyPatch, first: int, end: int
):
    """By the time the end is asked for, new records may be at offsets that the table has."""
    from raftlog.tables.job import LostRecords

    with pytest.raises(LostRecords, match=f"orders 0: .* offset {READ}.* {end} "):
        _read_on(monkeypatch, first, end)


def test_deleted_records_are_skipped(monkeypatch: pytest.MonkeyPatch):
    """The partition begins behind the offset."""
    assert _read_on(monkeypatch, READ + 5, READ + 10) == READ + 5
