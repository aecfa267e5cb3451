"""Groups live where every Kafka client expects them."""

from __future__ import annotations

import pytest

from raftlog.coordinator.java_hash import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("Hello, World!", 1_498_789_909),
        ("polygenelubricants", -2_147_483_648),
        ("\U0001f600", 1_772_899),
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    """String.hashCode over UTF-16 code units; known values of the Java platform."""
    assert java_string_hash(text) == expected


def test_the_partition_is_the_absolute_hash_modulo_the_count() -> None:
    """Kafka's Utils.abs maps the smallest int to 0."""
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert partition_for("zzzzzzzz", 50) == abs(java_string_hash("zzzzzzzz")) % 50
