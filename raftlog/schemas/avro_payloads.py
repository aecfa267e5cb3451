"""Reads Avro's binary encoding by a schema that `avro_schemas.parse` returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal, localcontext
from struct import Struct
from typing import Any, Final

from raftlog.schemas.payloads import Budget, Steps, Undecodable, as_base64, as_number, as_text, as_time

FLOAT: Final = Struct("<f")
DOUBLE: Final = Struct("<d")
LONG_BITS: Final = 64
DAY_MS: Final = 86_400_000
MAX_PRECISION: Final = 1_000
"""Digits of a decimal that is shown as a number."""


def read(payload: bytes, schema: Any) -> Steps:
    """Return the value of a payload, which must end with it. Raises Undecodable."""
    reader = _Reader(payload)
    value = yield from reader.value(schema, 0)
    left = len(payload) - reader.position
    if left:
        raise Undecodable(f"{left} bytes follow its value")
    return value


class _Reader:
    """One payload, as far as it is read."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._budget = Budget()
        self.position = 0

    def value(self, schema: Any, depth: int) -> Steps:
        """Return the next value."""
        if self._budget.spend(depth):
            yield
        kind = schema.type
        match kind:
            case "record" | "error":
                found = {}
                for field in schema.fields:
                    self._budget.spend_chars(len(field.name))
                    found[field.name] = yield from self.value(field.type, depth + 1)
                return found
            case "union" | "error_union":
                return (yield from self.value(self._chosen(schema.schemas, "branch"), depth))
            case "array":
                return (yield from self._array(schema, depth))
            case "map":
                return (yield from self._map(schema, depth))
        simple = self._simple(kind, schema)
        if isinstance(simple, str):  # a symbol of an enum has no bytes in the payload
            self._budget.spend_chars(len(simple))
        return simple

    def _array(self, schema: Any, depth: int) -> Steps:
        found = []
        while count := self._block():
            for _ in range(count):
                found.append((yield from self.value(schema.items, depth + 1)))
        return found

    def _map(self, schema: Any, depth: int) -> Steps:
        found = {}
        while count := self._block():
            for _ in range(count):
                name = as_text(self._bytes())
                self._budget.spend_chars(len(name))
                found[name] = yield from self.value(schema.values, depth + 1)
        return found

    def _block(self) -> int:
        """Return how many items the next block has. A negative count is followed by the block's size in bytes."""
        count = self._long()
        if count < 0:
            self._long()
        return abs(count)

    def _simple(self, kind: str, schema: Any) -> Any:
        """Return the next value of a type without other types in it."""
        match kind:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\0"
            case "int" | "long":
                return _logical(self._long(), schema)
            case "float":
                return as_number(FLOAT.unpack(self._take(FLOAT.size))[0])
            case "double":
                return as_number(DOUBLE.unpack(self._take(DOUBLE.size))[0])
            case "string":
                return as_text(self._bytes())
            case "bytes":
                return _of_bytes(self._bytes(), schema)
            case "fixed":
                return _of_bytes(self._take(schema.size), schema)
            case "enum":
                return self._chosen(schema.symbols, "symbol")
        raise Undecodable(f"the type {kind} is unknown")

    def _chosen(self, options: Any, what: str) -> Any:
        index = self._long()
        if not 0 <= index < len(options):
            raise Undecodable(f"{what} {index} of {len(options)} is chosen at byte {self.position}")
        return options[index]

    def _bytes(self) -> bytes:
        return self._take(self._long())

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._payload):
            raise Undecodable(f"{size} bytes are expected at byte {self.position} of {len(self._payload)}")
        found = self._payload[self.position : end]
        self.position = end
        return found

    def _long(self) -> int:
        found = shift = 0
        while True:
            (byte,) = self._take(1)
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift >= LONG_BITS + 6:
                raise Undecodable(f"a number has no end at byte {self.position}")


def _logical_name(schema: Any) -> str:
    """Return the logical type, also if the package does not support it, and "" without a logical type."""
    return str(getattr(schema, "logical_type", None) or schema.props.get("logicalType") or "")


def _days(value: int) -> str | int:
    try:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    except OverflowError:
        return value


def _time_of_day(microseconds: int) -> str | int:
    if not 0 <= microseconds < DAY_MS * 1_000:
        return microseconds
    return str(as_time(microseconds)).partition("T")[2].removesuffix("Z")


def _local(microseconds: int) -> str | int:
    found = as_time(microseconds)
    return found.removesuffix("Z") if isinstance(found, str) else found


_LOGICAL: Final[Mapping[str, Callable[[int], Any]]] = {
    "date": _days,
    "time-millis": lambda value: _time_of_day(value * 1_000),
    "time-micros": _time_of_day,
    "timestamp-millis": lambda value: as_time(value * 1_000),
    "timestamp-micros": as_time,
    "local-timestamp-millis": lambda value: _local(value * 1_000),
    "local-timestamp-micros": _local,
}


def _logical(value: int, schema: Any) -> Any:
    convert = _LOGICAL.get(_logical_name(schema))
    return value if convert is None else convert(value)


def _of_bytes(content: bytes, schema: Any) -> str:
    if _logical_name(schema) != "decimal" or getattr(schema, "precision", MAX_PRECISION + 1) > MAX_PRECISION:
        return as_base64(content)
    if len(content) > MAX_PRECISION:
        raise Undecodable(f"a decimal has {len(content)} bytes")
    with localcontext() as context:
        context.prec = 3 * MAX_PRECISION
        return f"{Decimal(int.from_bytes(content, signed=True)).scaleb(-int(schema.scale)):f}"
