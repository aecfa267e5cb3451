"""Logs without a node around them: the power fails at changes of names, again and again, in starts too.

`names-out-of-order` does the same to a cluster, where a sync soon follows each change and many outcomes are rare. Here
a log is written, flushed, cleaned, truncated, restarted and shortened in any order. The file of recovery points may not
be written for some time.

After each power cut the log is opened and compared with its former content. It must have the committed records and
their aborted transactions, segments without a gap, and no damage. After each truncation and start it also knows which
transactions are open or end with an uncommitted marker.
"""

from __future__ import annotations

import asyncio
import posixpath
import random
from collections import Counter
from itertools import pairwise
from typing import Final

from raftlog.base.config import TopicConfig
from raftlog.base.errors import KafkaStorageError
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    build_batch,
    build_end_marker,
    new_record,
)
from raftlog.records.header import TRANSACTIONAL_BIT, BatchHeader, read_header
from raftlog.storage.cleaner import Cleaning
from raftlog.storage.log import Log
from raftlog.storage.log_to_clean import find_log_to_clean
from raftlog_chaos.expected_table import ExpectedTable, records_of
from raftlog_chaos.scenarios.report import Report
from raftlog_chaos.simulator.disk import NAMES_AND_SYNCS, SimDisk
from raftlog_chaos.simulator.loop import SimLoop

FOLDER: Final = "/data/t-0"
ABORTS: Final = 7
COMMITS: Final = 8
"""Producers. All transactions of one end in the same way."""
LOGS_PER_S: Final = 5
LIVES: Final = 10
MAX_ACTS: Final = 25
MAX_CHANGES: Final = 24
"""Changes of names and syncs until the power goes, at most."""
REFUSING_RUNS: Final = 0.3
REFUSED: Final = 0.7
"""How often the file of recovery points is not written after a cut, up to the next start, in those runs."""
UPDATED: Final = 0.4
"""How often only the recovery point moves where a log might be saved."""
KEYS: Final = 6
MAP_BYTES: Final = 1 << 20


class Transactions:
    """The begins and ends of transactions in a log."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, int, bool]] = []
        """For each batch: its offset, its producer, and whether it is a marker."""

    def note(self, header: BatchHeader, offset: int) -> None:
        """Add a batch that is about to be written."""
        if header.is_transactional:
            self._batches.append((offset, header.producer_id, header.is_control))

    def cut(self, end_offset: int) -> None:
        """Forget what is at or after `end_offset`."""
        self._batches = [each for each in self._batches if each[0] < end_offset]

    def first_unstable(self, high_watermark: int, *, start: int = 0) -> int | None:
        """Return the first offset of the oldest transaction without a committed marker; None if there is none.

        `start`: earlier offsets are ignored.
        """
        began: dict[int, int] = {}
        unstable: list[int] = []
        for offset, producer_id, is_marker in self._batches:
            if offset < start:
                continue
            first = began.pop(producer_id, None) if is_marker else began.setdefault(producer_id, offset)
            if is_marker and first is not None and offset >= high_watermark:
                unstable.append(first)
        return min((*unstable, *began.values()), default=None)


class OneLog:
    """A log on a disk of its own, its writer, and its committed records. Raises AssertionError."""

    def __init__(
        self,
        chance: random.Random,
        struck: Counter[str],
        refusals: random.Random | None,
        updates: random.Random,
    ) -> None:
        self._chance, self._struck, self._updates = chance, struck, updates
        self._refusals, self._is_refused = refusals, False
        self._is_table = chance.random() < 0.5
        self._disk = SimDisk(chance.randrange(1 << 32))
        self._config = TopicConfig(
            cleanup_policy=("compact",) if self._is_table else ("delete",),
            segment_bytes=chance.choice((100, 200, 400)),
            retention_ms=-1,
            retention_bytes=-1 if self._is_table else chance.choice((150, 600)),
            delete_retention_ms=chance.choice((0, 5, 500)),
            min_cleanable_dirty_ratio=0.0,
            file_delete_delay_ms=chance.choice((0, 20, 60_000)),
        )
        self._truth = ExpectedTable()
        self._transactions = Transactions()
        self._now_ms = 1_000_000
        self._producer_epoch = self._sequence = self._number = 0
        self._committed = self._recovery_point = self._log_start = 0
        self._anew: int | None = None
        self._lost: list[tuple[BatchHeader, bytes]] = []
        """Committed batches that were cut and are to be fetched again."""
        self.records = 0
        self._log = self._open()
        self._disk.sync_dir(
            posixpath.dirname(FOLDER)
        )  # else all may be gone until the first flush, as it should

    def live(self) -> None:
        """Act until the power fails, then start again and check the log."""
        calm = self._chance.randrange(MAX_ACTS)
        try:
            for number in range(2 * MAX_ACTS):
                if number == calm:
                    self._disk.set_trap(self._chance.randrange(MAX_CHANGES), _spring, counted=NAMES_AND_SYNCS)
                self._act()
                self._log_start = self._log.log_start_offset
        except (OSError, KafkaStorageError):
            self._struck["power lost at work"] += 1
        self._log = self._restart()
        if self._anew is not None:
            self._judge_segments()  # what it had was about to go, and its leader has it no more
            self._begin_anew(self._anew)
        self._judge()
        self._fetch_lost()
        self._begin_epoch()

    # -- acts ---------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        self._now_ms += self._chance.choice((0, 1, 10))
        lot = self._chance.random()
        if lot < 0.5:
            self._write()
        elif lot < 0.65:
            self._commit()
        elif lot < 0.7:
            self._log.flush()
            self._checkpoint()
        elif lot < 0.74:
            self._cut()
        elif lot < 0.76 and not self._is_table:
            self._lose()
        elif lot < 0.77 and not self._is_table:
            self._lose_sectors()
        elif lot < 0.8:
            self._log.delete_due_files(self._now_ms)
        elif self._is_table:
            self._clean()
        elif lot < 0.83:
            ahead = self._committed + self._chance.randrange(20)
            self._begin_anew(self._chance.choice((ahead, self._log.log_end_offset)))
        else:
            self._log_start = self._committed  # at most, if the power goes meanwhile
            dropped = self._log.delete_old_segments(self._now_ms, end_limit=self._committed)
            self._struck["segment dropped"] += dropped

    def _write(self) -> None:
        lot = self._chance.random()
        producer_id = self._chance.choice((ABORTS, COMMITS))
        if lot < 0.3:
            self._end(producer_id)
            return
        records = []
        for _ in range(self._chance.randint(1, 3)):
            self._number += 1
            key = b"%d" % (self._chance.randrange(KEYS) if self._is_table else self._number)
            value = None if self._chance.random() < 0.2 else b"%d" % self._number
            records.append(new_record(key, value, timestamp=self._now_ms))
        self.records += len(records)
        if lot < 0.5:
            stamp = ProducerIdAndSequence(producer_id, self._producer_epoch, self._sequences[producer_id])
            self._sequences[producer_id] += len(records)
            self._append(build_batch(records, producer=stamp, attributes=TRANSACTIONAL_BIT))
        else:
            self._append(build_batch(records))

    def _end(self, producer_id: int) -> None:
        marker = EndTransactionMarker(producer_id == COMMITS, 0)
        self._append(build_end_marker(producer_id, self._producer_epoch, marker=marker, now_ms=self._now_ms))

    def _append(self, batch: bytes) -> None:
        header = read_header(batch)
        self._transactions.note(header, self._log.log_end_offset)
        self._log.append_as_leader(header, batch, leader_epoch=0, now_ms=self._now_ms)

    def _begin_epoch(self) -> None:
        """Restart the writers after a start or a truncation; their open transactions end."""
        self._producer_epoch += 1
        self._sequences = dict.fromkeys((ABORTS, COMMITS), 0)
        for producer_id in (ABORTS, COMMITS):
            self._end(producer_id)

    def _commit(self) -> None:
        log = self._log
        if self._chance.random() < 0.6:
            self._end(ABORTS)
            self._end(COMMITS)
        log.flush()
        self._committed = log.log_end_offset
        log.on_high_watermark_updated(self._committed)
        self._learn()
        if self._chance.random() < 0.7:
            self._checkpoint()

    def _checkpoint(self, *, may_be_refused: bool = True) -> None:
        if may_be_refused and self._updates.random() < UPDATED:
            self._log.update_recovery_point()
        else:
            self._log.checkpoint()
        self._log.high_watermark_written()
        if self._is_refused and may_be_refused:
            self._struck["recovery point not written"] += 1
            return
        self._recovery_point = self._log.recovery_point
        self._log.recovery_point_written(self._recovery_point)

    def _refuse(self) -> None:
        self._is_refused = self._refusals is not None and self._refusals.random() < REFUSED

    def _cut(self) -> None:
        """Truncate, as a follower does if its leader has other records behind the high watermark."""
        log, due = self._log, self._chance.randint(self._committed, self._log.log_end_offset)
        if due < log.log_end_offset:
            log.truncate_to(due)
            self._refuse()
            log.on_high_watermark_updated(self._committed)  # markers that were read back
            self._struck["cut"] += 1
            self._judge_transactions()
            self._begin_epoch()

    def _lose(self) -> None:
        """Truncate rot, as a follower does: committed records go too, and are fetched again."""
        batches = self._batches()
        if len(batches) < 2:
            return
        first = self._chance.randrange(1, len(batches))
        self._lost = [(header, bytes(batch)) for header, batch in batches[first:]]
        self._committed = self._lost[0][0].base_offset
        self._log.truncate_to(self._committed, committed=True)
        self._refuse()
        self._struck["committed cut"] += 1
        self._fetch_lost()
        self._begin_epoch()

    def _lose_sectors(self) -> None:
        """Start again with zeros for the last flushed records: they are damage, not a torn write."""
        self._commit()
        for _ in range(2):  # so that no cut of before leaves the recovery point in doubt
            self._checkpoint(may_be_refused=False)
        batches, log, clean = self._batches(), self._log, self._chance.random() < 0.5
        if not batches:
            return
        segment, (header, batch) = log.segments[-1], batches[-1]
        if header.base_offset < segment.base_offset:
            return
        log.close(clean=clean)
        self._lost, self._committed = [(header, bytes(batch))], header.base_offset
        position = segment.size - len(batch)
        file = self._disk.open(f"{segment.path}.log")
        file.pwritev([bytes(len(batch))], position)
        file.sync()
        self._struck["sectors lost"] += 1
        self._log = self._open(clean=clean)
        assert self._log.damage is not None, f"a start does not miss offset {header.base_offset}"
        self._fetch_lost()
        self._begin_epoch()

    def _fetch_lost(self) -> None:
        log = self._log
        log.on_high_watermark_updated(self._committed)
        self._judge_transactions()
        for header, batch in self._lost:
            if header.base_offset >= log.log_end_offset:
                self._transactions.note(header, header.base_offset)
                log.append_as_follower(batch, now_ms=self._now_ms)
        if self._lost:
            log.flush()
            self._committed = log.log_end_offset
            log.on_high_watermark_updated(self._committed)
            self._lost = []
            assert log.damage is None, f"all that was lost is here again, and still: {log.damage}"
            self._judge_transactions()

    def _begin_anew(self, due: int) -> None:
        """Restart the log, as a follower does if its leader has deleted up to there, and again after a start in
        between.
        """
        self._anew = due
        self._log.truncate_fully_and_start_at(due)
        self._anew, self._committed, self._log_start = None, due, due
        self._log.on_high_watermark_updated(due)
        self._transactions.cut(0)
        self._struck["begun anew"] += 1
        self._begin_epoch()

    def _clean(self) -> None:
        """Clean the cleanable part; sometimes the log is truncated meanwhile."""
        log = self._log
        unstable = log.first_unstable_offset
        limit = self._committed if unstable is None else min(unstable, self._committed)
        bounds = find_log_to_clean(log, end_limit=limit, now_ms=self._now_ms)
        if bounds is None:
            return
        now = self._now_ms
        cleaning = Cleaning(log, bounds, now_ms=now, latest_ms=now, may_forget=True, map_bytes=MAP_BYTES)
        steps, answer = cleaning.steps(), None
        while True:
            try:
                call = steps.send(answer)
            except StopIteration:
                break
            answer = call() if call is not None else None
            if self._chance.random() < 0.01:
                self._cut()
        if cleaning.is_complete:
            log.cleaned_until = cleaning.cleaned_until
            self._struck["cleaning"] += 1

    # -- starts -------------------------------------------------------------------------------------------------

    def _restart(self) -> Log:
        self._is_refused = False
        while True:
            self._disk.crash()
            self._disk.power_up()
            if self._chance.random() < 0.3:
                self._disk.set_trap(self._chance.randrange(8), _spring, counted=NAMES_AND_SYNCS)
            try:
                log = self._open()
            except OSError:
                self._struck["power lost in recovery"] += 1
            else:
                self._disk.disarm()
                return log

    def _open(self, *, clean: bool = False) -> Log:
        log = Log.open(
            self._disk,
            FOLDER,
            config=self._config,
            recovery_point=self._recovery_point,
            clean=clean,
            topic_id=None,
            now_ms=self._now_ms,
        )
        self._sequences = dict.fromkeys((ABORTS, COMMITS), 0)
        log.on_high_watermark_updated(min(self._committed, log.log_end_offset))
        return log

    def _batches(self) -> list[tuple[BatchHeader, memoryview]]:
        found, offset, log = [], self._log.log_start_offset, self._log
        while offset < self._committed:
            chunk = log.read(offset, 1, end_offset=self._committed, cached=False)
            assert chunk, f"a reader is stuck at offset {offset}"
            header = read_header(chunk)
            found.append((header, memoryview(chunk)))
            offset = header.end_offset
        return found

    def _learn(self) -> list[str]:
        return [fault for header, batch in self._batches() for fault in self._truth.take(header, batch)]

    def _judge(self) -> None:
        log, committed = self._log, self._committed
        self._judge_segments()
        self._judge_transactions()
        assert log.log_end_offset >= committed, f"the log ends at {log.log_end_offset} of {committed}"
        assert log.log_start_offset <= self._log_start, f"the log begins at {log.log_start_offset}"
        batches = self._batches()
        for header, batch in batches:
            if header.is_transactional and not header.is_control and records_of(batch):
                self._judge_fate(header)
        left = [
            each.offset for header, batch in batches if not header.is_control for each in records_of(batch)
        ]
        faults = self._learn() + self._truth.judge(left, log.log_start_offset, committed)
        assert not faults, faults

    def _judge_segments(self) -> None:
        log = self._log
        assert log.damage is None or self._lost, f"damage: {log.damage}"
        for segment, following in pairwise(log.segments):
            end_offset = max((header.end_offset for _, header in segment.iter_headers(0)), default=-1)
            assert end_offset == following.base_offset, f"a hole: {end_offset} to {following.base_offset}"

    def _judge_transactions(self) -> None:
        """Compare the log's open transactions, and those with an uncommitted marker, with the model.

        It may have dropped a transaction that begins before the log does, as far as it lies there. A snapshot may know
        that records to be fetched again were committed.
        """
        log, transactions = self._log, self._transactions
        transactions.cut(log.log_end_offset)
        start, due, limits = log.log_start_offset, set(), [self._committed]
        if self._lost:
            limits += (log.producers.markers_known_from, self._lost[-1][0].end_offset)
        for committed in limits:
            known = transactions.first_unstable(committed)
            due.add(None if known is None else max(known, start))
            due.add(transactions.first_unstable(committed, start=start))
        found = log.first_unstable_offset
        assert found in due, f"the first unstable offset is {found}, and not of {due}"

    def _judge_fate(self, header: BatchHeader) -> None:
        log = self._log
        unstable = log.first_unstable_offset
        if unstable is not None and header.base_offset >= unstable:
            return
        listed = log.transaction_index.between(header.base_offset, header.end_offset)
        is_aborted = any(producer_id == header.producer_id for producer_id, _ in listed)
        fate = "aborted" if is_aborted else "committed"
        assert is_aborted == (header.producer_id == ABORTS), f"offset {header.base_offset} counts as {fate}"


def _spring() -> None:
    """The disk loses its power; this process goes on."""


async def names_of_one_log(loop: SimLoop, seconds: float = 4.0) -> Report:
    """Run five logs for each virtual second. Raises AssertionError."""
    chance, struck, records = loop.stream("names"), Counter[str](), 0
    refusals, updates = loop.stream("points"), loop.stream("updates")
    refuses = refusals.random() < REFUSING_RUNS
    for _ in range(int(seconds * LOGS_PER_S)):
        log = OneLog(chance, struck, refusals if refuses else None, updates)
        for _ in range(LIVES):
            log.live()
        records += log.records
        await asyncio.sleep(1 / LOGS_PER_S)
    return Report(records=records, faults=struck)
