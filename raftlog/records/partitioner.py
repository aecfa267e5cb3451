"""Chooses the partition of a key as the Java client does: murmur2, so that all clients agree."""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return the 32-bit hash of a key, unsigned (Austin Appleby's MurmurHash2 with Kafka's seed)."""
    size = len(key)
    value = (SEED ^ size) & _WORD
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        value = (value * _MULTIPLIER & _WORD) ^ word
    if size > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    value = (value ^ value >> 13) * _MULTIPLIER & _WORD
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key among so many."""
    return (murmur2(key) & _POSITIVE) % partitions
