"""Reads the records of `_schemas` from batches, as a log or a fetch returns them."""

from __future__ import annotations

from raftlog.records.batch import Buffer, iter_headers, iter_records
from raftlog.schemas.formats import identity
from raftlog.schemas.records import SchemaWritten, StoreRecord, decode


def decoded(batches: Buffer, start_offset: int) -> tuple[list[tuple[StoreRecord, bytes]], int]:
    """Return the records of whole batches from an offset on, schemas with their identities, and the next offset."""
    found = []
    view, offset = memoryview(batches), start_offset
    for position, header in iter_headers(view):
        offset = header.end_offset
        if header.is_control:
            continue
        for each in iter_records(view[position : position + header.length]):
            record = decode(each.key, each.value) if each.offset >= start_offset else None
            if record is not None:
                found.append((record, identity(record.schema) if isinstance(record, SchemaWritten) else b""))
    return found, offset
