"""The records of a share partition that are in flight, in adjacent ranges of offsets, without holes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from raftlog.sharing.delivery import FINAL_STATES, DeliveryState

_FIRST_OFFSET = attrgetter("first_offset")

Span = TypeVar("Span", bound=tuple[Any, ...])
"""Offsets, first and end, and whatever else is known of them."""


class InFlightRange(msgspec.Struct, gc=False):
    """Offsets in the same state. `member_id`, `acquired_at` and `lock_expires_at` count while it is acquired.

    `pending` is the state that it gets when the write that is under way succeeds. It is acquired until then. Joined
    ranges have the earliest `acquired_at`, so that the oldest lock is found.
    """

    first_offset: int
    end_offset: int
    state: DeliveryState = DeliveryState.AVAILABLE
    delivery_count: int = 0
    member_id: str | None = None
    lock_expires_at: float = 0.0
    acquired_at: float = 0.0
    pending: DeliveryState | None = None
    by_hand: bool = False
    """Whether an operator has archived it, for its dead letter. The next leader does not know it."""

    @property
    def is_available(self) -> bool:
        return self.state is DeliveryState.AVAILABLE

    @property
    def is_held(self) -> bool:
        """Whether a member holds its lock, and has not acknowledged it."""
        return self.state is DeliveryState.ACQUIRED and self.pending is None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    def settle(self, state: DeliveryState) -> None:
        """Set a state in which no member holds the range."""
        self.state, self.member_id, self.lock_expires_at, self.pending = state, None, 0.0, None
        self.by_hand = False

    def split(self, offset: int) -> InFlightRange:
        """Split off the offsets from `offset` on, and return them as another range."""
        after = msgspec.structs.replace(self, first_offset=offset)
        self.end_offset = offset
        return after

    def is_like(self, other: InFlightRange) -> bool:
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.pending is other.pending
            and self.member_id == other.member_id
            and self.lock_expires_at == other.lock_expires_at
            and self.by_hand == other.by_hand
        )


class InFlightRanges:
    """The ranges from `start_offset` to `end_offset`: Kafka's SPSO, and the offset after its SPEO."""

    __slots__ = ("_ranges", "end_offset", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._ranges: list[InFlightRange] = []

    def __iter__(self) -> Iterator[InFlightRange]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def overlapping(self, first_offset: int, end_offset: int) -> Iterator[InFlightRange]:
        """Yield the ranges that have any of these offsets. They must not change their bounds meanwhile."""
        if first_offset >= end_offset:
            return
        at = max(self._index(first_offset), 0)
        while at < len(self._ranges) and self._ranges[at].first_offset < end_offset:
            yield self._ranges[at]
            at += 1

    def _index(self, offset: int) -> int:
        """Return the place of the range that has an offset, or of the last range before it."""
        return bisect_right(self._ranges, offset, key=_FIRST_OFFSET) - 1

    def of_spans(self, spans: Iterable[Span]) -> Iterator[tuple[Span, InFlightRange]]:
        """Yield the ranges that have offsets of these spans, which are in order and apart, each with its span."""
        at = -1
        for span in spans:
            if at < 0:
                at = max(self._index(span[0]), 0)
            while at < len(self._ranges) and self._ranges[at].end_offset <= span[0]:
                at += 1
            while at < len(self._ranges) and self._ranges[at].first_offset < span[1]:
                yield span, self._ranges[at]
                at += 1
            at = max(at - 1, 0)  # the next span may begin in the same range

    def cut(self, spans: Sequence[Span]) -> list[tuple[Span, InFlightRange]]:
        """Return ranges of just these spans, as far as they are in flight, each with its span.

        The spans are in order and apart. `join` the ranges after a change.
        """
        if not spans or not self._ranges:
            return []
        begins, ends = max(self._index(spans[0][0]), 0), self._index(spans[-1][1] - 1) + 1
        bounds = iter([offset for span in spans for offset in span[:2]])
        bound: int | None = next(bounds)
        found: list[InFlightRange] = []
        for each in self._ranges[begins:ends]:
            rest = each
            while bound is not None and bound < rest.end_offset:
                if bound > rest.first_offset:
                    found.append(rest)
                    rest = rest.split(bound)
                bound = next(bounds, None)
            found.append(rest)
        self._ranges[begins:ends] = found
        return list(self.of_spans(spans))

    def _begin(self, offset: int) -> int:
        """Split the range with this offset, so that a range begins there, and return that range's index."""
        if offset >= self.end_offset:
            return len(self._ranges)
        at = self._index(offset)
        if self._ranges[at].first_offset < offset:
            at += 1
            self._ranges.insert(at, self._ranges[at - 1].split(offset))
        return at

    def join(self, first_offset: int, end_offset: int) -> None:
        """Join neighbours that are alike, among the ranges of these offsets and beside them."""
        begins, ends = max(self._index(first_offset) - 1, 0), self._index(end_offset) + 1
        joined: list[InFlightRange] = []
        for each in self._ranges[begins:ends]:
            if joined and joined[-1].is_like(each):
                joined[-1].end_offset = each.end_offset
                joined[-1].acquired_at = min(joined[-1].acquired_at, each.acquired_at)
            else:
                joined.append(each)
        self._ranges[begins:ends] = joined

    def extend(self, end_offset: int, state: DeliveryState = DeliveryState.AVAILABLE, count: int = 0) -> None:
        """Take the offsets up to `end_offset` into flight."""
        if end_offset > self.end_offset:
            self._ranges.append(InFlightRange(self.end_offset, end_offset, state, count))
            self.end_offset = end_offset

    def advance(self, start_offset: int) -> None:
        """Drop all offsets below `start_offset`, whatever their state is."""
        if start_offset >= self.end_offset:
            self._ranges.clear()
            self.end_offset = start_offset
        else:
            del self._ranges[: self._begin(start_offset)]
        self.start_offset = start_offset

    def end_of_final(self) -> int:
        """Return the end of the final ranges at the start, also counting what is being written."""
        for each in self._ranges:
            if not (each.is_final or each.pending in FINAL_STATES):
                return each.first_offset
        return self.end_offset
