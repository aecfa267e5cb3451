"""OpenTelemetry's MetricsData as bytes, made field by field, so that it can also be made wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    """Return a field: an int as a varint, bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fixed(number: int, value: float) -> bytes:
    """Return a field of 64 bits: a double, or a signed int."""
    return varint(number << 3 | 1) + pack("<q" if isinstance(value, int) else "<d", value)


def attributes(number: int, named: Mapping[str, str]) -> bytes:
    return b"".join(
        field(number, field(1, name.encode()) + field(2, field(1, value.encode())))
        for name, value in named.items()
    )


def point(value: float, **named: str) -> bytes:
    number = 6 if isinstance(value, int) else 4
    return fixed(3, 7) + fixed(number, value) + attributes(7, named)


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name.encode()) + field(5, b"".join(field(1, each) for each in points))


def total(name: str, *points: bytes, delta: bool = False, grows: bool = True) -> bytes:
    flags = field(2, 1 if delta else 2) + field(3, int(grows))
    return field(1, name.encode()) + field(7, b"".join(field(1, each) for each in points) + flags)


def histogram(name: str) -> bytes:
    return field(1, name.encode()) + field(9, field(1, fixed(4, 3)))


def metrics_data(*metrics: bytes, **resource: str) -> bytes:
    scope = field(1, field(1, b"scope")) + b"".join(field(2, each) for each in metrics)
    return field(1, field(1, attributes(1, resource)) + field(2, scope))
