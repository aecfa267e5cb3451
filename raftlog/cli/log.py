"""`raftlog log …`: the files of partitions, read where they lie, as kafka-dump-log does. No node is asked.

Files are only read. The last batch of a node that runs may be half written, which is told as torn.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raftlog.base.errors import KafkaError
from raftlog.cli.cluster_command import add_command, noun
from raftlog.cli.exits import NOT_FOUND, VERIFICATION_FAILED, Failure
from raftlog.cli.rows import Form, print_rows
from raftlog.records.batch import iter_records, read_end_marker
from raftlog.records.compression import CODEC_NAMES
from raftlog.records.header import BatchHeader
from raftlog.storage.segment_check import SegmentFault, check_segment

LOG: Final = ".log"
SHOWN_BYTES: Final = 200
"""Bytes of a key or a value that a table shows."""

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

    def check(self) -> Iterator[tuple[int, BatchHeader, memoryview] | SegmentFault]:
        """Yield each batch: its position, header and bytes; and the first fault. Raises Failure."""
        try:
            with self.path.open("rb") as file:
                if not self.path.stat().st_size:
                    return
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    yield from _batches(mapped, self.base_offset)
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}") from None


def _batches(
    mapped: mmap.mmap, base_offset: int
) -> Iterator[tuple[int, BatchHeader, memoryview] | SegmentFault]:
    with memoryview(mapped) as whole:
        for found in check_segment(whole, base_offset):
            if isinstance(found, SegmentFault):
                yield found
                continue
            position, header = found
            with whole[position : position + header.length] as batch:
                yield position, header, batch


def _segments(paths: list[Path]) -> list[Segment]:
    """Return all segments below some paths, by partition and offset. Raises Failure."""
    found: list[Segment] = []
    for path in paths:
        if not path.exists():
            raise Failure(f"{path}: there is no such file or folder", NOT_FOUND)
        files = [path] if path.is_file() else sorted(path.rglob("*" + LOG))
        if bad := [each for each in files if each.suffix != LOG or not each.stem.isdecimal()]:
            if path.is_file():
                raise Failure(f"{path}: a segment is named by its first offset, such as {0:020}{LOG}")
            files = [each for each in files if each not in bad]
        found += map(Segment, files)
    if not found:
        raise Failure(f"no segments ({LOG}) below {', '.join(map(str, paths))}", NOT_FOUND)
    return found


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
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
        yield {**row, "marker": "commit" if marker.commit else "abort"} if marker else row


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _dump(paths: list[Path], *, records: bool, form: Form) -> Iterator[dict[str, Any]]:
    for segment in _segments(paths):
        for found in segment.check():
            if isinstance(found, SegmentFault):
                print(f"raftlog: {_describe(segment, found)}", file=sys.stderr)
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
                print(f"raftlog: {segment.path}, position {position}: {error.message}", file=sys.stderr)


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
) -> None:
    """Print the batches of segments, or their records. Standard error tells of batches that cannot be read."""
    print_rows(_dump(paths, records=records, form=form), form)


def verify(_reached: None, *, paths: Paths, form: Form) -> int:
    """Read every batch of segments: its checksum, the order of offsets and of epochs.

    Exit code 8: something is damaged. An end of a partition that a crash tore off is no damage.
    """
    rows: dict[str, dict[str, Any]] = {}
    damaged = False
    segments = _segments(paths)
    last = {each.path.parent: each.path for each in segments}
    for segment in segments:
        row = rows.setdefault(str(segment.path.parent), _empty_row(segment))
        row["segments"] += 1
        for found in segment.check():
            if isinstance(found, SegmentFault):
                is_torn = found.is_torn and last[segment.path.parent] == segment.path
                damaged |= not is_torn
                row["state"] = "torn at the end" if is_torn else "damaged"
                print(f"raftlog: {_describe(segment, found)}", file=sys.stderr)
                continue
            _, header, _ = found
            row["batches"] += 1
            row["records"] += header.record_count
            row["bytes"] += header.length
            row["end_offset"] = header.end_offset
    print_rows(rows.values(), form)
    return VERIFICATION_FAILED if damaged else 0


def _empty_row(segment: Segment) -> dict[str, Any]:
    offsets = {"start_offset": segment.base_offset, "end_offset": segment.base_offset}
    counts = dict.fromkeys(("segments", "batches", "records", "bytes"), 0)
    return {"partition": segment.partition, **offsets, **counts, "state": "sound"}


for _command in (dump, verify):
    add_command(log, _command.__name__, _command, reach=lambda _given: None, shared={}, prints_rows=True)
