"""The metrics that clients push (KIP-714): OpenTelemetry's MetricsData v1, read with bounds.

Only what Kafka's clients send is read: gauges and sums, each point a number with attributes. Histograms and summaries
are counted and passed over. Protobuf is a sequence of tagged fields, so what is not wanted costs its tag and length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from struct import Struct
from typing import Final, Literal, NamedTuple, cast

from raftlog.base.errors import InvalidRecord

MAX_FIELDS: Final = 15_000
"""Of one push, however deep; about a microsecond each. Fields behind them are not read."""

VARINT_BYTES: Final = 10

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE = Struct("<d")
_SIGNED = Struct("<q")
_U64: Final = 1 << 64

Field = tuple[int, int | memoryview]
"""A field's number, and its value: an int, or the bytes of what is longer or fixed."""


class DataPoint(NamedTuple):
    """One number of one metric. `kind`: a counter's number only grows. `delta`: it is what was added since the last."""

    name: str
    kind: Literal["counter", "gauge"]
    delta: bool
    attributes: tuple[tuple[str, str], ...]
    value: float


class _TooMany(Exception):
    """The fields are used up."""


class MetricsReader:
    """Reads one MetricsData. `skipped`: what has no place here, and 1 for all that is behind the last field."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = memoryview(encoded)
        self._left = MAX_FIELDS
        self.skipped = 0

    def points(self) -> Iterator[tuple[tuple[tuple[str, str], ...], DataPoint]]:
        """Yield (attributes of the resource, point) as they are read. Raises InvalidRecord for what is malformed."""
        try:
            for number, resource_metrics in self._fields(self._encoded):
                if number == 1:
                    yield from self._of_resource(_bytes(resource_metrics))
        except _TooMany:
            self.skipped += 1

    def _of_resource(self, encoded: memoryview) -> Iterator[tuple[tuple[tuple[str, str], ...], DataPoint]]:
        fields = list(self._fields(encoded))
        resource: tuple[tuple[str, str], ...] = ()
        for number, value in fields:
            if number == 1:
                resource = self._attributes(_bytes(value), of=1)
        for number, scope in fields:
            if number == 2:  # ResourceMetrics.scope_metrics
                for inner, metric in self._fields(_bytes(scope)):
                    if inner == 2:  # ScopeMetrics.metrics
                        for point in self._of_metric(_bytes(metric)):
                            yield resource, point

    def _of_metric(self, encoded: memoryview) -> Iterator[DataPoint]:
        name = ""
        for number, value in self._fields(encoded):
            if number == 1:
                name = _text(value)
            elif number == 5:  # Metric.gauge
                yield from self._of_gauge(name, _bytes(value))
            elif number == 7:  # Metric.sum
                yield from self._of_sum(name, _bytes(value))
            elif number > 7:  # histograms and summaries
                self.skipped += 1

    def _of_gauge(self, name: str, encoded: memoryview) -> Iterator[DataPoint]:
        for number, point in self._fields(encoded):
            if number == 1:
                yield from self._point(name, "gauge", False, _bytes(point))

    def _of_sum(self, name: str, encoded: memoryview) -> Iterator[DataPoint]:
        fields = list(self._fields(encoded))
        flags = {number: value for number, value in fields if number != 1}
        delta, grows = flags.get(2) == 1, flags.get(3) == 1
        for number, point in fields:
            if number == 1:
                yield from self._point(name, "counter" if grows else "gauge", delta, _bytes(point))

    def _point(
        self, name: str, kind: Literal["counter", "gauge"], delta: bool, encoded: memoryview
    ) -> Iterator[DataPoint]:
        """Yield the point if it has a finite number: a rate of nothing is none."""
        value = math.nan
        attributes: list[tuple[str, str]] = []
        for number, field in self._fields(encoded):
            if number == 4:  # NumberDataPoint.as_double
                value = _fixed(_DOUBLE, field)
            elif number == 6:  # NumberDataPoint.as_int
                value = _fixed(_SIGNED, field)
            elif number == 7:  # NumberDataPoint.attributes
                attributes += self._attribute(_bytes(field))
        if math.isfinite(value):
            yield DataPoint(name, kind, delta, tuple(attributes), value)

    def _attributes(self, encoded: memoryview, *, of: int) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for number, value in self._fields(encoded):
            if number == of:
                found += self._attribute(_bytes(value))
        return tuple(found)

    def _attribute(self, encoded: memoryview) -> Iterator[tuple[str, str]]:
        """Yield (name, value) of an attribute whose value is a text, a number or a truth."""
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
        position = 0
        while position < len(encoded):
            self._left -= 1
            if self._left < 0:
                raise _TooMany
            tag, position = _varint(encoded, position)
            wire_type = tag & 7
            size: int | None = None
            if wire_type == _VARINT:
                number, position = _varint(encoded, position)
                yield tag >> 3, number
                continue
            if wire_type == _BYTES:
                size, position = _varint(encoded, position)
            elif wire_type == _FIXED64:
                size = 8
            elif wire_type == _FIXED32:
                size = 4
            if size is None or size > len(encoded) - position:
                raise InvalidRecord("the metrics are no MetricsData of OpenTelemetry")
            yield tag >> 3, encoded[position : position + size]
            position += size


def _varint(encoded: memoryview, position: int) -> tuple[int, int]:
    found = 0
    for index, byte in enumerate(encoded[position : position + VARINT_BYTES]):
        found |= (byte & 127) << (7 * index)
        if byte < 128:  # no further byte
            return found % _U64, position + index + 1
    raise InvalidRecord("the metrics have a number that does not end")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise InvalidRecord("the metrics have a number where a message belongs")
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
