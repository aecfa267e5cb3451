"""Reads the records of `_schemas` from batches, as a log or a fetch returns them."""

from __future__ import annotations

from raftlog.base.log import get_logger
from raftlog.records.batch import Buffer, Record, iter_headers, iter_records, skip_headers
from raftlog.schemas.formats import identity
from raftlog.schemas.records import SchemaWritten, StoreRecord, decode

log = get_logger("schemas")


def decoded(batches: Buffer, start_offset: int) -> tuple[list[tuple[StoreRecord, bytes]], int]:
    """Return the records of whole batches from an offset on, schemas with their identities, and the next offset."""
    found = []
    view, offset = memoryview(batches), start_offset
    for position, header in iter_headers(view):
        offset = header.end_offset
        if header.is_control:
            continue
        for each in iter_records(view[position : position + header.length], read_headers=skip_headers):
            read = _read(each) if each.offset >= start_offset else None
            if read is not None:
                found.append(read)
    return found, offset


def _read(record: Record) -> tuple[StoreRecord, bytes] | None:
    """Return a record, of a schema with its identity; None for a record that this registry cannot read."""
    try:
        found = decode(record.key, record.value)
        if found is None:
            return None
        return found, identity(found.schema) if isinstance(found, SchemaWritten) else b""
    except Exception:  # anyone with the right may have written it
        log.exception("schema_record_skipped", offset=record.offset)
        return None
