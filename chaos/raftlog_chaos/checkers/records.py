"""Compares the replicas' logs with the promises to clients: no record lost, doubled, reordered or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raftlog.base.errors import KafkaError
from raftlog.records.batch import iter_records
from raftlog.records.header import iter_headers
from raftlog.storage.log import Log
from raftlog_chaos.workloads.observations import Observations, TopicIndex

READ_BYTES = 1 << 20


def read_batches(log: Log, end_offset: int) -> bytes:
    """Return all batches of a log below an offset, as they are on disk. Raises AssertionError where they cannot be
    read.
    """
    parts = []
    offset = log.log_start_offset
    while offset < end_offset:
        try:
            part = log.read(offset, READ_BYTES, end_offset=end_offset, cached=False)
        except KafkaError as error:
            raise AssertionError(f"offset {offset} cannot be read: {error!r}") from error
        assert part, f"no record to read at offset {offset} of {end_offset}"
        parts.append(part)
        offset = max(header.end_offset for _, header in iter_headers(part))
    return b"".join(parts)


def values_of(batches: bytes) -> dict[int, bytes]:
    """Return the value of every record by offset."""
    found: dict[int, bytes] = {}
    view = memoryview(batches)
    for position, header in iter_headers(view):
        for record in iter_records(view[position : position + header.length]):
            found[record.offset] = record.value or b""
    return found


def judge_replicas(where: TopicIndex, logs: Mapping[int, Sequence[bytes]], high_watermark: int) -> list[str]:
    """Check that all replicas hold the same bytes below the high watermark (LogMatching). `logs` by node: [batches]."""
    first = next(iter(logs))
    return [
        f"{where}: nodes {first} and {node} differ below the high watermark {high_watermark}"
        for node in logs
        if logs[node] != logs[first]
    ]


def judge_records(where: TopicIndex, history: Observations, values: Mapping[int, bytes]) -> list[str]:
    """Compare one partition's records with all sends, acknowledgements and reads of clients."""
    return [
        f"{where}: {fault}"
        for fault in (
            *_offsets(values),
            *_lost(where, history, values),
            *_doubled_or_foreign(where, history, values),
            *_reordered(values),
            *_changed(where, history, values),
        )
    ]


def _offsets(values: Mapping[int, bytes]) -> list[str]:
    expected = range(len(values))
    return [] if list(values) == list(expected) else ["offsets are not 0, 1, 2, …"]


def _lost(where: TopicIndex, history: Observations, values: Mapping[int, bytes]) -> list[str]:
    faults = []
    for base_offset, batch in history.acked.get(where, ()):
        for delta, value in enumerate(batch):
            found = values.get(base_offset + delta)
            if found != value:
                faults.append(f"{value!r} was acknowledged at {base_offset + delta}, where {found!r} is")
    return faults[:5]


def _doubled_or_foreign(where: TopicIndex, history: Observations, values: Mapping[int, bytes]) -> list[str]:
    faults, seen = [], set()
    attempted = history.attempted.get(where, set())
    for offset, value in values.items():
        if value in seen:
            faults.append(f"{value!r} is there again at {offset}")
        if value not in attempted:
            faults.append(f"{value!r} at {offset} was never sent")
        seen.add(value)
    return faults[:5]


def _reordered(values: Mapping[int, bytes]) -> list[str]:
    """A producer's records are numbered; their order holds."""
    faults = []
    last: dict[bytes, int] = {}
    for offset, value in values.items():
        if value.count(b"/") < 3:
            continue  # a careless producer's
        name, _, number, _ = value.split(b"/")
        if int(number) != last.get(name, -1) + 1:
            faults.append(f"{value!r} at {offset} follows number {last.get(name)}")
        last[name] = int(number)
    return faults[:5]


def _changed(where: TopicIndex, history: Observations, values: Mapping[int, bytes]) -> list[str]:
    return [
        f"{value!r} was read at {offset}, where {values.get(offset)!r} is"
        for offset, value in history.seen.get(where, {}).items()
        if values.get(offset) != value
    ][:5]
