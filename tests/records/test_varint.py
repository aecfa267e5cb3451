"""Zigzag varints (Kafka protocol guide, "Protocol Primitive Types")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import encode_varint

from raftlog.base.errors import CorruptMessage
from raftlog.records.varint import read_varint, write_varint

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_varints_come_back_and_match_kafka_python(value: int) -> None:
    """Every signed 64-bit value is written as kafka-python writes it and read back."""
    ours, theirs = bytearray(), bytearray()
    write_varint(ours, value)
    encode_varint(value, theirs.append)
    assert ours == theirs
    assert read_varint(b"x" + ours + b"y", 1) == (value, 1 + len(ours))


@given(INT64)
def test_a_varint_cut_off_is_corrupt(value: int) -> None:
    """A varint without its last byte raises CorruptMessage, never IndexError."""
    encoded = bytearray()
    write_varint(encoded, value)
    with pytest.raises(CorruptMessage):
        read_varint(encoded[:-1], 0)


def test_an_endless_varint_is_corrupt() -> None:
    """A varint longer than ten bytes is refused, so that no number grows without bound."""
    with pytest.raises(CorruptMessage):
        read_varint(b"\xff" * 100, 0)


@given(st.integers(64, 69), st.booleans())
def test_a_varint_of_more_than_64_bits_is_corrupt(bits: int, full: bool) -> None:
    """Ten bytes hold seventy bits: a number of more than 64 would be written back as another number."""
    encoded = bytearray()
    rest = (1 << bits) | (((1 << bits) - 1) if full else 0)
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    assert len(encoded) == 10
    with pytest.raises(CorruptMessage):
        read_varint(encoded, 0)
