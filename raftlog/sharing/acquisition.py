"""The choice of the offsets that a member acquires from the batches that its ShareFetch read.

A record that fails at every delivery may be a poison pill: its consumer crashes, and all records delivered with it fail
too. So once a record's delivery count is high, it is delivered with fewer others, and at its last delivery alone. Good
records beside it are then not archived with it. Apache Kafka halves the batch that was acquired first. This module
halves the range, or the number of records requested if that is less, since a range does not record that batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from raftlog.sharing.delivery import Acquired, AcquireRequest, FetchedBatch, ShareLimits

_FIRST_OFFSET = attrgetter("first_offset")
_LAST_OFFSET = attrgetter("last_offset")


class Candidate(NamedTuple):
    """Available offsets; `most` limits how many of them may be acquired."""

    first_offset: int
    end_offset: int
    delivery_count: int
    most: int


def choose(
    candidates: Iterable[Candidate],
    batches: Sequence[FetchedBatch],
    *,
    request: AcquireRequest,
    limits: ShareLimits,
) -> list[Candidate]:
    """Return the candidates to acquire, in order, cut to what the request and the limits allow."""
    chosen: list[Candidate] = []
    left = request.max_records
    for each in candidates:
        is_suspect = each.delivery_count >= limits.throttled_from
        most = min(each.most, left)
        if is_suspect:
            most = min(most, _together(each, request, limits))
        if most <= 0 or (is_suspect and chosen):
            break
        end_offset = each.first_offset + most
        if not (request.is_record_limit or is_suspect):
            end_offset = _end_of_batch(batches, end_offset - 1)
        end_offset = min(end_offset, each.end_offset)
        chosen.append(each._replace(end_offset=end_offset))
        left -= end_offset - each.first_offset
        if is_suspect or end_offset < each.end_offset:
            break
    return chosen


def _together(suspect: Candidate, request: AcquireRequest, limits: ShareLimits) -> int:
    """Return how many records that were delivered so often are delivered together."""
    if limits.is_last_delivery(suspect.delivery_count):
        return 1
    most = min(request.max_records, suspect.end_offset - suspect.first_offset)
    return max(1, most >> (suspect.delivery_count - limits.throttled_from + 1))


def _end_of_batch(batches: Sequence[FetchedBatch], offset: int) -> int:
    """Return the end of the record batch with an offset."""
    at = bisect_left(batches, offset, key=_LAST_OFFSET)
    return batches[at].last_offset + 1 if at < len(batches) else offset + 1


def new_candidates(batches: Sequence[FetchedBatch], end_offset: int, *, room: int) -> Iterator[Candidate]:
    """Yield the fetched offsets from `end_offset` on, without withheld batches; `room` is left for their locks.

    The offsets between two batches are acquired with them, and their consumer reports them as gaps.
    """
    first_offset = end_offset
    for each in batches:
        if each.is_withheld and each.last_offset >= first_offset:
            yield from _new(first_offset, each.first_offset, end_offset + room)
            first_offset = each.last_offset + 1
    yield from _new(first_offset, batches[-1].last_offset + 1, end_offset + room)


def _new(first_offset: int, end_offset: int, limit: int) -> Iterator[Candidate]:
    if first_offset < end_offset:
        yield Candidate(first_offset, end_offset, 0, limit - first_offset)


def split(acquired: Acquired, batches: Sequence[FetchedBatch], batch_size: int) -> Iterator[Acquired]:
    """Split acquired offsets where record batches begin, into ranges of `batch_size` records or somewhat more."""
    cuts = [acquired.first_offset]
    at = bisect_left(batches, cuts[0] + batch_size, key=_FIRST_OFFSET)
    while at < len(batches) and batches[at].first_offset <= acquired.last_offset:
        cuts.append(batches[at].first_offset)
        at = bisect_left(batches, cuts[-1] + batch_size, lo=at, key=_FIRST_OFFSET)
    for first_offset, end_offset in pairwise((*cuts, acquired.last_offset + 1)):
        yield Acquired(first_offset, end_offset - 1, acquired.delivery_count)
