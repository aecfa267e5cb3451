"""The partition of a coordinators' topic for a key: clients of every language rely on Java's hash."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_INT_BITS = 32

KEYS_KNOWN: Final = 1_000
"""Keys whose partitions are remembered: hashing takes 10 µs, and a share partition asks twice for each write."""


def java_string_hash(text: str) -> int:
    """Return the value of Java's `String.hashCode`: over UTF-16 code units, wrapped to 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFF_FFFF
    return value - (1 << _INT_BITS) if value >> (_INT_BITS - 1) else value


@lru_cache(maxsize=KEYS_KNOWN)
def partition_for(key: str, partitions: int) -> int:
    """Return the partition of a group id, a transactional id or a share partition, which are checked before.

    Kafka's abs maps the smallest int to 0.
    """
    value = java_string_hash(key)
    return (0 if value == -(1 << (_INT_BITS - 1)) else abs(value)) % partitions
