"""A log on a simulated disk that may be made again and again, and what its readers get: before a bit flipped and after.

`ask` puts every question that a log answers from its files. A log on a disk where one bit flipped must answer as before
or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.config import TopicConfig
from raftlog.base.errors import CorruptMessage, KafkaStorageError
from raftlog.faults.harm import EPOCH_END, EPOCH_FROM
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    build_batch,
    build_end_marker,
    new_record,
)
from raftlog.records.header import TRANSACTIONAL_BIT, iter_headers, read_header
from raftlog.storage.index_check import offset_before_time
from raftlog.storage.indexes import TIME_ENTRY, TIME_ENTRY_BYTES
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS

FOLDER = "/data/t-0"
TOPIC_ID = UUID(int=77)
BATCHES = 60
BATCHES_OF_AN_EPOCH = 15

Files = dict[str, bytes]
Answers = dict[str, Any]
"""By question."""


class Opened(NamedTuple):
    """How a log is opened."""

    clean: bool
    recovery_point: int


def open_log(disk: SimDisk, how: Opened) -> Log:
    """Open the log of /data/t-0."""
    return Log.open(
        disk,
        FOLDER,
        config=TopicConfig(segment_bytes=1500, index_interval_bytes=150, retention_ms=-1),
        recovery_point=how.recovery_point,
        clean=how.clean,
        topic_id=None if disk.exists(FOLDER) else TOPIC_ID,
        now_ms=NOW_MS,
    )


def fill(chance: Random) -> Files:
    """Return the files of a log that was closed cleanly: several epochs, producers, transactions, and segments."""
    disk = SimDisk(0)
    log = open_log(disk, Opened(clean=False, recovery_point=0))
    sequences = {7: 0, 8: 0, 9: 0}
    opened: set[int] = set()
    for number in range(BATCHES):
        producer_id = chance.choice(sorted(sequences))
        epoch = number // BATCHES_OF_AN_EPOCH
        if producer_id in opened and chance.random() < 0.4:
            marker = EndTransactionMarker(chance.random() < 0.5, 0)
            batch = build_end_marker(producer_id, 0, marker=marker, now_ms=NOW_MS + number)
            opened.discard(producer_id)
        else:
            transactional = producer_id != 9
            opened |= {producer_id} if transactional else set()
            records = [
                new_record(b"k", b"v%d" % number * chance.randint(1, 9), timestamp=NOW_MS + number + at)
                for at in range(chance.randint(1, 3))
            ]
            stamp = ProducerIdAndSequence(producer_id, 0, sequences[producer_id])
            sequences[producer_id] += len(records)
            batch = build_batch(records, producer=stamp, attributes=TRANSACTIONAL_BIT if transactional else 0)
        log.append_as_leader(read_header(batch), memoryview(batch), leader_epoch=epoch, now_ms=NOW_MS)
        log.flush()
        log.on_high_watermark_updated(log.log_end_offset)
        if number % 7 == 0:
            log.checkpoint()
    log.close(clean=True)
    return {name: disk.read_file(f"{FOLDER}/{name}") for name in disk.listdir(FOLDER)}


def disk_of(files: Files, seed: int = 0) -> SimDisk:
    """Return a disk with these files, all of them durable."""
    disk = SimDisk(seed)
    disk.mkdir(FOLDER)
    disk.sync_dir(os.path.dirname(FOLDER))
    for name, content in files.items():
        disk.write_file(f"{FOLDER}/{name}", content)
    return disk


def ask(log: Log) -> Answers:
    """Return what the log answers to each question; None where it knows that it cannot. Use each entry of an index."""
    end = log.log_end_offset
    log.on_high_watermark_updated(end)
    answers: Answers = {}

    def put(question: str, answer: Callable[[], Any]) -> None:
        try:
            answers[question] = answer()
        except (CorruptMessage, KafkaStorageError):
            answers[question] = None

    for offset in reversed(range(log.log_start_offset, end)):  # forwards a read goes on where the last ended
        put(f"read {offset}", lambda offset=offset: _read(log, offset, end))
        put(f"epoch of {offset}", lambda offset=offset: log.epoch_at(offset))
    for timestamp in range(NOW_MS - 1, NOW_MS + BATCHES + 3):
        put(f"time {timestamp}", lambda timestamp=timestamp: log.offset_for_timestamp(timestamp))
        for segment in log.segments:
            with suppress(CorruptMessage):
                offset_before_time(segment, timestamp)
    put("newest time", log.max_timestamp)
    put("newest times", lambda: [_newest(each) for each in log.segments])
    put("aborted", lambda: log.aborted_before(end))
    put("producers", lambda: sorted(log.producers.active()))
    put("unstable", lambda: log.first_unstable_offset)
    for epoch in range(BATCHES // BATCHES_OF_AN_EPOCH + 1):
        put(f"end of epoch {epoch}", lambda epoch=epoch: log.epoch_end(epoch))
    return answers


def _newest(segment: Any) -> int:
    segment.load_time_index()
    return int(segment.max_timestamp)


def _read(log: Log, offset: int, end: int) -> bytes:
    """Return the batch that holds an offset; both ways to it must agree."""
    for _ in range(3):  # a wrong index is made anew, and the reader asks again
        found = log.read(offset, 1, end_offset=end, cached=True)
        if found:
            return bytes(found)
        found = log.read(offset, 1, end_offset=end, cached=False)
        if found:
            return bytes(found)
    raise KafkaStorageError("it finds nothing and no damage")


class Readings(NamedTuple):
    """The answers of a sound log, and where it ended."""

    answers: Answers
    end_offset: int

    @classmethod
    def of(cls, log: Log) -> Readings:
        """Ask a log all questions, and close it."""
        readings = cls(ask(log), log.log_end_offset)
        log.close(clean=False)
        return readings


def wrong_answers(sound: Readings, log: Log) -> list[str]:
    """Return the questions that a log answers otherwise than before; those about all of it only if it is whole."""
    answers = ask(log)
    damage, end = log.damage, log.log_end_offset
    log.close(clean=False)
    is_whole = damage is None and end == sound.end_offset
    return [
        f"{question}: {answer!r}, not {sound.answers.get(question)!r}"
        for question, answer in answers.items()
        if answer not in (None, sound.answers.get(question))
        and (is_whole or question.startswith(("read ", "epoch of ")))
    ]


def flips(chance: Random, files: Files, count: int) -> Iterator[tuple[str, int, int]]:
    """Yield (name, position, bit), each name as often as the others."""
    names = sorted(name for name, content in files.items() if content)
    for number in range(count):
        name = names[number % len(names)]
        yield name, chance.randrange(len(files[name])), chance.randrange(8)


def flipped(files: Files, name: str, position: int, bit: int) -> Files:
    """Return the files with one bit changed."""
    content = bytearray(files[name])
    content[position] ^= 1 << bit
    return {**files, name: bytes(content)}


def is_never_used(files: Files, name: str, position: int, bit: int, how: Opened) -> bool:
    """Return whether neither the start nor a reader uses a bit, or uses it and rightly.

    No start reads producer snapshots but the newest. It makes the end of the newest time index anew, and after a crash
    all indexes beyond the recovery point. A time may be true of another batch. The checksum of the file before is not
    used unless it is no longer a number.
    """
    stem, _, kind = name.partition(".")
    if kind == "snapshot":
        return name != max(each for each in files if each.endswith(".snapshot"))
    if kind in ("index", "timeindex"):
        later = [each.partition(".")[0] for each in files if each.endswith(".log") and each > f"{stem}.log"]
        is_made_anew = not how.clean and int(min(later, default="9" * 20)) > how.recovery_point
        is_time = kind == "timeindex"
        return is_made_anew or (is_time and (not later or _is_true(files, name, position, bit)))
    is_of_the_file_before = len(files[name]) == 19 and 9 <= position < 17
    return name.endswith(CHECKSUMS) and is_of_the_file_before and _is_digit(files[name][position] ^ 1 << bit)


def _is_true(files: Files, name: str, position: int, bit: int) -> bool:
    """Return whether a flipped entry of a time index is that of a batch."""
    at = position // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES
    timestamp, offset = TIME_ENTRY.unpack_from(flipped(files, name, position, bit)[name], at)
    stem = name.partition(".")[0]
    batches = [header for _, header in iter_headers(files[f"{stem}.log"])]
    return (timestamp, int(stem) + offset) in [(each.max_timestamp, each.last_offset) for each in batches]


def _is_digit(byte: int) -> bool:
    return byte in b"0123456789abcdef"


def is_beyond_proof(files: Files, name: str, position: int, how: Opened) -> bool:
    """Return whether a byte belongs to a leader epoch that this disk cannot confirm.

    No CRC covers it. Before the recovery point the epoch checkpoint does, and elsewhere the batches around it; not so
    where an epoch begins, or at the log's end. There the other replicas find it (`refused` in the simulator).
    """
    if how.clean or not name.endswith(".log"):
        return False
    batches = [
        (each, at, header)
        for each in sorted(files)
        if each.endswith(".log")
        for at, header in iter_headers(files[each])
    ]
    for number, (each, at, header) in enumerate(batches):
        if each == name and at + EPOCH_FROM <= position < at + EPOCH_END:
            around = {header.leader_epoch for _, _, header in batches[number - 1 : number + 2]}
            is_known = header.base_offset < how.recovery_point
            return not is_known and (len(around) > 1 or number == len(batches) - 1)
    return False
