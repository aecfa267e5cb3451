"""Records with values that do not fit into a table's columns."""

from __future__ import annotations

from typing import NamedTuple

from raftlog.records.batch import Record


class Misfit(Exception):
    """A value is not what its schema says, or the table has no column for it. The message is for the dead letter."""


class DeadLetter(NamedTuple):
    """A record that does not fit, with its timestamp type, and the reason."""

    partition: int
    kind: int
    record: Record
    reason: str
