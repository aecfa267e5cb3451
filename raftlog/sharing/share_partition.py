"""One partition of one share group, in its leader's memory: which member has which records, until when.

A change by a member takes two steps. `acknowledge` notes it as pending. `take_write` returns all noted changes as a
write for the share coordinator, and `complete` makes them real, or takes them back. At most a single write is under
way, so later acknowledgements go with the next write. A write has the start offset as it will be after it.

Locks that expire, the locks of a session that ends, and those that an operator takes away are given up at once. Their
delivery counts go with the next write. A member that acknowledged in time keeps its pending change, and its lock if the
change is taken back.

The machine knows no time, log or coordinator: `now` is in seconds of a clock that does not go back. Its owner drops it
once it is fenced, and makes another from what the coordinator has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Final

from raftlog.base.errors import InvalidRecordState, InvalidRequest
from raftlog.sharing.acquisition import Candidate, choose, new_candidates, split
from raftlog.sharing.dead_letter import DeadLetters
from raftlog.sharing.delivery import (
    FINAL_STATES,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireRequest,
    ByHand,
    DeliveryState,
    FetchedBatch,
    ShareLimits,
    StateBatch,
    StateWrite,
)
from raftlog.sharing.delivery_history import DeliveryCounts, DeliveryEnd, EndedDelivery
from raftlog.sharing.in_flight import InFlightRange, InFlightRanges
from raftlog.sharing.state_batches import combine

Span = tuple[int, int, AcknowledgeType]
"""Offsets of an acknowledgement, first and end, and its type."""

_STATE_AFTER: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
}


class SharePartition:
    """`batches`: the state as read back. Offsets between them were never written, so they are available.

    `counts`: where it counts records.
    """

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        *,
        limits: ShareLimits | None = None,
        counts: DeliveryCounts | None = None,
        letters: DeadLetters | None = None,
    ) -> None:
        self.limits = limits or ShareLimits()
        """May be replaced at any time."""
        self._counts = counts or DeliveryCounts()
        self._pending_counts = DeliveryCounts()
        """Acknowledged records of pending changes that no write has yet."""
        self._written_counts = DeliveryCounts()
        """The same of the write that is under way."""
        self._ended: list[EndedDelivery] = []
        self._ranges = InFlightRanges(start_offset)
        self._maybe_available = start_offset
        """No offset below it is available."""
        self._next_expiry_at = inf
        """No lock expires before."""
        self._pending: list[tuple[int, int]] = []
        """The offsets with pending changes that no write has yet, first and end."""
        self._released: list[tuple[int, int]] = []
        """The offsets with locks that were given up, which no write has yet."""
        self._written_start = start_offset
        """The start offset that the next leader begins with, at least."""
        self._is_start_due = False
        """Whether an acknowledgement waits for a write of the start offset."""
        self._writing: StateWrite | None = None
        self._next_write = 1
        self.last_letters = letters
        """The dead letters that were written last, or are being written."""
        self._planned: DeadLetters | None = None
        """Dead letters that no write has yet."""
        self._may_archive = True
        """Whether a record may wait for its dead letter."""
        for each in combine(batches, start_offset=start_offset):
            self._ranges.extend(each.first_offset)
            self._ranges.extend(each.last_offset + 1, each.state, each.delivery_count)
        self._pass_final()

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is not final: Kafka's SPSO."""
        return self._ranges.start_offset

    @property
    def end_offset(self) -> int:
        """The end of what was fetched: the offset after Kafka's SPEO."""
        return self._ranges.end_offset

    @property
    def next_expiry_at(self) -> float:
        """When to call `expire` next, or infinity. It may be early."""
        return self._next_expiry_at

    @property
    def ranges(self) -> Iterator[InFlightRange]:
        """The ranges in flight, in order; not to be changed."""
        return iter(self._ranges)

    @property
    def range_count(self) -> int:
        return len(self._ranges)

    @property
    def is_full(self) -> bool:
        """Whether a fetch yields no record until locks at the start are given up."""
        in_flight = self.end_offset - self.start_offset
        return in_flight >= self.limits.max_locks and not self.has_available

    @property
    def has_available(self) -> bool:
        """Whether records in flight are available. Others may follow them in the log."""
        return self.next_fetch_offset() < self.end_offset

    def take_ended(self) -> list[EndedDelivery]:
        """Return the deliveries that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def next_fetch_offset(self) -> int:
        """Return the first available offset, at most the end offset."""
        end_offset = self._ranges.end_offset
        for each in self._ranges.overlapping(self._maybe_available, end_offset):
            if each.is_available:
                self._maybe_available = each.first_offset
                return each.first_offset
        self._maybe_available = end_offset
        return end_offset

    # -- acquiring -----------------------------------------------------------------------------------------

    def acquire(
        self, request: AcquireRequest, batches: Sequence[FetchedBatch], *, fetch_offset: int, now: float
    ) -> list[Acquired]:
        """Give a member the locks of available records among `batches`, which were read from `fetch_offset` on."""
        self.expire(now)
        if not batches or request.max_records <= 0:
            return []
        assert fetch_offset <= self.end_offset
        self._archive(fetch_offset, batches[0].first_offset)  # compaction removed them
        for each in batches:
            if each.is_withheld:
                self._archive(each.first_offset, min(each.last_offset + 1, self.end_offset))
        chosen = choose(self._candidates(batches), batches, request=request, limits=self.limits)
        self._extend(batches, chosen)
        self._lock(chosen, request.member_id, now)
        found: list[Acquired] = []
        for span in chosen:
            acquired = Acquired(span.first_offset, span.end_offset - 1, span.delivery_count + 1)
            found += (
                split(acquired, batches, request.batch_size) if not request.is_record_limit else (acquired,)
            )
        self._pass_final()
        return found

    def _archive(self, first_offset: int, end_offset: int) -> None:
        """Archive the available records of these offsets, even beyond the end. No write is needed: the log shows it."""
        if first_offset >= end_offset:
            return
        self._ranges.extend(end_offset)
        for _, each in self._ranges.cut([(first_offset, end_offset)]):
            if each.is_available:
                each.settle(DeliveryState.ARCHIVED)
        self._ranges.join(first_offset, end_offset)

    def _candidates(self, batches: Sequence[FetchedBatch]) -> Iterator[Candidate]:
        first_offset = max(batches[0].first_offset, self.start_offset)
        end_offset = batches[-1].last_offset + 1
        for each in self._ranges.overlapping(first_offset, end_offset):
            if each.is_available:
                begins, ends = max(each.first_offset, first_offset), min(each.end_offset, end_offset)
                yield Candidate(begins, ends, each.delivery_count, ends - begins)
        room = self.limits.max_locks - (self.end_offset - self.start_offset)
        yield from new_candidates(batches, self.end_offset, room=room)

    def _extend(self, batches: Sequence[FetchedBatch], chosen: Sequence[Candidate]) -> None:
        """Take the new offsets into flight that were chosen, and the withheld batches before and just after them."""
        before = self.end_offset
        if chosen:
            self._ranges.extend(chosen[-1].end_offset)
        for each in batches:
            if each.is_withheld and before <= each.last_offset and each.first_offset <= self.end_offset:
                self._archive(max(each.first_offset, before), each.last_offset + 1)

    def _lock(self, spans: Sequence[Candidate], member_id: str, now: float) -> None:
        if not spans:
            return
        expires_at = now + self.limits.lock_s
        for _, each in self._ranges.cut(spans):
            each.state, each.member_id, each.lock_expires_at = DeliveryState.ACQUIRED, member_id, expires_at
            each.delivery_count += 1
            each.acquired_at = now
        self._ranges.join(spans[0].first_offset, spans[-1].end_offset)
        for span in spans:
            count = span.end_offset - span.first_offset
            self._counts.acquired += count
            self._counts.redelivered += count if span.delivery_count else 0
        self._next_expiry_at = min(self._next_expiry_at, expires_at)

    # -- acknowledging -------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], *, now: float
    ) -> int | None:
        """Note a member's acknowledgements, all or none of them. Raise InvalidRecordState, InvalidRequest.

        `add_batch` has checked them. The first error counts, as in Apache Kafka.
        Return the number of the write after which they may be answered, or None if they may be at once.
        """
        self.expire(now)
        acknowledgements = self._not_passed(acknowledgements)
        spans: list[Span] = []
        for each in acknowledgements:
            of_each = list(_spans(each, self.start_offset, self.end_offset))
            self._check(member_id, of_each)
            if spans and of_each and of_each[0][0] < spans[-1][1]:
                _drop_renewal(spans)
            spans += of_each
        changes = [(first, end) for first, end, type_ in spans if type_ is not AcknowledgeType.RENEW]
        for (_, _, type_), held in self._ranges.cut(spans):
            if type_ is AcknowledgeType.RENEW:
                held.lock_expires_at = now + self.limits.lock_s
            else:
                held.pending = self._state_after(type_, held.delivery_count)
                if type_ is AcknowledgeType.RELEASE and held.pending is not DeliveryState.AVAILABLE:
                    self._pending_counts.archived += held.end_offset - held.first_offset
        for first, end, type_ in spans:
            counts = self._counts if type_ is AcknowledgeType.RENEW else self._pending_counts
            counts.acknowledged[type_] += end - first
        if spans:
            self._ranges.join(spans[0][0], spans[-1][1])
        self._pending += changes
        if self.start_offset > self._written_start:
            self._is_start_due |= any(map(self._is_passed_unwritten, acknowledgements))
        return self._next_write if changes or self._is_start_due else None

    def _not_passed(self, acknowledgements: Sequence[Acknowledgement]) -> Sequence[Acknowledgement]:
        """Drop all that the start offset has passed, but for the last: a request may name any number of them."""
        at = bisect_left(acknowledgements, self.start_offset, key=attrgetter("last_offset"))
        return acknowledgements[max(0, at - 1) :]

    def _is_passed_unwritten(self, acknowledgement: Acknowledgement) -> bool:
        """Return whether the start offset has passed some of these offsets, and the next leader may deliver them.

        The log start or expired locks have moved it. An answer means that they do not come again.
        """
        first_offset, last_offset, _ = acknowledgement
        passed_end = min(last_offset + 1, self.start_offset)
        return first_offset < self.start_offset and passed_end > self._written_start

    def _state_after(self, type_: AcknowledgeType, delivery_count: int) -> DeliveryState:
        if type_ is AcknowledgeType.REJECT:
            return self.limits.given_up
        return _STATE_AFTER.get(type_) or self.limits.state_after_release(delivery_count)

    def _check(self, member_id: str, spans: Sequence[Span]) -> None:
        """Raise InvalidRecordState unless the member holds the locks of all these offsets."""
        for _, each in self._ranges.of_spans(spans):
            if not each.is_held or each.member_id != member_id:
                raise InvalidRecordState("the member has not acquired the record, or no longer has it")

    # -- giving up -----------------------------------------------------------------------------------------

    def expire(self, now: float) -> bool:
        """Give up the locks that have expired; return whether there were any."""
        if now < self._next_expiry_at:
            return False
        released = self._release(
            (each for each in self._ranges if each.is_held and each.lock_expires_at <= now),
            DeliveryEnd.LOCK_OVER,
        )
        held = (each.lock_expires_at for each in self._ranges if each.is_held)
        self._next_expiry_at = min(held, default=inf)
        return released

    def release_members(self, member_ids: Container[str | None]) -> bool:
        """Give up all locks of members after the end of their sessions; return whether they had any."""
        return self._release(
            (each for each in self._ranges if each.is_held and each.member_id in member_ids),
            DeliveryEnd.SESSION_OVER,
        )

    def acknowledge_by_hand(
        self, type_: AcknowledgeType, first_offset: int, last_offset: int, *, now: float
    ) -> tuple[ByHand, int | None]:
        """Release or reject records for an operator, whichever members hold them. `type_`: RELEASE or REJECT.

        It takes effect at once. Later acknowledgements of the former holder raise InvalidRecordState. They have no
        effect once the start offset has passed the record, as it passes archived records at the front. Available
        records are rejected only after a delivery: others may be aborted or deleted. Return the number of the write
        after which this may be answered, or None if it may be at once.
        """
        self.expire(now)
        start_offset, end_offset = self.start_offset, self.end_offset
        begins, ends = max(first_offset, start_offset), min(last_offset + 1, end_offset)
        found = Counter(
            done=max(0, min(last_offset + 1, start_offset) - first_offset),
            not_fetched=max(0, last_offset + 1 - max(first_offset, end_offset)),
        )
        changed: list[InFlightRange] = []
        for _, each in self._ranges.cut([(begins, ends)]) if begins < ends else ():
            outcome = self._outcome_by_hand(each, type_)
            found[outcome] += each.end_offset - each.first_offset
            if outcome in ("released", "archived"):
                changed.append(each)
        self._release(changed, DeliveryEnd.BY_HAND, type_)
        self._ranges.join(begins, ends)
        return ByHand(**found), self._last_write()

    def _outcome_by_hand(self, each: InFlightRange, type_: AcknowledgeType) -> str:
        """Return the field of `ByHand` that counts these records."""
        was_delivered = each.is_available and each.delivery_count > 0
        if each.is_held or (was_delivered and type_ is AcknowledgeType.REJECT):
            state = self._state_after(type_, each.delivery_count)
            return "released" if state is DeliveryState.AVAILABLE else "archived"
        if each.is_available:
            return "available"
        return "pending" if each.state is DeliveryState.ACQUIRED else "done"

    def _release(
        self,
        held: Iterable[InFlightRange],
        end: DeliveryEnd,
        type_: AcknowledgeType = AcknowledgeType.RELEASE,
    ) -> bool:
        changed = [(each.first_offset, each.end_offset, each) for each in held]
        for first_offset, end_offset, each in changed:
            state = self._state_after(type_, each.delivery_count)
            count = end_offset - first_offset
            is_out = type_ is AcknowledgeType.RELEASE and state is not DeliveryState.AVAILABLE
            self._counts.lock_timeouts += count if end is DeliveryEnd.LOCK_OVER else 0
            self._counts.archived += count if is_out else 0
            self._settle(each, state, end)
            each.by_hand = end is DeliveryEnd.BY_HAND and state is DeliveryState.ARCHIVING
            self._released.append((first_offset, end_offset))
        if changed:
            self._ranges.join(changed[0][0], changed[-1][1])
        self._pass_final()
        return bool(changed)

    def give_up_all(self) -> None:
        """End all deliveries without a write: the next leader begins with the written state. Then drop the machine."""
        for each in self._ranges:
            if each.state is DeliveryState.ACQUIRED:
                self._settle(each, DeliveryState.AVAILABLE, DeliveryEnd.LEADER_OVER)

    def _settle(self, each: InFlightRange, state: DeliveryState, end: DeliveryEnd) -> None:
        """End a delivery, or archive available records."""
        if each.member_id is not None:
            self._ended.append(
                EndedDelivery(
                    each.first_offset,
                    each.end_offset - 1,
                    each.delivery_count,
                    each.member_id,
                    each.acquired_at,
                    end,
                    state,
                )
            )
        each.settle(state)
        self._may_archive |= state is DeliveryState.ARCHIVING
        if state is DeliveryState.AVAILABLE:
            self._maybe_available = min(self._maybe_available, each.first_offset)

    def advance_log_start(self, log_start_offset: int) -> bool:
        """Drop the offsets that the log no longer has; return whether there were any."""
        if log_start_offset <= self.start_offset:
            return False
        self._ranges.advance(log_start_offset)
        self._pass_final()
        return True

    def _pass_final(self) -> None:
        """Move the start offset over final offsets. An offset is not final while its state is being written."""
        start_offset = self.end_offset
        for each in self._ranges:
            if not each.is_final:
                start_offset = each.first_offset
                break
        if start_offset > self.start_offset:
            self._ranges.advance(start_offset)
        self._maybe_available = max(self._maybe_available, start_offset)

    # -- dead letters --------------------------------------------------------------------------------------

    @property
    def unfinished_letters(self) -> DeadLetters | None:
        """The dead letters whose batch may be in the dead-letter topic or not; None if the last batch is."""
        letters = self.last_letters
        return letters if letters is not None and any(self._archiving(letters)) else None

    def are_by_hand(self, letters: DeadLetters) -> bool:
        """Return whether an operator has archived the records of these letters."""
        return any(each.by_hand for each in self._archiving(letters))

    def _archiving(self, letters: DeadLetters) -> Iterator[InFlightRange]:
        for each in self._ranges.overlapping(letters.first_offset, letters.last_offset + 1):
            if each.state is DeliveryState.ARCHIVING:
                yield each

    def next_archiving(self, most: int) -> tuple[int, int, int] | None:
        """Return the first offsets that need dead letters, first and last, and their delivery count; None without."""
        for each in self._ranges if self._may_archive else ():
            if each.state is DeliveryState.ARCHIVING:
                return (
                    each.first_offset,
                    min(each.end_offset, each.first_offset + most) - 1,
                    each.delivery_count,
                )
        self._may_archive = False
        return None

    @property
    def is_stalled_by_letters(self) -> bool:
        """Whether no record can be delivered because the first in flight waits for its dead letter."""
        first = next(iter(self._ranges), None)
        return self.is_full and first is not None and first.state is DeliveryState.ARCHIVING

    def plan_letters(self, letters: DeadLetters) -> int:
        """Have the next write hold `letters`, and return its number. They are produced after it is committed."""
        assert self._planned is None, "a single batch is under way at a time"
        self._planned = letters
        return self._next_write

    def settle_letters(self, first_offset: int, end_offset: int) -> None:
        """Archive the records of these offsets that wait for dead letters: these are written, or given up."""
        for _, each in self._ranges.cut([(first_offset, end_offset)]):
            if each.state is DeliveryState.ARCHIVING:
                each.settle(DeliveryState.ARCHIVED)
        self._ranges.join(first_offset, end_offset)
        self._released.append((first_offset, end_offset))
        self._pass_final()

    # -- writing -------------------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether there are changes that no write has yet."""
        return bool(self._pending or self._released or self._is_start_due or self._planned)

    def _last_write(self) -> int | None:
        """Return the number of the write after which all changes are written; None if they are."""
        if self.has_changes:
            return self._next_write
        return None if self._writing is None else self._writing.number

    def take_write(self) -> StateWrite | None:
        """Return all changes since the last write; None if there are none, or a write is under way."""
        if self._writing is not None or not self.has_changes:
            return None
        start_offset = self._ranges.end_of_final()
        pending, released = _joined(self._pending), _joined(self._released)
        batches = combine(
            (each for span in _joined(pending + released) for each in self._batches(*span)),
            start_offset=start_offset,
        )
        complete = sum(
            each.end_offset - each.first_offset
            for each in self._ranges.overlapping(start_offset, self.end_offset)
            if _state_after_write(each) in FINAL_STATES
        )
        self._writing = StateWrite(
            self._next_write, start_offset, batches, complete, tuple(pending), tuple(released), self._planned
        )
        self._pending, self._released, self._is_start_due, self._planned = [], [], False, None
        self._written_counts, self._pending_counts = self._pending_counts, DeliveryCounts()
        self._next_write += 1
        return self._writing

    def _batches(self, first_offset: int, end_offset: int) -> Iterator[StateBatch]:
        for each in self._ranges.overlapping(first_offset, end_offset):
            state, count = _state_after_write(each), each.delivery_count
            if state is DeliveryState.ACQUIRED:  # released, and acquired again before it was written
                state, count = DeliveryState.AVAILABLE, count - 1
            last_offset = min(each.end_offset, end_offset) - 1
            yield StateBatch(max(each.first_offset, first_offset), last_offset, state, count)

    def complete(self, write: StateWrite, *, is_written: bool) -> None:
        """Make the pending changes of a write real, or take them back. Locks that were given up are written again."""
        assert write is self._writing, "a single write is under way at a time"
        self._writing = None
        for _, each in self._ranges.cut(write.pending):
            assert each.pending is not None
            if is_written:
                self._settle(each, each.pending, DeliveryEnd.ACKNOWLEDGED)
            else:
                each.pending = None
                self._next_expiry_at = min(self._next_expiry_at, each.lock_expires_at)
        if write.pending:
            self._ranges.join(write.pending[0][0], write.pending[-1][1])
        if is_written:
            self._counts.add(self._written_counts)
            self._written_start = max(self._written_start, write.start_offset)
            self.last_letters = write.letters or self.last_letters
        else:
            self._released = _joined((*write.released, *self._released))
        self._pass_final()


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge spans that touch, so that few remain while no write succeeds."""
    joined: list[tuple[int, int]] = []
    for first_offset, end_offset in sorted(spans):
        if joined and first_offset <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end_offset)
        else:
            joined.append((first_offset, end_offset))
    return joined


def _state_after_write(each: InFlightRange) -> DeliveryState:
    return each.state if each.pending is None else each.pending


def _drop_renewal(spans: list[Span]) -> None:
    """Remove the last offset: its record is acknowledged again. Raise InvalidRecordState unless it is renewed."""
    first_offset, end_offset, type_ = spans.pop()
    if type_ is not AcknowledgeType.RENEW:
        raise InvalidRecordState("the record is acknowledged twice in a request")
    if first_offset < end_offset - 1:
        spans.append((first_offset, end_offset - 1, type_))


def _spans(acknowledgement: Acknowledgement, start_offset: int, end_offset: int) -> Iterator[Span]:
    """Yield the runs of one type; what is below `start_offset` needs no acknowledgement any more."""
    first_offset, last_offset, types = acknowledgement
    if first_offset >= start_offset == end_offset:
        raise InvalidRecordState("no record is acquired")
    if last_offset >= end_offset:
        raise InvalidRequest("offsets past the acquired records cannot be acknowledged")
    if last_offset < start_offset:
        return
    begins = max(first_offset, start_offset)
    if len(types) == 1:
        yield begins, last_offset + 1, types[0]
        return
    for type_, run in groupby(types[begins - first_offset :]):
        ends = begins + len(list(run))
        yield begins, ends, type_
        begins = ends
