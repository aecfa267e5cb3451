"""The readers of payloads share their bounds, their error, and the forms of values that JSON lacks.

A reader is a generator that yields between slices of work, and returns a value as JSON has it. Bytes are in base64,
times in ISO 8601, and numbers that JSON lacks are text. A payload of a few bytes may stand for very many values, so
each reader counts them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

Steps = Generator[None, None, Any]
"""The work of a reader: yields between slices, and returns the value."""
MAX_VALUES: Final = 20_000
MAX_DEPTH: Final = 64
"""Values within values."""
MAX_CHARS: Final = 1 << 20
"""Characters of names and texts: the name of a field costs a payload nothing."""
VALUES_AT_ONCE: Final = 200
"""Values between two slices."""
CHARS_PER_VALUE: Final = 256
"""Characters that take the time of a value."""
BY_ID, BY_GUID = 0, 1
FRAMES: Final = {BY_ID: 5, BY_GUID: 17}
"""Confluent's wire format: the first byte of a payload, and the bytes up to its content."""
SCHEMA_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Headers in which Confluent's serializers may write the guid of a schema."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class UsedSchema(msgspec.Struct, omit_defaults=True):
    """The schema by which a payload was decoded. `message`: of a Protobuf file.

    For a JSON Schema, it also says why the value does not fit and which part of the schema was not checked.
    """

    id: int
    type: str
    subject: str
    version: int
    message: str = ""
    mismatch: str = ""
    unchecked: str = ""


class Undecodable(Exception):
    """A payload that is not of its schema or format, or holds more than is decoded."""


class Budget:
    """Counts the values of one payload. Raises Undecodable beyond the bounds."""

    def __init__(self) -> None:
        self._values = 0
        self._chars = 0
        self._work = 0
        """Values, and what stands for them, since the last slice."""

    def spend(self, depth: int) -> bool:
        """Count a value. Return whether a slice of work ends here."""
        self._values += 1
        self._work += 1
        if self._values > MAX_VALUES:
            raise Undecodable(f"it has more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise Undecodable(f"its values are nested deeper than {MAX_DEPTH}")
        if self._work < VALUES_AT_ONCE:
            return False
        self._work = 0
        return True

    def spend_chars(self, chars: int) -> None:
        """Count a name or a text, before it becomes part of the value. The next value may end the slice."""
        self._chars += chars
        self._work += 1 + chars // CHARS_PER_VALUE
        if self._chars > MAX_CHARS:
            raise Undecodable(f"it has more than {MAX_CHARS} characters once it is decoded")


def is_framed(content: bytes) -> bool:
    """Return whether bytes may begin with the id or the guid of a schema."""
    return len(content) >= FRAMES.get(content[0], len(content) + 1) if content else False


def as_text(content: bytes) -> str:
    """Return UTF-8 as text. Raises Undecodable."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"a string is not UTF-8: {error.reason}") from None


def as_base64(content: bytes) -> str:
    """Return bytes as JSON has them here."""
    return base64.b64encode(content).decode()


def as_number(value: float) -> float | str:
    """Return a float, or its name if JSON has no such number."""
    return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


def as_time(microseconds: int) -> str | int:
    """Return microseconds since 1970 in ISO 8601, or as a number if no calendar has that year."""
    try:
        return (EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return microseconds


def check_json(content: bytes) -> None:
    """Raise Undecodable for bytes that are not JSON. No number is parsed, so none loses a digit."""
    try:
        content.decode()
        msgspec.json.decode(content, type=msgspec.Raw)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"it is not JSON: {error}") from None


def plain(value: Any, budget: Budget, depth: int = 0) -> Steps:
    """Return a value of a parser, such as MessagePack's, as JSON has it."""
    if budget.spend(depth):
        yield
    if isinstance(value, str | bytes):
        budget.spend_chars(len(value))
    if isinstance(value, dict):
        found = {}
        for name, each in value.items():
            key = name if isinstance(name, str) else str((yield from plain(name, budget, depth + 1)))
            found[key] = yield from plain(each, budget, depth + 1)
        return found
    if isinstance(value, list | tuple):
        items = []
        for each in value:
            items.append((yield from plain(each, budget, depth + 1)))
        return items
    if isinstance(value, bytes | bytearray | memoryview):
        return as_base64(bytes(value))
    if isinstance(value, float):
        return as_number(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value if value is None or isinstance(value, bool | int | str) else str(value)
