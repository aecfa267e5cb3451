"""`raftlog log …`: the files of partitions, read where they lie, as kafka-dump-log does. No node is asked.

Files are only read. The last batch of a running node may be half written, and is reported as torn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.base.errors import KafkaError
from raftlog.cli.cluster_command import add_command, noun
from raftlog.cli.exits import FAILED, NOT_FOUND, VERIFICATION_FAILED, Failure
from raftlog.cli.printable import printable
from raftlog.cli.rows import Form, print_rows
from raftlog.records.batch import iter_records, name_bytes, read_end_marker
from raftlog.records.compression import CODEC_NAMES
from raftlog.records.header import BatchHeader
from raftlog.storage.segment_check import CheckedBatch, SegmentFault, check_segment

LOG: Final = ".log"
SHOWN_BYTES: Final = 200
"""Bytes of a key or a value that a table shows."""

SOUND: Final = "sound"
TORN: Final = "torn at the end"
UNREADABLE: Final = "unreadable"
DAMAGED: Final = "damaged"
STATES: Final = (SOUND, TORN, UNREADABLE, DAMAGED)
"""The states of a partition, each worse than the previous."""

_CODECS: Final = {number: name for name, number in CODEC_NAMES.items() if name != "uncompressed"}

log = noun("Dump and verify the files of partitions, of a node that need not run.")

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH", help="segments (.log), folders of partitions, or whole log.dirs"),
]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's file."""

    path: Path

    @property
    def partition(self) -> str:
        """The partition, as its folder is named."""
        return self.path.parent.name

    @property
    def base_offset(self) -> int:
        return int(self.path.stem)

    def check(self) -> Iterator[CheckedBatch | SegmentFault]:
        """Yield each batch, and the first fault. Raises OSError.

        The file is not mapped: where a disk cannot read it, or a node cuts it meanwhile, that would end this process.
        """
        with self.path.open("rb", buffering=0) as file:
            yield from check_segment(OpenSegment(file.fileno()), self.base_offset)


class OpenSegment:
    """The bytes of a segment's file as they were when it was opened."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.file = self

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor, size, position)


class Reading:
    """One run over some paths. Unreadable files and folders are reported on standard error."""

    def __init__(self) -> None:
        self.is_complete = True

    def segments(self, paths: list[Path]) -> list[Segment]:
        """Return all segments below some paths, by partition and offset. Raises Failure."""
        found: list[Segment] = []
        for path in paths:
            if not path.exists():
                raise Failure(f"{path}: no such file or directory", NOT_FOUND)
            if path.is_file():
                if not _is_segment(path):
                    raise Failure(f"{path}: a segment's name is its base offset, such as {0:020}{LOG}")
                found.append(Segment(path))
            else:
                found += map(Segment, self._below(path))
        if not found and self.is_complete:
            raise Failure(f"no segments ({LOG}) below {', '.join(map(str, paths))}", NOT_FOUND)
        return found

    def _below(self, path: Path) -> Iterator[Path]:
        for place, folders, names in os.walk(path, onerror=self.report):
            folders.sort()
            for folder in (Path(place, each) for each in folders):
                if folder.is_symlink():
                    self.report(
                        OSError(0, "a link, which is not followed: name the folder itself", str(folder))
                    )
            yield from filter(_is_segment, (Path(place, each) for each in sorted(names)))

    def check(self, segment: Segment) -> Iterator[CheckedBatch | SegmentFault | OSError]:
        """Yield each batch of a segment, and the first fault; an OSError that is reported already."""
        try:
            yield from segment.check()
        except OSError as error:
            error.filename = str(segment.path)
            self.report(error)
            yield error

    def report(self, error: OSError) -> None:
        """Print that something could not be read."""
        self.is_complete = False
        _complain(f"{error.filename}: {error.strerror}")


def _is_segment(path: Path) -> bool:
    return path.suffix == LOG and path.stem.isdecimal()


def _row(segment: Segment, position: int, header: BatchHeader) -> dict[str, Any]:
    return {
        "partition": segment.partition,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "codec": _CODECS.get(header.codec, str(header.codec)),
        "transactional": header.is_transactional,
        "control": header.is_control,
        "position": position,
        "bytes": header.length,
    }


def _records(header: BatchHeader, batch: memoryview) -> Iterator[dict[str, Any]]:
    marker = read_end_marker(batch) if header.is_control else None
    for record in iter_records(batch):
        row = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[_text(name_bytes(name)), _text(value)] for name, value in record.headers],
        }
        yield {**row, "marker": "commit" if marker.commit else "abort"} if marker else row


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _dump(reading: Reading, paths: list[Path], *, records: bool, form: Form) -> Iterator[dict[str, Any]]:
    for segment in reading.segments(paths):
        for found in reading.check(segment):
            if isinstance(found, OSError):
                continue
            if isinstance(found, SegmentFault):
                _complain(_describe(segment, found))
                continue
            position, header, batch = found
            if not records:
                yield _row(segment, position, header)
                continue
            try:
                for row in _records(header, batch):
                    short = (
                        {name: _shown(value) for name, value in row.items()} if form is Form.TABLE else row
                    )
                    yield {"partition": segment.partition, **short}
            except KafkaError as error:
                _complain(f"{segment.path}, position {position}: {error.message}")


def _complain(text: str) -> None:
    print(f"raftlog: {printable(text)}", file=sys.stderr)


def _shown(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= SHOWN_BYTES else value[:SHOWN_BYTES] + "..."


def _describe(segment: Segment, fault: SegmentFault) -> str:
    what = "torn at the end (a node cuts this when it starts)" if fault.is_torn else "damaged"
    return f"{segment.path}, position {fault.position}: {what}: {fault.reason}"


def dump(
    _reached: None,
    *,
    paths: Paths,
    records: Annotated[
        bool, typer.Option("--print-data-log", "--records", help="single records, with keys and values")
    ] = False,
    form: Form,
) -> int:
    """Print the batches of segments, or their records. Unreadable batches are reported on standard error.

    Exit code 1: a file or folder could not be read.
    """
    reading = Reading()
    print_rows(_dump(reading, paths, records=records, form=form), form)
    return 0 if reading.is_complete else FAILED


def verify(_reached: None, *, paths: Paths, form: Form) -> int:
    """Read every batch of segments: its checksum, the order of offsets and of epochs, and that none is missing between
    segments.

    Exit code 8: some segment is damaged. A torn end after a crash is no damage. Exit code 1: no damage, but a file or
    folder could not be read.
    """
    reading = Reading()
    segments = reading.segments(paths)
    rows: dict[Path, dict[str, Any]] = {}
    last = {each.path.parent: each for each in segments}
    for segment in segments:
        folder = segment.path.parent
        row = rows.get(folder)
        if row is None:
            row = rows[folder] = _empty_row(segment)
        elif row["state"] == SOUND and segment.base_offset != row["end_offset"]:
            _complain(f"{segment.path}: damaged: the segment before it ends at offset {row['end_offset']}")
            row["state"] = DAMAGED
        state = _verify(reading, segment, row, is_last=last[folder] is segment)
        row["state"] = max(state, row["state"], key=STATES.index)
    print_rows(rows.values(), form)
    if any(row["state"] == DAMAGED for row in rows.values()):
        return VERIFICATION_FAILED
    return 0 if reading.is_complete else FAILED


def _verify(reading: Reading, segment: Segment, row: dict[str, Any], *, is_last: bool) -> str:
    """Add a segment to its partition's row; returns its state."""
    row["segments"] += 1
    for found in reading.check(segment):
        if isinstance(found, OSError):
            return UNREADABLE
        if isinstance(found, SegmentFault):
            _complain(_describe(segment, found))
            return TORN if found.is_torn and is_last else DAMAGED
        header = found.header
        row["batches"] += 1
        row["records"] += header.record_count
        row["bytes"] += header.length
        row["end_offset"] = header.end_offset
    return SOUND


def _empty_row(segment: Segment) -> dict[str, Any]:
    offsets = {"start_offset": segment.base_offset, "end_offset": segment.base_offset}
    counts = dict.fromkeys(("segments", "batches", "records", "bytes"), 0)
    return {"partition": segment.partition, **offsets, **counts, "state": SOUND}


for _command in (dump, verify):
    add_command(log, (_command.__name__,), _command, reach=lambda _given: None, shared={}, prints_rows=True)
