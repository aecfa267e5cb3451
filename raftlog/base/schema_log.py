"""The port of a schema registry to the log of its store, the topic `_schemas`; `raftlog.broker` fills it."""

from __future__ import annotations

from typing import NamedTuple, Protocol
from uuid import UUID


class SchemaLogBounds(NamedTuple):
    """Where a replica of the store begins and ends."""

    topic_id: UUID | None
    """None: this node has no replica."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    """The epoch in which this node leads; -1 if it does not, or may have been replaced."""


class SchemaLogPort(Protocol):
    """One node's replica of the store."""

    def leader(self) -> int:
        """Return the broker that leads it, or -1."""

    def exists(self) -> bool:
        """Return whether the topic is there."""

    async def create(self) -> None:
        """Create the topic unless it exists. Raises KafkaError."""

    def bounds(self) -> SchemaLogBounds:
        """Return where the replica begins and ends."""

    async def read(self, offset: int) -> bytes:
        """Return committed batches from `offset` on, and at least one. Raises KafkaError."""

    def append(
        self, records: tuple[tuple[bytes, bytes | None], ...], *, at: int, leader_epoch: int, now_ms: int
    ) -> int:
        """Append records as one batch whose first offset is `at`. Return the end offset, which is not committed yet.

        Raise NotLeaderOrFollower, without an append, if the log ends elsewhere or the epoch is over.
        """

    async def changed(self) -> None:
        """Return when the bounds may have changed since the last call."""

    def close(self) -> None:
        """Stop following the replica."""
