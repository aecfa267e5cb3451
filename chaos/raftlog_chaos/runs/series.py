"""Latency and throughput over time, in buckets: little enough to keep of an hour, enough to draw it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from raftlog_chaos.runs.meter import rank

BUCKET_S: Final = 0.1


class Bucket(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A tenth of a second (or several, merged): `at_s` its beginning. Latencies in ms, None without an
    acknowledgement.
    """

    at_s: float
    acked: int = 0
    """Acknowledgements, the meter's included; latencies are over these."""
    written: int = 0
    """The workload's acknowledged writes."""
    read: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class Series:
    """Gathers moments and makes buckets of them."""

    def __init__(self, bucket_s: float = BUCKET_S) -> None:
        self.bucket_s = bucket_s
        self._took: dict[int, list[float]] = {}
        self._written: dict[int, int] = {}
        self._read: dict[int, int] = {}

    def add_acks(self, acked_at: Sequence[float], took_s: Sequence[float], *, written: bool) -> None:
        """Add acknowledgements: when, and how long each took; `written`: the workload's, not the meter's."""
        for at_s, seconds in zip(acked_at, took_s, strict=True):
            index = self._index(at_s)
            self._took.setdefault(index, []).append(seconds)
            if written:
                self._written[index] = self._written.get(index, 0) + 1

    def add_reads(self, read_at: Sequence[float], counts: Iterable[int]) -> None:
        """Add records read: when, and how many."""
        for at_s, count in zip(read_at, counts, strict=True):
            index = self._index(at_s)
            self._read[index] = self._read.get(index, 0) + count

    def _index(self, at_s: float) -> int:
        return max(0, math.floor(at_s / self.bucket_s))

    def buckets(self, until_s: float) -> list[Bucket]:
        """Return every bucket from 0 to `until_s`, also empty buckets."""
        return [self._bucket(index) for index in range(math.ceil(until_s / self.bucket_s))]

    def _bucket(self, index: int) -> Bucket:
        bucket = Bucket(
            at_s=round(index * self.bucket_s, 6),
            written=self._written.get(index, 0),
            read=self._read.get(index, 0),
        )
        took = sorted(self._took.get(index, ()))
        if took:
            bucket.acked = len(took)
            bucket.p50_ms, bucket.p99_ms = _ms(rank(took, 0.5)), _ms(rank(took, 0.99))
            bucket.max_ms = _ms(took[-1])
        return bucket


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def merged(buckets: Sequence[Bucket], most: int) -> list[Bucket]:
    """Return at most so many buckets: neighbours are merged, with the worst of their latencies."""
    step = max(1, math.ceil(len(buckets) / most))
    return (
        [_merge(buckets[at : at + step]) for at in range(0, len(buckets), step)]
        if step > 1
        else list(buckets)
    )


def _merge(group: Sequence[Bucket]) -> Bucket:
    return Bucket(
        at_s=group[0].at_s,
        acked=sum(each.acked for each in group),
        written=sum(each.written for each in group),
        read=sum(each.read for each in group),
        p50_ms=_middle([each.p50_ms for each in group if each.p50_ms is not None]),
        p99_ms=max((each.p99_ms for each in group if each.p99_ms is not None), default=None),
        max_ms=max((each.max_ms for each in group if each.max_ms is not None), default=None),
    )


def _middle(values: Sequence[float]) -> float | None:
    return rank(sorted(values), 0.5) if values else None
