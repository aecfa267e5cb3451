"""The actions and observations of clients, and the errors that they noticed at once. Checkers judge the rest
afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.base.types import TopicPartition
from raftlog_chaos.chronicle import Chronicle

TopicIndex = tuple[str, int]


class Acked(NamedTuple):
    """One acknowledged batch: its first record's offset as the broker said it, and its values in order."""

    base_offset: int
    values: tuple[bytes, ...]


class Observations:
    """`attempted` values may be there at most once; `acked` values (acks=all) must be, at their offset.

    Immediate violations are added to `violations`.
    """

    def __init__(self, violations: list[str], chronicle: Chronicle | None = None) -> None:
        self.attempted: dict[TopicIndex, set[bytes]] = {}
        self.acked: dict[TopicIndex, list[Acked]] = {}
        self.seen: dict[TopicIndex, dict[int, bytes]] = {}
        """The records that consumers read, by offset."""
        self.violations = violations
        self._chronicle = chronicle

    def attempt(self, where: TopicIndex, values: tuple[bytes, ...]) -> None:
        self.attempted.setdefault(where, set()).update(values)

    def acknowledge(self, where: TopicIndex, base_offset: int, values: tuple[bytes, ...]) -> None:
        if base_offset < 0:
            self.violations.append(f"{where}: {values[0]!r} was acknowledged without an offset")
        self.acked.setdefault(where, []).append(Acked(base_offset, values))
        if self._chronicle is not None:
            client, offsets = values[0].split(b"/")[0].decode(), (base_offset, base_offset + len(values))
            self._chronicle.note(client, "acked", "", where=TopicPartition(*where), offsets=offsets)

    def consume(self, where: TopicIndex, offset: int, value: bytes) -> None:
        """Check that a consumed record never changes (ConsistentRead)."""
        known = self.seen.setdefault(where, {}).setdefault(offset, value)
        if known != value:
            self.violations.append(f"{where}: offset {offset} was read as {known!r} and then as {value!r}")

    def blame(self, text: str) -> None:
        self.violations.append(text)

    @property
    def acked_count(self) -> int:
        return sum(len(batch.values) for batches in self.acked.values() for batch in batches)
