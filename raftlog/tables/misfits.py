"""Records with values that do not fit into a table's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog.records.batch import Record

MAX_REASON: Final = 1_000
"""Characters. A reason may quote a value."""


class Misfit(Exception):
    """A value is not what its schema says, or the table has no column for it. The message is for the dead letter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason[:MAX_REASON].encode(errors="backslashreplace").decode())


class Decided(NamedTuple):
    """The dead letters that are in their table before the rows of the same offsets, after a crash between both."""

    ends: Mapping[int, int] = {}
    """The offsets of each partition up to which it is decided which records are dead letters."""
    letters: frozenset[tuple[int, int]] = frozenset()
    """Partition and offset of the dead letters."""


class DeadLetter(NamedTuple):
    """A record that does not fit, with its timestamp type, and the reason."""

    partition: int
    kind: int
    record: Record
    reason: str
