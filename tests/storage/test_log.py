"""The log's appends and reads (Kafka: UnifiedLog, LocalLog)."""

from __future__ import annotations

from raftlog.records.batch import iter_headers, iter_records
from tests.storage.batches import append, read_all
from tests.storage.conftest import OpenLog


def test_appended_batches_are_numbered_and_read_back_over_segments(open_log: OpenLog) -> None:
    """Offsets count from 0 without gaps and every record comes back, over segment rolls and a restart."""
    log = open_log()
    for number in range(40):
        placed = append(log, b"a%d" % number, b"b%d" % number)
        assert (placed.base_offset, placed.end_offset) == (2 * number, 2 * number + 2)
    written = read_all(log)
    values = [
        record.value
        for position, header in iter_headers(written)
        for record in iter_records(written[position : position + header.length])
    ]
    assert values == [b"%s%d" % (letter, number) for number in range(40) for letter in (b"a", b"b")]
    assert len(log.segments) > 3
    assert read_all(open_log()) == written
