"""Readers of values, as the room uses them, and the limit of their columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import pyarrow as pa

MAX_COLUMNS: Final = 5_000
"""Of one schema, with all fields of fields. A few types that hold each other twice would make billions."""

MAX_DEPTH: Final = 32
"""Of columns within columns. What is deeper becomes text as JSON."""


class Part(Protocol):
    """Reads the values of one type of a schema. Methods may raise anything: whatever bytes make a package do."""

    @property
    def type(self) -> pa.StructType:
        """The fields of the column."""

    def read(self, payload: bytes) -> Any:
        """Return a value as a dict of Arrow's values."""


class Reader(Protocol):
    """Reads the values of one schema. Methods may raise anything."""

    def part(self, payload: bytes) -> tuple[Part, bytes]:
        """Return the reader of a value, by what its bytes begin with, and the bytes for it."""


class Columns:
    """Counts the columns of a schema, and checks their names."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, names: Iterable[str], of: str) -> None:
        """Count the fields of a type. Raise ValueError for too many, and for names that differ in case only."""
        found = list(names)
        self._count += len(found)
        if self._count > MAX_COLUMNS:
            raise ValueError(f"it has more than {MAX_COLUMNS} columns")
        if len({each.lower() for each in found}) < len(found):
            raise ValueError(f"two fields of {of} differ in case only")
