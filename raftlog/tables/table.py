"""A table as its writer needs it: the contract of the backends.

Ordering: `append` is based on exactly the head that `load` returned last, and fails with Conflict if the table has a
newer version. No backend may retry a commit by itself on top of a newer version. Two writers that began at the same
offsets would both append their records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from raftlog.tables.progress import Attempt, Head, Source

if TYPE_CHECKING:
    import pyarrow as pa


class Conflict(Exception):
    """The table has a newer version than the base of a commit, so no row was appended."""


class StoreFailed(Exception):
    """The store or catalog failed. A commit under way may have happened."""


class NoLogin(StoreFailed):
    """No login for the store was found. Before the table was read, a second attempt is of no use."""


class Table(Protocol):
    """One table. All methods raise StoreFailed."""

    @property
    def where(self) -> str:
        """Where it is, for people."""

    @property
    def asked(self) -> str:
        """What is to answer at the moment, for people: a catalog, or the table itself."""

    def load(self) -> Head | None:
        """Read the newest version; None if there is no table."""

    def columns(self) -> pa.Schema:
        """Return the columns of the version that `load` read last."""

    def read(self, columns: Sequence[str], offset: int) -> pa.Table:
        """Return columns of the rows from an offset on, of the version that `load` read last."""

    def create(self, source: Source) -> None:
        """Make the table, without records. Raise Conflict if there is a table by now."""

    def append(self, head: Head, attempt: Attempt, rows: pa.Table) -> None:
        """Commit rows, epoch and offsets in a single version on top of this head. Raise Conflict."""

    def tidy(self) -> Mapping[str, Any]:
        """Merge small files and delete files that no version needs; return what was done, for the log."""
