"""Random work on a share partition, next to a model with an entry for each offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from raftlog.base.errors import InvalidRecordState
from raftlog.sharing.delivery import (
    FINAL_STATES,
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    DeliveryState,
    FetchedBatch,
    ShareLimits,
    StateBatch,
    StateWrite,
)
from raftlog.sharing.share_partition import SharePartition
from raftlog.sharing.state_batches import combine

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
MEMBERS = ("a", "b", "c")
LIMITS = ShareLimits(lock_s=10.0, delivery_count=4, max_locks=60)
STEPS = 250


@dataclass
class Entry:
    """One offset."""

    state: DeliveryState = AVAILABLE
    count: int = 0
    member: str | None = None
    expires_at: float = 0.0
    pending: DeliveryState | None = None


@dataclass
class Model:
    """The offsets from the start to the end, what is written, and what members were answered."""

    entries: dict[int, Entry] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    written: dict[int, tuple[int, DeliveryState]] = field(default_factory=dict)
    written_start: int = 0
    answered: set[int] = field(default_factory=set)
    """The offsets that were accepted or rejected, and this was answered."""

    def pass_final(self) -> None:
        while self.start < self.end and self.entries[self.start].state in FINAL_STATES:
            del self.entries[self.start]
            self.start += 1

    def release(self, entry: Entry) -> None:
        entry.state = ARCHIVED if entry.count >= LIMITS.delivery_count else AVAILABLE
        entry.member = entry.pending = None

    def available(self) -> int:
        return next(
            (each for each in sorted(self.entries) if self.entries[each].state is AVAILABLE), self.end
        )

    def held(self, member: str) -> list[int]:
        return [
            offset
            for offset, it in sorted(self.entries.items())
            if it.state is ACQUIRED and it.pending is None and it.member == member
        ]


class Work:
    """The log, the machine, the model and the clock of one run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = SharePartition(0, limits=LIMITS)
        self.model = Model()
        self.now = 100.0
        self.log: list[FetchedBatch] = []
        self.writing: StateWrite | None = None
        self.waiting: list[tuple[int, list[int]]] = []
        """The number of the write that each acknowledgement waits for, and the offsets that it ends."""

    def produce(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            first = self.log[-1].last_offset + 1 if self.log else 0
            if self.random.random() < 0.1:
                first += self.random.randint(1, 5)  # compaction removed a batch
            last = first + self.random.randint(0, 9)
            self.log.append(FetchedBatch(first, last, self.random.random() < 0.15))

    def acquire(self) -> None:
        machine, model, random = self.machine, self.model, self.random
        fetch_offset = machine.next_fetch_offset()
        batches = [each for each in self.log if each.last_offset >= fetch_offset][: random.randint(1, 5)]
        if not batches:
            return
        self.now += random.choice((0.0, 0.0, 1.0))
        self.expire()
        request = AcquireRequest(
            random.choice(MEMBERS), random.randint(1, 20), random.choice((1, 5, 100)), random.random() < 0.5
        )
        was_full = machine.is_full
        found = machine.acquire(request, batches, fetch_offset=fetch_offset, now=self.now)
        self.follow_withheld(batches, fetch_offset)
        taken = [offset for each in found for offset in range(each.first_offset, each.last_offset + 1)]
        withheld = {
            o for each in batches if each.is_withheld for o in range(each.first_offset, each.last_offset + 1)
        }
        within = range(batches[0].first_offset, batches[-1].last_offset + 1)
        for each in found:
            for offset in range(each.first_offset, each.last_offset + 1):
                entry = model.entries[offset]
                assert entry.state is AVAILABLE, offset
                assert offset in within and offset not in withheld
                entry.state, entry.member, entry.expires_at = (
                    ACQUIRED,
                    request.member_id,
                    self.now + LIMITS.lock_s,
                )
                entry.count += 1
                assert entry.count == each.delivery_count <= LIMITS.delivery_count
        assert taken == sorted(set(taken))
        if request.is_record_limit:
            assert len(taken) <= request.max_records
        left = [o for o, it in model.entries.items() if it.state is AVAILABLE and o in within]
        assert not (taken and left and min(left) < max(taken)), "an earlier record was passed over"
        if not taken and not was_full:
            assert not left
        for each in found:
            if each.delivery_count == LIMITS.delivery_count:
                assert len(taken) == 1, "the last time a record is delivered alone"
        model.pass_final()

    def follow_withheld(self, batches: list[FetchedBatch], fetch_offset: int) -> None:
        """Take what the machine has taken into flight, and archive what no member may see."""
        model = self.model
        for offset in range(model.end, self.machine.end_offset):
            model.entries[offset] = Entry()
        model.end = self.machine.end_offset
        gone = [range(fetch_offset, batches[0].first_offset)]
        gone += [range(each.first_offset, each.last_offset + 1) for each in batches if each.is_withheld]
        for offsets in gone:
            for offset in offsets:
                if offset in model.entries and model.entries[offset].state is AVAILABLE:
                    model.entries[offset].state = ARCHIVED

    def acknowledge(self) -> None:
        model, member = self.model, self.random.choice(MEMBERS)
        self.expire()
        held = model.held(member)
        if not held:
            return
        offset = self.random.choice(held)
        offsets = [offset]
        while offsets[-1] + 1 in held and len(offsets) < self.random.randint(1, 12):
            offsets.append(offsets[-1] + 1)
        types = [self.random.choice(tuple(AcknowledgeType)) for _ in offsets]
        if self.random.random() < 0.6:
            types = [types[0]]
        said = Acknowledgement(offsets[0], offsets[-1], types)
        number = self.machine.acknowledge(member, [said], now=self.now)
        for place, each in enumerate(offsets):
            entry, type_ = model.entries[each], types[place % len(types)]
            if type_ is AcknowledgeType.RENEW:
                entry.expires_at = self.now + LIMITS.lock_s
            elif type_ is AcknowledgeType.RELEASE:
                entry.pending = ARCHIVED if entry.count >= LIMITS.delivery_count else AVAILABLE
            else:
                entry.pending = ACKNOWLEDGED if type_ is AcknowledgeType.ACCEPT else ARCHIVED
        ended = [each for each in offsets if model.entries[each].pending in FINAL_STATES]
        assert (number is None) == all(each is AcknowledgeType.RENEW for each in types)
        if number is not None:
            self.waiting.append((number, ended))
            with pytest.raises(InvalidRecordState):
                self.machine.acknowledge(member, [said], now=self.now)

    def acknowledge_wrongly(self) -> None:
        """A member without the lock has no effect."""
        member = self.random.choice(MEMBERS)
        others = [
            o for o, it in self.model.entries.items() if it.member != member or it.state is not ACQUIRED
        ]
        if others:
            offset = self.random.choice(others)
            with pytest.raises(InvalidRecordState):
                said = Acknowledgement(offset, offset, [AcknowledgeType.ACCEPT])
                self.machine.acknowledge(member, [said], now=self.now)

    def take_write(self) -> None:
        if self.writing is not None:
            assert self.machine.take_write() is None, "one write at a time"
            return
        self.writing = self.machine.take_write()
        for offset, it in self.model.entries.items() if self.writing is None else ():
            if it.state is AVAILABLE and it.count:
                assert self.model.written[offset] == (it.count, AVAILABLE), "a delivery count is not written"

    def complete(self, *, is_written: bool) -> None:
        write, self.writing = self.writing, None
        if write is None:
            return
        if is_written:
            self.store(write)
        self.machine.complete(write, is_written=is_written)
        for first, end in write.pending:
            for offset in range(max(first, self.model.start), end):
                entry = self.model.entries[offset]
                if is_written:
                    assert entry.pending is not None
                    entry.state, entry.member = entry.pending, None
                entry.pending = None
        for number, ended in self.waiting:
            if number == write.number and is_written:
                self.model.answered.update(ended)
        self.waiting = [each for each in self.waiting if each[0] != write.number]
        self.model.pass_final()

    def store(self, write: StateWrite) -> None:
        """Merge a write as the share coordinator does, offset by offset."""
        model = self.model
        assert write.start_offset >= model.written_start, "the start offset goes back"
        model.written_start = write.start_offset
        for offset in range(model.start, write.start_offset):
            entry = model.entries[offset]
            assert (entry.pending or entry.state) in FINAL_STATES, "the start offset passes a live record"
        for batch in write.batches:
            assert batch.state is not ACQUIRED
            for offset in range(batch.first_offset, batch.last_offset + 1):
                before = model.written.get(offset, (0, AVAILABLE))
                assert batch.delivery_count >= before[0], "a delivery count goes back"
                model.written[offset] = max(before, (batch.delivery_count, batch.state))
        model.written = {o: it for o, it in model.written.items() if o >= write.start_offset}

    def expire(self) -> None:
        self.machine.expire(self.now)
        for entry in self.model.entries.values():
            if entry.state is ACQUIRED and entry.pending is None and entry.expires_at <= self.now:
                self.model.release(entry)
        self.model.pass_final()

    def end_session(self) -> None:
        member = self.random.choice(MEMBERS)
        assert self.machine.release_members({member}) == bool(self.model.held(member))
        for offset in self.model.held(member):
            self.model.release(self.model.entries[offset])
        self.model.pass_final()

    def settle_by_hand(self) -> None:
        """Let an operator release or archive some offsets, whichever members hold them."""
        model, rejects = self.model, self.random.random() < 0.5
        first = self.random.randint(max(0, model.start - 3), model.end + 3)
        last = first + self.random.randint(0, 20)
        type_ = AcknowledgeType.REJECT if rejects else AcknowledgeType.RELEASE
        found, number = self.machine.acknowledge_by_hand(type_, first, last, now=self.now)
        expected = dict.fromkeys(found._fields, 0)
        ended: list[int] = []
        for offset in range(first, last + 1):
            entry = model.entries.get(offset)
            is_held = entry is not None and entry.state is ACQUIRED and entry.pending is None
            if entry is None:
                expected["done" if offset < model.start else "not_fetched"] += 1
            elif is_held or (rejects and entry.state is AVAILABLE and entry.count):
                model.release(entry)
                entry.state = ARCHIVED if rejects else entry.state
                expected["archived" if entry.state is ARCHIVED else "released"] += 1
                ended += [offset] if entry.state is ARCHIVED else []
            elif entry.state is AVAILABLE:
                expected["available"] += 1
            else:
                expected["pending" if entry.state is ACQUIRED else "done"] += 1
        assert found._asdict() == expected
        if found.released or found.archived:
            assert number is not None, "it is answered before it is written"
        if number is not None:
            self.waiting.append((number, ended))
        model.pass_final()

    def delete_records(self) -> None:
        """Let the log begin later."""
        offset = self.model.start + self.random.randint(1, 8)
        self.machine.advance_log_start(offset)
        self.log = [each for each in self.log if each.last_offset >= offset]
        self.model.entries = {o: it for o, it in self.model.entries.items() if o >= offset}
        self.model.start, self.model.end = offset, max(self.model.end, offset)
        self.model.pass_final()

    def fail_over(self) -> None:
        """Let another leader begin with what is written."""
        model = self.model
        if self.writing is not None and self.random.random() < 0.5:
            self.store(self.writing)  # the answer was lost
        self.writing, self.waiting = None, []
        batches = [StateBatch(o, o, state, count) for o, (count, state) in model.written.items()]
        self.machine = SharePartition(model.written_start, combine(batches, start_offset=0), limits=LIMITS)
        model.start = model.written_start
        model.end = max(model.written, default=model.start - 1) + 1
        model.entries = {}
        for offset in range(model.start, model.end):
            count, state = model.written.get(offset, (0, AVAILABLE))
            model.entries[offset] = Entry(state, count)
            assert not (offset in model.answered and state is AVAILABLE), "an answered record comes again"
        model.pass_final()

    def check(self) -> None:
        machine, model = self.machine, self.model
        assert (machine.start_offset, machine.end_offset) == (model.start, model.end)
        assert machine.next_fetch_offset() == model.available()
        offset, before = model.start, None
        for each in machine.ranges:
            assert each.first_offset == offset < each.end_offset
            assert before is None or not before.is_like(each), "neighbours that are alike"
            for offset in range(each.first_offset, each.end_offset):
                entry = model.entries[offset]
                assert (each.state, each.delivery_count, each.pending) == (
                    entry.state,
                    entry.count,
                    entry.pending,
                )
                if each.state is ACQUIRED:
                    assert (each.member_id, each.lock_expires_at) == (entry.member, entry.expires_at)
                    assert each.pending is not None or machine.next_expiry_at <= entry.expires_at
            offset, before = each.end_offset, each
        assert offset == model.end


@pytest.mark.parametrize("seed", range(60))
def test_the_ranges_behave_like_one_entry_for_each_offset(seed: int) -> None:
    """KIP-932: one holder at a time, no answered record again, no record passed over, counts and start only grow."""
    work = Work(seed)
    steps = (
        [work.produce, work.acquire, work.acknowledge] * 4
        + [work.take_write, work.take_write, work.acknowledge_wrongly, work.end_session, work.expire]
        + [work.settle_by_hand]
        + [lambda: work.complete(is_written=True)] * 3
        + [lambda: work.complete(is_written=False)]
    )
    for _ in range(STEPS):
        chance = work.random.random()
        if chance < 0.01:
            work.fail_over()
        elif chance < 0.02:
            work.delete_records()
        else:
            work.random.choice(steps)()
        work.now += work.random.choice((0.0, 0.1, 3.0))
        work.expire()
        work.check()


def test_every_record_reaches_an_end_if_members_go_on() -> None:
    """Whatever members do with records, the start offset reaches the end of the log: none is stuck."""
    work = Work(7)
    for _ in range(30):
        work.produce()
    end = work.log[-1].last_offset + 1
    for _ in range(5_000):
        work.acquire()
        work.acknowledge()
        work.take_write()
        work.complete(is_written=work.random.random() < 0.8)
        work.now += 0.5
        work.expire()
        if work.machine.start_offset == end:
            return
    raise AssertionError(f"the start offset stands at {work.machine.start_offset} of {end}")
