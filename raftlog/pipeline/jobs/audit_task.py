"""One task of `audit`: it judges the offsets and the order of one partition, record by record, in one walk.

It holds one number for each key of its partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

EXAMPLES: Final = 5
FOUND: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("repeated", pa.int64()),
        ("disordered", pa.int64()),
        ("unnumbered", pa.int64()),
        ("examples", pa.string()),
    ]
)
FOUND_DDL: Final = (
    "topic string, partition int, records long, repeated long, disordered long, unnumbered long, "
    "examples string"
)


@dataclass(slots=True)
class Walk:
    """One partition, walked in the order its records come."""

    topic: str
    partition: int
    records: int = 0
    repeated: int = 0
    disordered: int = 0
    unnumbered: int = 0
    examples: list[str] = field(default_factory=list)
    _last: int = -1
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def step(self, offset: int) -> None:
        """Check a record's offset: it must be above the previous."""
        self.records += 1
        if offset <= self._last:
            self.repeated += 1
            self._note(f"offset {offset} after {self._last}")
        elif self._last >= 0 and offset > self._last + 1:
            self._note(f"no records between offsets {self._last} and {offset}")
        self._last = max(self._last, offset)

    def number(self, key: bytes | None, number: int | None) -> None:
        """Check the number of the current record: it must not be below the previous number of its key."""
        if number is None:
            self.unnumbered += 1
            self._note(f"offset {self._last} has no number to order by")
        elif key is not None:
            before = self._numbers.get(key)
            if before is not None and number < before:
                self.disordered += 1
                self._note(f"offset {self._last}: {number} after {before} of key {key[:40]!r}")
            self._numbers[key] = number if before is None else max(before, number)

    def _note(self, what: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{self.topic}-{self.partition}: {what}")

    def found(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in FOUND.names[:-1]} | {
            "examples": json.dumps(self.examples)
        }


def judge(batches: Iterable[pa.RecordBatch], *, ordered: bool) -> Iterator[pa.RecordBatch]:
    """Walk a task's partitions and yield a row of FOUND for each. For mapInArrow."""
    walks: dict[tuple[str, int], Walk] = {}
    for batch in batches:
        columns = (
            batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "number")
        )
        for topic, partition, offset, key, number in zip(*columns, strict=True):
            walk = walks.get((topic, partition))
            if walk is None:
                walk = walks[topic, partition] = Walk(topic, partition)
            walk.step(offset)
            if ordered:
                walk.number(key, number)
    yield from (pa.RecordBatch.from_pylist([walk.found()], schema=FOUND) for walk in walks.values())
