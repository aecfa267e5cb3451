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
