"""Batches as producers send them."""

from __future__ import annotations

from raftlog.records.batch import (
    ProducerIdAndSequence,
    build_batch,
    new_record,
    read_header,
    validate_produced,
)
from raftlog.storage.log import Log
from raftlog.storage.producers import LogAppendInfo

NOW_MS = 1_000_000


def batch_of(
    *values: bytes, timestamp: int = NOW_MS, producer: tuple[int, int, int] = (-1, -1, -1), codec: int = 0
) -> bytes:
    """Return a batch of keyless records."""
    records = [new_record(None, value, timestamp=timestamp) for value in values]
    return build_batch(records, producer=ProducerIdAndSequence(*producer), codec=codec)


def append(
    log: Log, *values: bytes, leader_epoch: int = 0, now_ms: int = NOW_MS, **batch: object
) -> LogAppendInfo:
    """Produce one batch to a log."""
    produced = batch_of(*values, **batch)  # type: ignore[arg-type]
    header = validate_produced(memoryview(produced), 1 << 20)
    return log.append_as_leader(header, memoryview(produced), leader_epoch=leader_epoch, now_ms=now_ms)


def read_all(log: Log, max_bytes: int = 1 << 20) -> bytes:
    """Return every batch from the log start on."""
    chunks, offset = [], log.log_start_offset
    while chunk := log.read(offset, max_bytes, end_offset=log.log_end_offset, cached=False):
        chunks.append(chunk)
        position = 0
        while position < len(chunk):
            header = read_header(chunk, position)
            position += header.length
        offset = header.end_offset
    return b"".join(chunks)
