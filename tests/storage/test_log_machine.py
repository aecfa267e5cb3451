"""The log against a model, through power losses, kills and clean stops, on the simulated disk.

Flushed records are there after any crash, others are there whole or gone, and no torn tail counts as damage.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftlog.base.config import TopicConfig
from raftlog.base.types import EpochEnd
from raftlog.records.batch import iter_headers, stamp
from raftlog.storage.flush import FlushTicket
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.examples import examples
from tests.storage.batches import NOW_MS, append, batch_of, read_all

PRODUCERS = (7, 8)


class LogMachine(RuleBasedStateMachine):
    """A log and what it should hold."""

    @initialize(seed=st.integers(0, 2**32), segment_bytes=st.integers(300, 1500))
    def start(self, seed: int, segment_bytes: int) -> None:
        self.disk = SimDisk(seed)
        self.config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=150)
        self.recovery_point = 0
        self.epoch = 0
        self.written: list[bytes] = []
        self.history: set[tuple[int, bytes]] = set()
        self.flushed = 0
        self.ticket: FlushTicket | None = None
        self.ticket_end = 0
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = Log.open(
            self.disk,
            "/data/t-0",
            config=self.config,
            recovery_point=self.recovery_point,
            clean=clean,
            topic_id=None,
            now_ms=NOW_MS,
        )
        self.ticket = None

    @property
    def end(self) -> int:
        return next((h.end_offset for _, h in iter_headers(self.written[-1])), 0) if self.written else 0

    def headers(self):
        return [header for batch in self.written for _, header in iter_headers(batch)]

    def sequence_of(self, producer_id: int) -> int:
        own = [header for header in self.headers() if header.producer_id == producer_id]
        return own[-1].last_sequence + 1 if own else 0

    @rule(
        sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3),
        producer=st.sampled_from((None, *PRODUCERS)),
    )
    def produce(self, sizes: list[int], producer: int | None) -> None:
        values = [b"v" * size for size in sizes]
        writer = (-1, -1, -1) if producer is None else (producer, 0, self.sequence_of(producer))
        placed = append(self.log, *values, leader_epoch=self.epoch, producer=writer)
        assert (placed.base_offset, placed.end_offset) == (self.end, self.end + len(sizes))
        assert not placed.duplicate
        produced = batch_of(*values, producer=writer)
        self.written.append(stamp(placed.base_offset, len(produced), self.epoch) + produced[16:])
        self.history.add((placed.base_offset, self.written[-1]))

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, 5))
    def retry(self, producer: int, back: int) -> None:
        own = [(header, batch) for header, batch in zip(self.headers(), self.written, strict=True)]
        own = [(header, batch) for header, batch in own if header.producer_id == producer][-5:]
        if len(own) < back:
            return
        header, batch = own[-back]
        placed = self.log.append_as_leader(header, batch, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert placed.duplicate
        assert (placed.base_offset, placed.end_offset) == (header.base_offset, header.end_offset)

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        if self.ticket is None:
            self.log.flush()
            self.flushed = self.end

    @precondition(lambda self: self.ticket is None)
    @rule()
    def begin_flush(self) -> None:
        self.ticket, self.ticket_end = self.log.begin_flush(), self.end

    @precondition(lambda self: self.ticket is not None)
    @rule()
    def complete_flush(self) -> None:
        assert self.ticket is not None
        self.ticket.run()
        self.log.complete_flush(self.ticket)
        self.ticket = None
        self.flushed = max(self.flushed, self.ticket_end)

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.checkpoint()
        self.log.recovery_point_written(self.recovery_point)
        self.log.high_watermark_written()

    @rule()
    def update_recovery_point(self) -> None:
        self.recovery_point = self.log.update_recovery_point()
        assert self.recovery_point <= self.flushed
        self.log.recovery_point_written(self.recovery_point)
        self.log.high_watermark_written()

    @rule(share=st.floats(0, 1), is_epoch_older=st.booleans())
    def truncate(self, share: float, is_epoch_older: bool) -> None:
        target = int(self.end * share)
        self.written = [
            batch for batch in self.written for _, h in iter_headers(batch) if h.end_offset <= target
        ]
        assert self.log.truncate_to(target) == self.end
        self.flushed = min(self.flushed, self.end)
        self.ticket_end = min(self.ticket_end, self.end)
        self.epoch = max(self.log.latest_epoch, 0) if is_epoch_older else self.epoch + 1

    @rule()
    def kill(self) -> None:
        self.disk.release()
        self.open(clean=False)

    @rule()
    def stop_cleanly(self) -> None:
        if self.ticket is None:
            self.log.close(clean=True)
            self.disk.crash()
            self.open(clean=True)
            self.flushed = self.recovery_point = self.end

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self.open(clean=False)
        assert self.log.damage is None
        content = read_all(self.log)
        found = [content[position : position + header.length] for position, header in iter_headers(content)]
        sure = [
            batch for batch in self.written for _, h in iter_headers(batch) if h.end_offset <= self.flushed
        ]
        assert found[: len(sure)] == sure
        for batch in found[len(sure) :]:
            assert (next(iter_headers(batch))[1].base_offset, batch) in self.history
        self.written = found

    @invariant()
    def holds_what_was_written(self) -> None:
        assert self.log.log_end_offset == self.end
        assert read_all(self.log, max_bytes=500) == b"".join(self.written)
        assert self.log.flushed_end_offset <= self.end
        epochs = {header.leader_epoch: header.end_offset for header in self.headers()}
        for epoch, end_offset in epochs.items():
            assert self.log.epoch_end(epoch) == EpochEnd(epoch, end_offset)

    @invariant()
    def flushed_never_more_than_synced(self) -> None:
        assert (
            self.log.flushed_end_offset <= self.flushed or self.log.flushed_end_offset <= self.recovery_point
        )


LogMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogKeepsItsPromises = LogMachine.TestCase
