"""The port of a schema registry to the log of its store, the topic `_schemas`; `raftlog.broker` fills it."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol
from uuid import UUID

from raftlog.base.errors import NotLeaderOrFollower
from raftlog.base.types import NO_EPOCH


class SchemaLogBounds(NamedTuple):
    """The offsets and the epoch of a replica of the store."""

    topic_id: UUID | None
    """None: this node has no replica."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    """The epoch in which this node leads; -1 if it does not, or may have been replaced."""


NO_REPLICA: Final = SchemaLogBounds(None, 0, 0, 0, NO_EPOCH)


class SchemaLogPort(Protocol):
    """One node's replica of the store."""

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


class NoSchemaLog:
    """Of a node that is no broker, and so has no replica."""

    def exists(self) -> bool:
        """Return True: the brokers create the topic."""
        return True

    async def create(self) -> None:
        """Do nothing."""

    def bounds(self) -> SchemaLogBounds:
        """Return that there is no replica."""
        return NO_REPLICA

    async def read(self, offset: int) -> bytes:
        """Raise AssertionError: there is nothing to read."""
        raise AssertionError(f"no replica has offset {offset}")

    def append(
        self, records: tuple[tuple[bytes, bytes | None], ...], *, at: int, leader_epoch: int, now_ms: int
    ) -> int:
        """Raise NotLeaderOrFollower."""
        raise NotLeaderOrFollower

    async def changed(self) -> None:
        """Raise AssertionError: nothing changes."""
        raise AssertionError("a node without a replica follows none")

    def close(self) -> None:
        """Do nothing."""
