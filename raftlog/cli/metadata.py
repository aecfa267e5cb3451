"""`raftlog metadata …`: the cluster's metadata, read from a voter's folder. It contacts no node and only reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from raftlog.base.disk import RealDisk
from raftlog.base.types import METADATA_FOLDER
from raftlog.cli.cluster_command import add_command, noun
from raftlog.cli.exits import NOT_FOUND, VERIFICATION_FAILED, Failure
from raftlog.cli.metadata_rows import Sections, record_row, sections_of
from raftlog.cli.rows import Form, print_table
from raftlog.cli.timestamps import read_moment
from raftlog.metadata.causes import describe_cause
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage
from raftlog.metadata.metadata_records import Batch, decode_batch
from raftlog.metadata.record_replay import apply_batch
from raftlog.metadata.snapshot import decode_image
from raftlog.quorum.stored_journal import NAME, DamagedJournal, StoredJournal, read_journal

metadata = noun("Dump the metadata of a cluster, from the folder of a voter that need not run.")


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of the journal. `image`: the metadata after it; of a batch that was skipped, that before it."""

    index: int
    batch: Batch
    image: MetadataImage
    is_applied: bool
    is_committed: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """The time at which metadata is wanted: an offset, or wall milliseconds; with neither, the end."""

    text: str = ""
    offset: int | None = None
    at_ms: int | None = None

    @classmethod
    def read(cls, text: str) -> Moment:
        """Return the moment that an option names: a number is an offset. Raises Failure."""
        if not text or text.isdecimal():
            return cls(text, offset=int(text) if text else None)
        return cls(text, at_ms=read_moment("--as-of", text))

    def is_before(self, step: Step) -> bool:
        """Return whether a batch came later."""
        if self.offset is not None:
            return step.image.offset > self.offset
        return self.at_ms is not None and step.batch.at_ms > self.at_ms


def find_folder(path: Path) -> Path:
    """Return the folder of the journal in a metadata.log.dir, or that folder itself. Raises Failure."""
    for folder in (path, path / METADATA_FOLDER):
        if (folder / NAME).is_file():
            return folder
    raise Failure(
        f"{path}: no metadata here ({METADATA_FOLDER}/{NAME}); only voters keep it, in metadata.log.dir",
        NOT_FOUND,
    )


def open_journal(path: Path) -> StoredJournal:
    """Read a voter's journal. Raises Failure."""
    folder = find_folder(path)
    try:
        return read_journal(RealDisk(), str(folder))
    except DamagedJournal as error:
        raise Failure(str(error), VERIFICATION_FAILED) from None
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror}") from None


def first_image(journal: StoredJournal) -> MetadataImage:
    """Return the metadata before the journal's entries: its snapshot's. Raises Failure."""
    if journal.snapshot is None:
        return EMPTY_IMAGE
    try:
        return decode_image(journal.snapshot.state)
    except ValueError as error:
        raise Failure(f"the snapshot at entry {journal.snapshot.end}: {error}", VERIFICATION_FAILED) from None


def steps_of(journal: StoredJournal) -> Iterator[Step]:
    """Yield the batches after the snapshot. Raises Failure."""
    image = first_image(journal)
    for each in journal.commands():
        try:
            batch = decode_batch(each.command)
            after = apply_batch(image, batch)
        except (ValueError, LookupError, AssertionError) as error:
            raise Failure(f"entry {each.index} of the journal: {error}", VERIFICATION_FAILED) from None
        image = image if after is None else after
        yield Step(each.index, batch, image, after is not None, each.is_committed)


def image_of(journal: StoredJournal) -> MetadataImage:
    """Return the metadata at the end of a journal. Raises Failure."""
    image = first_image(journal)
    for step in steps_of(journal):
        image = step.image
    return image


def _until(journal: StoredJournal, moment: Moment) -> Iterator[Step]:
    """Yield the batches up to a moment. Raises Failure if what was then is not known any more."""
    start = first_image(journal)
    known = journal.snapshot is None or moment.at_ms is None
    if moment.offset is not None and moment.offset < start.offset:
        raise Failure(_forgotten(moment, start), NOT_FOUND)
    for step in steps_of(journal):
        if moment.is_before(step):
            break
        known = known or bool(step.batch.at_ms)
        yield step
    if not known:
        raise Failure(_forgotten(moment, start), NOT_FOUND)


def _forgotten(moment: Moment, start: MetadataImage) -> str:
    return f"--as-of {moment.text}: what was before offset {start.offset} is only known as a snapshot"


def _record_rows(journal: StoredJournal, moment: Moment) -> Iterator[dict[str, Any]]:
    start = first_image(journal)
    if journal.snapshot is not None:
        print(f"raftlog: records before offset {start.offset} are only in the snapshot", file=sys.stderr)
    for step in _until(journal, moment):
        batch = step.batch
        offset = step.image.offset - len(batch.records) if step.is_applied else None
        for number, record in enumerate(batch.records):
            yield {
                "offset": None if offset is None else offset + number,
                "entry": step.index,
                "at": _time(batch.at_ms),
                "controller_epoch": batch.controller_epoch,
                "applied": step.is_applied,
                "committed": step.is_committed,
                **record_row(record),
                "causes": [describe_cause(each) for each in batch.causes],
            }


def _time(at_ms: int) -> str | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds") if at_ms else None


def _image_at(journal: StoredJournal, moment: Moment) -> MetadataImage:
    image, unsure = first_image(journal), 0
    for step in _until(journal, moment):
        image = step.image
        unsure += not step.is_committed
    if unsure:
        print(
            f"raftlog: this voter did not know yet whether the last {unsure} batches are committed; they are shown",
            file=sys.stderr,
        )
    return image


def _print_sections(sections: Sections, form: Form) -> None:
    if form is Form.JSON:
        print(json.dumps(sections))
    elif form is Form.JSONL:
        for kind, rows in sections.items():
            for row in rows:
                print(json.dumps({"kind": kind, **row}))
    else:
        for number, (kind, rows) in enumerate((kind, rows) for kind, rows in sections.items() if rows):
            print(*([""] if number else []), f"{kind}:", sep="\n")
            print_table(rows, list(rows[0]))


def dump(
    _reached: None,
    *,
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="a voter's metadata.log.dir, or its first of log.dirs")
    ],
    as_of: Annotated[
        str,
        typer.Option(
            "--as-of",
            metavar="OFFSET|TIME",
            show_default="the end",
            help="a metadata offset, or a time as 2026-01-31T12:00:00Z",
        ),
    ] = "",
    records: Annotated[
        bool, typer.Option("--records", help="the single records as JSON lines, and why they were written")
    ] = False,
    form: Form,
) -> None:
    """Print brokers, topics, partitions, configs, users, ACLs and tokens. Passwords and SCRAM verifiers
    are left out."""
    journal, moment = open_journal(path), Moment.read(as_of)
    if records:
        for row in _record_rows(journal, moment):
            print(json.dumps(row))
    else:
        _print_sections(sections_of(_image_at(journal, moment)), form)


add_command(metadata, ("dump",), dump, reach=lambda _given: None, shared={}, prints_rows=True)


@metadata.callback()
def _group() -> None:
    """Dump the metadata of a cluster, from the folder of a voter that need not run."""
