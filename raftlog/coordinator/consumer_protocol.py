"""Decodes the consumer protocol's own bytes: subscriptions and owned partitions of a classic group's members.

Every other protocol type (Connect, schema registries) is opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.base.errors import CorruptMessage
from raftlog.coordinator.record_fields import I16, I32, FieldReader, string

CONSUMER: Final = "consumer"

FIRST_OWNED_VERSION: Final = 1
FIRST_GENERATION_VERSION: Final = 2
FIRST_RACK_VERSION: Final = 3
NEWEST_VERSION: Final = 3

PartitionsByTopic = Mapping[str, frozenset[int]]
"""Partitions by topic name."""

_NO_USER_DATA: Final = I32.pack(-1)


class Subscription(msgspec.Struct, frozen=True):
    """ConsumerProtocolSubscription. `owned`: its partitions; empty in versions without that field."""

    version: int
    topics: frozenset[str]
    owned: PartitionsByTopic = {}
    rack_id: str | None = None


def read_subscription(subscription: bytes) -> Subscription | None:
    """Decode a ConsumerProtocolSubscription of any version; None if it is invalid."""
    fields = FieldReader(subscription)
    try:
        version = fields.int16()
        if version < 0:
            return None
        topics = frozenset(fields.strings())
        if version < FIRST_OWNED_VERSION:
            return Subscription(version, topics)
        fields.nullable_bytes()
        owned = _read_partitions(fields)
        if version >= FIRST_GENERATION_VERSION:
            fields.int32()
        rack_id = fields.nullable_string() if version >= FIRST_RACK_VERSION else None
    except CorruptMessage:
        return None
    return Subscription(version, topics, owned, rack_id)


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription of any version; None if it is invalid."""
    fields = FieldReader(subscription)
    try:
        return None if fields.int16() < 0 else frozenset(fields.strings())
    except CorruptMessage:
        return None


def read_assignment(assignment: bytes) -> PartitionsByTopic | None:
    """Return the partitions of a ConsumerProtocolAssignment, empty for empty bytes; None if it is invalid."""
    if not assignment:
        return {}
    fields = FieldReader(assignment)
    try:
        return None if fields.int16() < 0 else _read_partitions(fields)
    except CorruptMessage:
        return None


def write_assignment(partitions: PartitionsByTopic, *, version: int) -> bytes:
    """Return a ConsumerProtocolAssignment; its versions are alike."""
    parts = [I16.pack(min(version, NEWEST_VERSION)), I32.pack(len(partitions))]
    for name, indexes in sorted(partitions.items()):
        parts += (string(name), I32.pack(len(indexes)), *map(I32.pack, sorted(indexes)))
    return b"".join((*parts, _NO_USER_DATA))


def _read_partitions(fields: FieldReader) -> PartitionsByTopic:
    found: dict[str, frozenset[int]] = {}
    for _ in range(fields.count()):
        name = fields.string()
        indexes = frozenset(fields.int32() for _ in range(fields.count()))
        if indexes:
            found[name] = found.get(name, frozenset()) | indexes
    return found
