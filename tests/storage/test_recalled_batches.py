"""A start recalls producers' last batches from a log in which a header rotted, with a snapshot and without."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import OutOfOrderSequenceNumber
from raftlog.records.header import HEADER_BYTES, iter_headers, read_header
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS, append, batch_of
from tests.storage.rotten_logs import FOLDER, TOPIC_ID

PRODUCERS, BATCHES = (7, 8), 4


def open_log(disk: SimDisk) -> Log:
    """Open the log of /data/t-0, as after a clean stop."""
    return Log.open(
        disk,
        FOLDER,
        config=TopicConfig(segment_bytes=400),
        recovery_point=0,
        clean=True,
        topic_id=None if disk.exists(FOLDER) else TOPIC_ID,
        now_ms=NOW_MS,
    )


def retries(log: Log) -> dict[tuple[int, int], Any]:
    """Return by producer and sequence where each batch is, if it comes again; None if it is refused or new."""
    found: dict[tuple[int, int], Any] = {}
    for producer_id in PRODUCERS:
        for sequence in range(BATCHES):
            header = read_header(batch_of(b"v", producer=(producer_id, 0, sequence)))
            try:
                known = log.producers.check_sequence(header)
            except OutOfOrderSequenceNumber:
                known = None
            found[producer_id, sequence] = None if known is None else (known.base_offset, known.last_offset)
    return found


@pytest.mark.parametrize("has_snapshot", [True, False])
@pytest.mark.parametrize("position", range(HEADER_BYTES))
def test_a_batch_whose_header_rotted_is_recalled_as_it_was_or_not_at_all(
    position: int, has_snapshot: bool
) -> None:
    """A retry of it must not be answered with an offset where it never was. Base offsets are outside of the CRC."""
    disk = SimDisk(0)
    log = open_log(disk)
    for sequence in range(BATCHES):
        for producer_id in PRODUCERS:
            append(log, b"v", producer=(producer_id, 0, sequence))
    assert len(log.segments) > 1
    written = retries(log)
    assert None not in written.values()
    log.close(clean=True)
    if not has_snapshot:
        for name in disk.listdir(FOLDER):
            if name.endswith(".snapshot"):
                disk.remove(f"{FOLDER}/{name}")
    path = f"{log.segments[0].path}.log"
    at = [each for each, _ in iter_headers(disk.read_file(path))][1]
    disk.flip_bit(path, at + position, position % 8)
    log = open_log(disk)
    recalled = retries(log)
    assert all(where in (None, written[each]) for each, where in recalled.items())
    if log.damage is None:
        assert [each for each, where in recalled.items() if where is None] in ([], [(PRODUCERS[1], 0)])
