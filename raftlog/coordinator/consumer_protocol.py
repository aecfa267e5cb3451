"""The coordinator's knowledge of the consumer protocol's own bytes: what a member of a classic group reads and owns.

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
    """ConsumerProtocolSubscription. `owned`: what the member has; none where the version cannot tell."""

    version: int
    topics: frozenset[str]
    owned: PartitionsByTopic = {}
    rack_id: str | None = None


def read_subscription(subscription: bytes) -> Subscription | None:
    """Return what a ConsumerProtocolSubscription of any version says; None if it is none."""
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
    """Return the topics of a ConsumerProtocolSubscription of any version; None if it is none."""
    fields = FieldReader(subscription)
    try:
        return None if fields.int16() < 0 else frozenset(fields.strings())
    except CorruptMessage:
        return None


def read_assignment(assignment: bytes) -> PartitionsByTopic | None:
    """Return the partitions of a ConsumerProtocolAssignment, none of an empty one; None if it is none."""
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
