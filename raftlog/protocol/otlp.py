"""The metrics that clients push (KIP-714): OpenTelemetry's MetricsData v1, read with bounds.

Only what Kafka's clients send is read: gauges and sums, each point a number with attributes. Histograms and summaries
are counted and skipped. Protobuf is a sequence of tagged fields, so an unused field costs its tag and length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from struct import Struct
from typing import Final, Literal, NamedTuple, cast

from raftlog.base.errors import InvalidRecord

MAX_FIELDS: Final = 15_000
"""Fields of one push, at any depth; about two microseconds each. Further fields are not read."""

FIELDS_AT_ONCE: Final = 1_000
"""Fields that are read between two pauses."""

MAX_ATTRIBUTES: Final = 100
"""The maximum number of attributes of a point or resource. Further attributes are not read."""

VARINT_BYTES: Final = 10

_VARINT, _BYTES = 0, 2
_FIXED_SIZES: Final = {1: 8, 5: 4}
"""Bytes of a value, by its wire type."""
_DOUBLE = Struct("<d")
_SIGNED = Struct("<q")
_U64: Final = 1 << 64

Field = tuple[int, int | memoryview]
"""A field's number, and its value: an int, or the bytes of a longer or fixed-width value."""


Kind = Literal["counter", "gauge"]


class DataPoint(NamedTuple):
    """One number of one metric. `kind`: a counter's number only grows. `delta`: the number is the growth since the last
    point.
    """

    name: str
    kind: Kind
    delta: bool
    attributes: tuple[tuple[str, str], ...]
    value: float


class _TooMany(Exception):
    """The limit of fields is reached."""


class MetricsReader:
    """Reads one MetricsData. `skipped`: unsupported metrics, plus 1 for all that is after the last field."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = memoryview(encoded)
        self._left = MAX_FIELDS
        self._pause_at = MAX_FIELDS - FIELDS_AT_ONCE
        self.skipped = 0

    @property
    def fields_read(self) -> int:
        """Return the number of fields that were read so far."""
        return min(MAX_FIELDS, MAX_FIELDS - self._left)

    def points(self) -> Iterator[tuple[tuple[tuple[str, str], ...], DataPoint] | None]:
        """Yield (attributes of the resource, point) as they are read, and None for a pause after FIELDS_AT_ONCE.

        Raise InvalidRecord if malformed.
        """
        try:
            for number, resource_metrics in self._fields(self._encoded):
                if self._pause_is_due():
                    yield None
                if number == 1:
                    yield from self._of_resource(_bytes(resource_metrics))
        except _TooMany:
            self.skipped += 1

    def _pause_is_due(self) -> bool:
        if self._left > self._pause_at:
            return False
        self._pause_at = self._left - FIELDS_AT_ONCE
        return True

    def _of_resource(
        self, encoded: memoryview
    ) -> Iterator[tuple[tuple[tuple[str, str], ...], DataPoint] | None]:
        resource: tuple[tuple[str, str], ...] = ()
        for number, value in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number == 1:
                resource = self._attributes(_bytes(value), of=1)
        for number, scope in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number == 2:  # ResourceMetrics.scope_metrics
                for point in self._of_scope(_bytes(scope)):
                    yield None if point is None else (resource, point)

    def _of_scope(self, encoded: memoryview) -> Iterator[DataPoint | None]:
        for number, metric in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number == 2:  # ScopeMetrics.metrics
                yield from self._of_metric(_bytes(metric))

    def _of_metric(self, encoded: memoryview) -> Iterator[DataPoint | None]:
        name = ""
        for number, value in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number == 1:
                name = _text(value)
            elif number == 5:  # Metric.gauge
                yield from self._of_points(name, "gauge", False, _bytes(value))
            elif number == 7:  # Metric.sum
                yield from self._of_sum(name, _bytes(value))
            elif number > 7:  # histograms and summaries
                self.skipped += 1

    def _of_sum(self, name: str, encoded: memoryview) -> Iterator[DataPoint | None]:
        flags = {}
        for number, value in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number != 1:
                flags[number] = value
        kind: Kind = "counter" if flags.get(3) == 1 else "gauge"
        yield from self._of_points(name, kind, flags.get(2) == 1, encoded)

    def _of_points(
        self, name: str, kind: Kind, delta: bool, encoded: memoryview
    ) -> Iterator[DataPoint | None]:
        for number, point in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number == 1:
                yield from self._point(name, kind, delta, _bytes(point))

    def _point(self, name: str, kind: Kind, delta: bool, encoded: memoryview) -> Iterator[DataPoint | None]:
        """Yield the point if it has a finite number."""
        value = math.nan
        attributes: list[tuple[str, str]] = []
        for number, field in self._fields(encoded):
            if self._pause_is_due():
                yield None
            if number == 4:  # NumberDataPoint.as_double
                value = _fixed(_DOUBLE, field)
            elif number == 6:  # NumberDataPoint.as_int
                value = _fixed(_SIGNED, field)
            elif number == 7 and len(attributes) < MAX_ATTRIBUTES:  # NumberDataPoint.attributes
                attributes += self._attribute(_bytes(field))
        if math.isfinite(value):
            yield DataPoint(name, kind, delta, tuple(attributes), value)

    def _attributes(self, encoded: memoryview, *, of: int) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for number, value in self._fields(encoded):
            if number == of:
                found += self._attribute(_bytes(value))
            if len(found) == MAX_ATTRIBUTES:
                break
        return tuple(found)

    def _attribute(self, encoded: memoryview) -> Iterator[tuple[str, str]]:
        """Yield (name, value) of an attribute with a string, number or boolean value."""
        name, text = "", None
        for number, value in self._fields(encoded):
            if number == 1:
                name = _text(value)
            elif number == 2:  # KeyValue.value
                for kind, inner in self._fields(_bytes(value)):
                    text = _value(kind, inner) or text
        if name and text is not None:
            yield name, text

    def _fields(self, encoded: memoryview) -> Iterator[Field]:
        position, end = 0, len(encoded)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise _TooMany
            tag, position = _varint(encoded, position)
            wire_type = tag & 7
            if wire_type == _VARINT:
                number, position = _varint(encoded, position)
                yield tag >> 3, number
                continue
            if wire_type == _BYTES:
                size, position = _varint(encoded, position)
            else:
                size = _FIXED_SIZES.get(wire_type, end)
            if size > end - position:
                raise InvalidRecord("the metrics are not a MetricsData message of OpenTelemetry")
            yield tag >> 3, encoded[position : position + size]
            position += size


def _varint(encoded: memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position, and where the next field begins. Most numbers have one byte."""
    if position < len(encoded) and (byte := encoded[position]) < 128:
        return byte, position + 1
    found = 0
    for index, byte in enumerate(encoded[position : position + VARINT_BYTES]):
        found |= (byte & 127) << (7 * index)
        if byte < 128:  # no further byte
            return found % _U64, position + index + 1
    raise InvalidRecord("the metrics have an unterminated varint")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise InvalidRecord("the metrics have a number in place of a message")
    return value


def _text(value: int | memoryview) -> str:
    return str(_bytes(value), "utf-8", "replace")


def _fixed(shape: Struct, value: int | memoryview) -> float:
    if isinstance(value, int) or len(value) != shape.size:
        raise InvalidRecord("the metrics have a point without a number of 64 bits")
    return cast(float, shape.unpack(value)[0])


def _value(kind: int, value: int | memoryview) -> str | None:
    """Return an attribute's value as text: string, bool, int or double; None for arrays and the like."""
    if kind == 1:
        return _text(value)
    if kind == 2 and isinstance(value, int):  # AnyValue.bool_value
        return "true" if value else "false"
    if kind == 3 and isinstance(value, int):  # AnyValue.int_value
        return str(value - _U64 if value >= _U64 // 2 else value)
    if kind == 4:  # AnyValue.double_value
        return repr(_fixed(_DOUBLE, value))
    return None
