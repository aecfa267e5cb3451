"""Compacted logs for tests: keyed batches, transactions, cleanings run to their end, and what a reader sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.base.config import TopicConfig
from raftlog.base.disk import Disk
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    Record,
    build_batch,
    build_end_marker,
    iter_headers,
    iter_records,
    new_record,
    read_end_marker,
    read_header,
)
from raftlog.records.header import TRANSACTIONAL_BIT, BatchHeader
from raftlog.storage.batch_reader import OffloadSteps
from raftlog.storage.cleaner import Cleaning
from raftlog.storage.log import Log
from raftlog.storage.log_to_clean import find_log_to_clean
from tests.storage.batches import NOW_MS

FOLDER = "/data/t-0"
DAY_MS = 86_400_000

Pair = tuple[bytes | None, bytes | None]


def open_compacted(disk: Disk, *, clean: bool = False, recovery_point: int = 0, **config: Any) -> Log:
    """Open /data/t-0 as a compacted log of small segments."""
    config = {"cleanup_policy": ("compact",), "segment_bytes": 400, "index_interval_bytes": 150, **config}
    log = Log.open(
        disk,
        FOLDER,
        config=TopicConfig(**config),
        recovery_point=recovery_point,
        clean=clean,
        topic_id=None,
        now_ms=NOW_MS,
    )
    log.cleaned_until = 0
    return log


def put(
    log: Log,
    *pairs: Pair,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    codec: int = 0,
    timestamp: int = NOW_MS,
    leader_epoch: int = 0,
) -> int:
    """Append one batch of (key, value); returns its base offset."""
    records = [new_record(key, value, timestamp=timestamp + at) for at, (key, value) in enumerate(pairs)]
    batch = build_batch(
        records,
        producer=ProducerIdAndSequence(*producer),
        codec=codec,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
    )
    return log.append_as_leader(
        read_header(batch), batch, leader_epoch=leader_epoch, now_ms=NOW_MS
    ).base_offset


def end(log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> int:
    """Append the marker that ends a transaction; returns its offset."""
    marker = build_end_marker(
        producer_id, producer_epoch, marker=EndTransactionMarker(commit, 3), now_ms=NOW_MS
    )
    return log.append_as_leader(read_header(marker), marker, leader_epoch=0, now_ms=NOW_MS).base_offset


def flush_and_checkpoint(log: Log) -> None:
    """Everything so far is on the disk, committed, and checkpointed."""
    log.flush()
    log.checkpoint()
    log.on_high_watermark_updated(log.log_end_offset)


def close_segment(log: Log) -> None:
    """Everything so far may be cleaned: it is out of the active segment."""
    log._roll(NOW_MS)
    flush_and_checkpoint(log)


def cleaning_of(
    log: Log, *, now_ms: int = NOW_MS, may_forget: bool = True, map_bytes: int = 1 << 20
) -> Cleaning | None:
    """Return the next cleaning of a log, None if there is no work."""
    unstable = log.first_unstable_offset
    limit = log.log_end_offset if unstable is None else unstable
    bounds = find_log_to_clean(log, end_limit=limit, now_ms=now_ms)
    return bounds and Cleaning(
        log, bounds, now_ms=now_ms, latest_ms=now_ms, may_forget=may_forget, map_bytes=map_bytes
    )


def run_steps(steps: OffloadSteps[None]) -> int:
    """Take all steps; returns how many there were."""
    answer, taken = None, 0
    while True:
        try:
            call = steps.send(answer)
        except StopIteration:
            return taken
        answer = call() if call is not None else None
        taken += 1


def clean(log: Log, **options: Any) -> Cleaning | None:
    """Clean a log as far as it can be; None if there was no work."""
    cleaning = cleaning_of(log, **options)
    if cleaning is not None:
        run_steps(cleaning.steps())
        assert cleaning.is_complete
    return cleaning


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from the log start on, read as followers read, from the end of the last batch."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        chunk = log.read(offset, 300, end_offset=log.log_end_offset, cached=False)
        assert chunk, f"a reader is stuck at offset {offset}"
        for position, header in iter_headers(chunk):
            assert header.base_offset >= offset
            found.append((header, bytes(chunk[position : position + header.length])))
            offset = header.end_offset
    return found


def records_of(log: Log) -> list[Record]:
    """Every record that a reader without transactions sees."""
    return [
        record for header, batch in batches_of(log) if not header.is_control for record in iter_records(batch)
    ]


def committed_of(log: Log) -> list[Record]:
    """Every record that a read_committed reader sees, by the aborted transactions that the log lists."""
    listed = sorted((first, who) for who, first in log.transaction_index.between(0, log.log_end_offset))
    skipping: set[int] = set()
    found: list[Record] = []
    unstable = log.first_unstable_offset
    for header, batch in batches_of(log):
        if unstable is not None and header.base_offset >= unstable:
            break
        while listed and listed[0][0] <= header.last_offset:
            skipping.add(listed.pop(0)[1])
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and not marker.commit:
                skipping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipping):
            found += iter_records(batch)
    return found


def pairs_of(records: Sequence[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in records]


def table_of(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """The newest value of each key; tombstones take keys away."""
    table: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
