"""Compares a replica's log with the times of its records: no fresh record is gone, headers are true, searches find.

Source: Kafka's LogValidator (the largest timestamp is the leader's to write) and KIP-33 (offsets by time).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_TIMESTAMP
from raftlog.records.batch import iter_records
from raftlog.records.header import check_crc, iter_headers
from raftlog.storage.log import Log
from raftlog_chaos.checkers.records import read_batches, values_of
from raftlog_chaos.workloads.odd_headers import Written

SHOWN: Final = 5
"""How many faults of one kind are listed."""


def judge_headers(batches: bytes) -> list[str]:
    """Return the batches with a CRC that fails, or with another largest timestamp in the header than in the records."""
    faults: list[str] = []
    view = memoryview(batches)
    for position, header in iter_headers(view):
        batch = view[position : position + header.length]
        try:
            check_crc(batch, 0, header)
        except CorruptMessage as error:
            faults.append(str(error.message))
            continue
        newest = max((each.timestamp for each in iter_records(batch)), default=header.max_timestamp)
        if max(newest, NO_TIMESTAMP) != header.max_timestamp:
            faults.append(
                f"the header at offset {header.base_offset} says {header.max_timestamp}, its records {newest}"
            )
    return faults[:SHOWN]


def judge_fresh(log: Log, end_offset: int, acked: Iterable[Written]) -> list[str]:
    """Return the fresh records that are missing from their acknowledged offsets, and the records that no search by time
    finds.
    """
    values = values_of(read_batches(log, end_offset))
    fresh = [each for each in acked if each.is_fresh]
    gone = [each for each in fresh if values.get(each.offset) != each.value]
    faults = [f"{each} is gone, the log begins at {log.log_start_offset}" for each in gone[:SHOWN]]
    for each in fresh:
        if each.timestamp < 0:
            continue
        found = log.offset_for_timestamp(each.timestamp)
        if found is None or found.offset > each.offset or found.timestamp < each.timestamp:
            faults.append(f"a search for its time finds {found}, not {each}")
    return faults[: 2 * SHOWN]
