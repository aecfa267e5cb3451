"""Decides which writer may append to a table, and whether an attempted commit is in it. Pure.

A table belongs to one topic of one cluster. Each writer takes the next epoch before it appends, and every commit names
the epoch and the next offset of each partition. A commit is based on a version of the table and fails if
that is not the newest. So two writers cannot both append the same records.

After an attempt, whether it succeeded, failed or has an unknown outcome, the writer reads the table again and asks
`judge`. So a lost response and a conflict need no rules of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

NO_EPOCH: Final = 0
"""The epoch of a table that had no writer yet."""

Offsets = Mapping[int, int]
"""The next offset to read of each partition."""
LeaderEpochs = Mapping[int, int]
"""The leader epoch of the last batch before that offset, of the partitions where it is known."""


class TableError(Exception):
    """The end of a table's writer. The message says what to do."""


class WrongSource(TableError):
    """The table has records of something else."""


class Fenced(TableError):
    """Another writer took the table over."""


class Tampered(TableError):
    """The offsets in the table are neither those before nor those after the attempt."""


@dataclass(frozen=True, slots=True)
class Source:
    """A topic. An id is "" if the brokers are too old to know it."""

    cluster: str
    topic: str
    topic_id: str

    def to_json(self) -> str:
        return json.dumps({"cluster": self.cluster, "topic": self.topic, "topic-id": self.topic_id})

    @classmethod
    def from_json(cls, text: str) -> Source:
        """Read what `to_json` returned. Raise WrongSource."""
        try:
            found = json.loads(text)
            return cls(str(found["cluster"]), str(found["topic"]), str(found["topic-id"]))
        except (ValueError, KeyError, TypeError):
            raise WrongSource(f"the table has no readable source: {text!r}") from None


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a table as a writer reads it."""

    version: str
    source: Source | None
    """None if the table was not made by raftlog."""
    epoch: int = NO_EPOCH
    offsets: Offsets = field(default_factory=dict)
    leader_epochs: LeaderEpochs = field(default_factory=dict)
    """Empty in a commit of an earlier version of raftlog."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A commit that a writer tries: its epoch, the offsets before and after it, and the leader epochs after it."""

    epoch: int
    start: Offsets
    end: Offsets
    leader_epochs: LeaderEpochs = field(default_factory=dict)


class Outcome(Enum):
    """DONE: the attempt is in the table. AGAIN: it is not, and may be tried on top of the new head."""

    DONE = "done"
    AGAIN = "again"


def check_source(head: Head, source: Source) -> None:
    """Raise WrongSource unless the table has records of this topic only."""
    found = head.source
    if found is None:
        raise WrongSource("there is a table already, and it was not made by raftlog; choose another place")
    for what, there, here in (
        ("cluster", found.cluster, source.cluster),
        ("topic", found.topic, source.topic),
        ("topic id", found.topic_id, source.topic_id),
    ):
        if there and here and there != here:
            raise WrongSource(
                f"the table has the records of {what} {there}, and not of {here}: offsets of another log would "
                "skip or repeat records; choose another place"
            )


def next_attempt(head: Head, begin: Offsets, epoch: int | None = None) -> Attempt:
    """Return the attempt to take over a table. `begin`: where to begin in partitions that the table does not know.

    `epoch` is the epoch of another table that this one follows; by default the next epoch. Raise Fenced.
    """
    if epoch is not None and head.epoch > epoch:
        raise Fenced(
            f"another writer took the dead letters over (epoch {head.epoch}, this writer has {epoch})"
        )
    new_epoch = head.epoch + 1 if epoch is None else epoch
    return Attempt(new_epoch, head.offsets, {**begin, **head.offsets}, head.leader_epochs)


def judge(head: Head, attempt: Attempt) -> Outcome:
    """Return what became of an attempt to append, by the head after it. Raise Fenced, Tampered."""
    if head.epoch != attempt.epoch:
        raise Fenced(
            f"another writer took the table over (epoch {head.epoch}, this writer has {attempt.epoch}); what it "
            "appends is complete, so this writer stops"
        )
    if head.offsets == attempt.end:
        return Outcome.DONE
    if head.offsets == attempt.start:
        return Outcome.AGAIN
    raise Tampered(
        f"the table's offsets are {dict(head.offsets)}, neither {dict(attempt.start)} nor {dict(attempt.end)}: "
        "something else wrote them"
    )
