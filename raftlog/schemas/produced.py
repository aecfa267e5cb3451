"""The schemas that the records of a produced batch refer to, and what is wrong with each record. Work for a thread.

The records are a client's, and were validated before. Each pass reads the batch anew, and keeps none of them.
A pass yields after each slice of its work, so that it ends soon after the client has gone. A batch refers to a limited
number of schemas, and its data takes a limited number of steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from raftlog.base.errors import CorruptMessage, InvalidRecord
from raftlog.records.batch import Headers, Record, iter_records
from raftlog.records.varint import read_varint
from raftlog.schemas.avro_validation import STEPS_PER_SLICE, NotOfSchema, TooManySteps, check_payload
from raftlog.schemas.errors import SchemaError
from raftlog.schemas.formats import demand_package, format_of
from raftlog.schemas.payloads import BY_ID, FRAMES, is_framed
from raftlog.schemas.schema import Named

MAX_SCHEMAS: Final = 1_000
"""Schemas that a batch refers to."""
MAX_SCHEMA_CHARS: Final = 1024 * 1024
"""Characters of schemas that are parsed for a batch."""
MAX_BATCH_STEPS: Final = 4_000_000
"""Values of a batch, and characters of schemas that are parsed for it: some seconds of a thread."""
MAX_HEADERS: Final = 10_000
"""Headers of a record that are searched for a schema id."""
BYTES_PER_STEP: Final = 1_000
"""Bytes of records that count as a step."""
MOST_ERRORS: Final = 20
MAX_PARSED: Final = 100
MAX_PARSED_CHARS: Final = 512 * 1024
"""Characters of the schemas that stay parsed, which take some fifty times as much memory."""

Ref = int | bytes
"""An id, or a guid of 16 bytes."""


class ProducedBatch(NamedTuple):
    """A validated batch. `fields`: those with schema validation, "key" and "value"."""

    records: memoryview
    fields: tuple[str, ...]
    plain_bytes: int
    """Its bytes without compression."""


class SchemaUse(NamedTuple):
    """A schema, and the field of records that refers to it."""

    field: str
    schema: Ref


class Uses(NamedTuple):
    """The schemas of a batch, and whether a key or value has no reference to a schema."""

    schemas: tuple[SchemaUse, ...]
    is_plain: bool


class AvroText(NamedTuple):
    """An Avro schema with the schemas that it refers to."""

    text: str
    named: tuple[Named, ...]

    @property
    def chars(self) -> int:
        """The characters to parse."""
        return len(self.text) + sum(len(each.text) for each in self.named)


class Check(Protocol):
    """Says what is wrong with data, and counts its steps."""

    steps: int

    def reason(self, use: SchemaUse, payload: bytes) -> Generator[None, None, str]:
        """Return why the record is refused, "" if it is not; yield between slices."""


def find_uses(batch: ProducedBatch) -> Generator[None, None, Uses]:
    """Return the schemas of a batch. Raises InvalidRecord for more than MAX_SCHEMAS."""
    uses: dict[SchemaUse, None] = {}
    is_plain = False
    slice_end = STEPS_PER_SLICE
    for _, record, steps in _numbered(batch):
        if steps >= slice_end:
            slice_end = steps + STEPS_PER_SLICE
            yield
        for field in batch.fields:
            found = _schema_of(record, field)
            if found is None:
                continue
            if found[0] is None:
                is_plain = True
                continue
            uses[SchemaUse(field, found[0])] = None
            if len(uses) > MAX_SCHEMAS:
                raise InvalidRecord(f"the batch refers to more than {MAX_SCHEMAS} schemas")
    return Uses(tuple(uses), is_plain)


def record_errors(batch: ProducedBatch, check: Check) -> Generator[None, None, list[tuple[int, str]]]:
    """Return the first MOST_ERRORS wrong records by their indexes in the batch, each with the reason."""
    errors: list[tuple[int, str]] = []
    slice_end = STEPS_PER_SLICE
    for number, record, steps in _numbered(batch):
        if steps + check.steps >= slice_end:
            slice_end = steps + check.steps + STEPS_PER_SLICE
            yield
        for field in batch.fields:
            found = _schema_of(record, field)
            if found is None:
                continue
            schema, payload = found
            reason = "has no schema id"
            if schema is not None:
                reason = yield from check.reason(SchemaUse(field, schema), payload)
            if reason:
                errors.append((number, f"the {field} {reason}"))
        if len(errors) >= MOST_ERRORS:
            break
    return errors[:MOST_ERRORS]


class _IdHeaders:
    """Reads the headers that name schemas (`HeaderReader`), and counts the steps of reading records."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.steps = 0
        self._names = {_header_of(each).encode(): _header_of(each) for each in fields}
        self._sizes = frozenset(len(each) for each in self._names)

    def __call__(self, body: bytes, position: int) -> tuple[Headers, int]:
        count, position = read_varint(body, position)
        self.steps += 1 + count // 2 + len(body) // BYTES_PER_STEP
        if count > MAX_HEADERS:
            raise InvalidRecord(
                f"a record has {count} headers, and at most {MAX_HEADERS} are searched for a schema id"
            )
        found = []
        for _ in range(count):
            size, start = read_varint(body, position)
            value_size, value_start = read_varint(body, start + size)
            position = value_start + max(value_size, 0)
            if value_size >= 0 and size in self._sizes:
                name = self._names.get(body[start : start + size])
                if name is not None:
                    found.append((name, body[value_start:position]))
        return tuple(found), position


def _header_of(field: str) -> str:
    return f"__{field}_schema_id"


def _numbered(batch: ProducedBatch) -> Iterator[tuple[int, Record, int]]:
    """Yield each record with its index, and the steps so far; of its headers, only references to schemas."""
    headers = _IdHeaders(batch.fields)
    try:
        for number, record in enumerate(
            iter_records(batch.records, max_bytes=batch.plain_bytes, read_headers=headers)
        ):
            yield number, record, headers.steps
    except CorruptMessage as error:  # a retry does not make it better
        raise InvalidRecord(error.message) from error


def _schema_of(record: Record, field: str) -> tuple[Ref | None, bytes] | None:
    """Return the reference to a schema, if there is one, and the data; None for a field that is null.

    Of several headers the last counts, as for Confluent's deserializers.
    """
    content = record.key if field == "key" else record.value
    if content is None:
        return None
    name = _header_of(field)
    for each, value in reversed(record.headers):
        if each == name and value is not None:
            ref, rest = _reference(value)
            return (ref if not rest else None), content
    return _reference(content)


def _reference(content: bytes) -> tuple[Ref | None, bytes]:
    if not is_framed(content):
        return None, content
    size = FRAMES[content[0]]
    ref = content[1:size]
    return (int.from_bytes(ref, "big") if content[0] == BY_ID else ref), content[size:]


class SchemaFaults:
    """Refuses records by the schemas that they refer to, without a look at their data."""

    def __init__(self, reasons: Mapping[SchemaUse, str]) -> None:
        self.steps = 0
        self._reasons = reasons

    def reason(self, use: SchemaUse, payload: bytes) -> Generator[None, None, str]:
        yield from ()
        return self._reasons.get(use, "")


class ParsedSchemas:
    """The Avro schemas that were used last, by their texts.

    A pass that was cancelled may still be in its last slice, in another thread. So each step is one dict operation.
    """

    def __init__(self) -> None:
        self._parsed: dict[AvroText, Any] = {}

    def get(self, schema: AvroText) -> Any:
        """Return a parsed schema; None if it is not kept."""
        found = self._parsed.pop(schema, None)
        if found is not None:
            self._parsed[schema] = found
        return found

    def add(self, schema: AvroText) -> Any:
        """Parse a schema and keep it. Raises SchemaError."""
        demand_package("AVRO")
        parsed = format_of("AVRO").parse(schema.text, schema.named)
        self._parsed[schema] = parsed
        kept = list(self._parsed)
        chars = sum(each.chars for each in kept)
        for each in kept[:-1]:
            if len(kept) <= MAX_PARSED and chars <= MAX_PARSED_CHARS:
                break
            chars -= each.chars
            kept = kept[1:]
            self._parsed.pop(each, None)
        return parsed


class PayloadCheck:
    """The check of Avro data, for one batch, whose schemas stay parsed until its end."""

    def __init__(self, schemas: Mapping[SchemaUse, AvroText], parsed: ParsedSchemas) -> None:
        self.steps = 0
        self._schemas = schemas
        self._parsed = parsed
        self._own: dict[SchemaUse, Any] = {}

    def reason(self, use: SchemaUse, payload: bytes) -> Generator[None, None, str]:
        text = self._schemas.get(use)
        if text is None:  # a schema of another type
            return ""
        try:
            schema = self._own[use] if use in self._own else self._parse(use, text)
            left = MAX_BATCH_STEPS - self.steps
            self.steps += yield from check_payload(schema, payload, max_steps=left)
        except NotOfSchema as error:
            self.steps += error.steps
            return f"is no data of its schema: {error}"
        except TooManySteps:
            self.steps = MAX_BATCH_STEPS
            return (
                f"cannot be checked: the batch has more than {MAX_BATCH_STEPS} values and characters of schemas; "
                "send smaller batches"
            )
        except (SchemaError, RecursionError) as error:
            return f"cannot be checked: {error}"
        return ""

    def _parse(self, use: SchemaUse, text: AvroText) -> Any:
        schema = self._parsed.get(text)
        if schema is None:
            self.steps += text.chars
            schema = self._parsed.add(text)
        self._own[use] = schema
        return schema
